/** The `nft` program doing what a transaction does, as upstream would use it. */
import "../testkit/needs/kernel-tools.ts";
import { execFileSync, spawn } from "node:child_process";
import type { NftOperation } from "../src/kernel/nftables/nftables.ts";
import { elementText, ruleText } from "../src/kernel/nftables/ruleset-text.ts";

/**
 * What upstream would feed to `nft -f -` for the changes of these operations (reference nftables.md §4.1, nftables-operation.md
 * §11.4): every chain that is written is added and flushed first, and each element is a separate command.
 */
export function nftScript(table: string, operations: readonly NftOperation[]): string {
  const at = (name: string) => `ip ${table} ${name}`;
  const lines = operations.flatMap((operation) => {
    switch (operation.kind) {
      case "flush-chain":
        return [`add chain ${at(operation.chain)}`, `flush chain ${at(operation.chain)}`];
      case "add-chain":
        return [`add chain ${at(operation.chain.name)}`, `flush chain ${at(operation.chain.name)}`];
      case "add-elements":
        return operation.elements.map(({ comment: _said, ...element }) => {
          return `add element ${at(operation.set.name)} { ${elementText(element)} }`;
        });
      case "add-rule": {
        const text = ruleText(operation.rule, "ip").replace("dnat ip to", "dnat ip addr . port to");
        return [`add rule ${at(operation.chain)} ${text.replaceAll(", ", " , ")}`];
      }
      default:
        throw new RangeError(`${operation.kind} is not part of such a change`);
    }
  });
  return `${lines.join("\n")}\n`;
}

/** @returns milliseconds; undefined if it was cut off after `limitMs`. Rejects if nft fails. */
export async function runNft(file: string, limitMs: number): Promise<number | undefined> {
  const startMs = performance.now();
  const child = spawn("nft", ["-f", file], {
    stdio: ["ignore", "ignore", "inherit"],
    timeout: limitMs,
    killSignal: "SIGKILL",
  });
  const outcome = await new Promise<string>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (status, signal) => resolve(signal ?? String(status)));
  });
  if (outcome === "SIGKILL") return undefined;
  if (outcome !== "0") throw new Error(`nft -f ended with ${outcome}`);
  return performance.now() - startMs;
}

export function listRuleset(): string {
  return execFileSync("nft", ["list", "ruleset"], { encoding: "utf8", maxBuffer: 2 ** 30 });
}

/** @returns milliseconds for the listing that upstream does before every transaction. */
export function timeUpstreamListing(table: string): number {
  const startMs = performance.now();
  execFileSync("nft", ["--json", "--terse", "list", "table", "ip", table], { maxBuffer: 2 ** 30 });
  return performance.now() - startMs;
}

export function flushRuleset(): void {
  execFileSync("nft", ["flush", "ruleset"]);
}
