/** Random changes of the nftables mode's table by another program (the `nft` tool), which the backend must undo. */
import { execFileSync } from "node:child_process";
import fc from "../../testkit/support/fast-check.ts";

const KINDS = [
  "rename",
  "rename-and-flush",
  "rename-and-make-again",
  "swap",
  "flush",
  "delete-rule",
  "insert-rule",
  "append-jump",
  "add-base-chain",
  "add-element",
  "flush-set",
  "delete-elements",
  "policy",
] as const;

export interface Meddling {
  readonly kind: (typeof KINDS)[number];
  readonly index: number;
}

export const meddlingArbitrary: fc.Arbitrary<Meddling> = fc.record({
  kind: fc.constantFrom(...KINDS),
  index: fc.nat(200),
});

interface Listed {
  readonly chain?: { readonly name: string; readonly hook?: string };
  readonly rule?: { readonly chain: string; readonly handle: number };
  readonly set?: { readonly name: string; readonly elem?: readonly unknown[]; readonly type: unknown };
  readonly map?: {
    readonly name: string;
    readonly elem?: readonly unknown[];
    readonly type: unknown;
    readonly map: unknown;
  };
}

/** The prefix of all chains that {@link meddle} creates or renames. */
const EVIL = "evil";
let names = 0;

function nft(script: string): string {
  return execFileSync("nft", ["-f", "-"], { input: script, encoding: "utf8", stdio: ["pipe", "pipe", "ignore"] });
}

function list(table: string): readonly Listed[] {
  const text = execFileSync("nft", ["-j", "-a", "list", "table", ...table.split(" ")], {
    encoding: "utf8",
    maxBuffer: 2 ** 28,
  });
  return (JSON.parse(text) as { readonly nftables: readonly Listed[] }).nftables; // as libnftables-json(5) has it
}

/** Applies a change to a table, such as `ip kube-proxy`. Ignores refusals by the kernel. */
export function meddle(table: string, { kind, index }: Meddling): void {
  const all = list(table);
  const pick = <T>(items: readonly T[]): T | undefined => items[index % items.length];
  const chains = all.flatMap(({ chain }) => (chain === undefined || chain.name.startsWith(EVIL) ? [] : [chain]));
  const sets = all.flatMap(({ set, map }) => {
    const one = set ?? map;
    return one === undefined ? [] : [{ ...one, word: set === undefined ? "map" : "set" }];
  });
  const chain = pick(chains)?.name;
  const other = chains[(index * 7 + 1) % chains.length]?.name;
  const set = pick(sets);
  names += 1;
  const evil = `${EVIL}${names}`;
  const rule = pick(all.flatMap((one) => (one.rule === undefined ? [] : [one.rule])));
  try {
    nft(scriptOf() ?? "");
  } catch {
    // The kernel rejected it: most sets and chains are in use.
  }

  function scriptOf(): string | undefined {
    switch (kind) {
      case "rename":
        return `rename chain ${table} ${chain} ${evil}`;
      case "rename-and-flush":
        return `rename chain ${table} ${chain} ${evil}\nflush chain ${table} ${evil}`;
      case "rename-and-make-again":
        nft(`rename chain ${table} ${chain} ${evil}`);
        return `add chain ${table} ${chain}`;
      case "swap":
        nft(`rename chain ${table} ${chain} ${evil}`);
        nft(`rename chain ${table} ${other === chain ? evil : other} ${chain}`);
        return `rename chain ${table} ${evil} ${other}`;
      case "flush":
        return `flush chain ${table} ${chain}`;
      case "delete-rule":
        return rule && `delete rule ${table} ${rule.chain} handle ${rule.handle}`;
      case "insert-rule":
        return `insert rule ${table} ${chain} counter`;
      case "append-jump":
        return `add chain ${table} ${evil}\nadd rule ${table} ${chain} jump ${evil}`;
      case "add-base-chain":
        return `add chain ${table} ${evil} { type filter hook forward priority 5; policy drop; }`;
      case "add-element":
        return `add element ${table} cluster-ips { ${table.startsWith("ip6") ? "fd00::99" : "192.0.2.99"} }`;
      case "flush-set":
        return set && `flush ${set.word} ${table} ${set.name}`;
      case "delete-elements":
        // The first listed element, in nft's own syntax.
        return set && firstElement(table, set);
      case "policy":
        return `chain ${table} ${pick(chains.filter(({ hook }) => hook !== undefined))?.name} { policy drop; }`;
    }
  }
}

function firstElement(
  table: string,
  { word, name }: { readonly word: string; readonly name: string },
): string | undefined {
  const text = execFileSync("nft", ["list", word, ...table.split(" "), name], { encoding: "utf8" });
  const element = /elements = \{ ([^,}:]+?)(?: comment "[^"]*")?(?: :|,| \})/.exec(text)?.[1];
  return element && `delete element ${table} ${name} { ${element.replace(/ timeout.*/, "")} }`;
}

/** Deletes the chains that {@link meddle} left. @throws if rules of ours lead to one of them. */
export function removeTraces(table: string): void {
  const evil = list(table).flatMap(({ chain }) => (chain?.name.startsWith(EVIL) === true ? [chain.name] : []));
  // They may jump to each other.
  const script = ["flush", "delete"].flatMap((word) => evil.map((name) => `${word} chain ${table} ${name}`));
  if (script.length > 0) nft(script.join("\n"));
}
