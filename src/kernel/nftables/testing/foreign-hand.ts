/** Changes by another program in tests: on the in-memory kernel, or on a real one with the `nft` program. */

import type { IpAddress } from "../../../net/ip.ts";
import type { Nftables, NftOperation } from "../nftables.ts";
import type { NftFamily, NftHook, NftRule, NftSet, NftValue } from "../ruleset.ts";

export type ForeignCommand =
  | { readonly kind: "delete-table" }
  | { readonly kind: "flush-chain"; readonly chain: string }
  | { readonly kind: "delete-chain"; readonly chain: string }
  | { readonly kind: "rename-chain"; readonly chain: string; readonly to: string }
  /** Adds a `drop` rule, and the chain if it is missing. */
  | { readonly kind: "add-rule"; readonly chain: string }
  /** Adds a rule that jumps to another chain, and its own chain if it is missing. */
  | { readonly kind: "add-jump"; readonly chain: string; readonly to: string }
  /** Makes the table dormant, and adds it if it is missing. */
  | { readonly kind: "switch-off" }
  /** Sets the policy of a base chain to drop, and adds the chain if it is missing. */
  | { readonly kind: "drop-policy"; readonly chain: string; readonly hook: NftHook }
  | { readonly kind: "delete-set"; readonly set: NftSet }
  | { readonly kind: "delete-element"; readonly set: NftSet; readonly key: readonly NftValue[] }
  /** Adds an element that drops, or that leads to {@link THEIRS}. An empty key means the catch-all element. */
  | { readonly kind: "add-element"; readonly set: NftSet; readonly key: readonly NftValue[] };

/** The target of an element that another program adds. */
const THEIRS = { ip: "192.0.2.99" as IpAddress, port: 99 }; // canonical

/** Carries out a command with another program's handle on the in-memory kernel, which has no operation for renaming. */
export async function foreignInMemory(
  nft: Nftables,
  command: Exclude<ForeignCommand, { kind: "rename-chain" }>,
): Promise<void> {
  await nft.transact(operationsOf(command));
}

function operationsOf(command: Parameters<typeof foreignInMemory>[1]): NftOperation[] {
  switch (command.kind) {
    case "delete-table":
    case "flush-chain":
    case "delete-chain":
      return [command];
    case "add-rule":
      return ruleIn(command.chain, { statements: [{ kind: "verdict", verdict: { kind: "drop" } }] });
    case "add-jump":
      return ruleIn(command.chain, { statements: [{ kind: "verdict", verdict: { kind: "jump", chain: command.to } }] });
    case "switch-off":
      return [{ kind: "add-table", comment: "", isDormant: true }];
    case "drop-policy":
      return [{ kind: "add-chain", chain: { name: command.chain, hook: { ...command.hook, policy: "drop" } } }];
    case "delete-set":
      return [{ kind: "delete-set", set: command.set.name }];
    case "delete-element":
      return [{ kind: "delete-elements", set: command.set, keys: [command.key] }];
    case "add-element": {
      const { set, key } = command;
      const value = set.isMap
        ? { verdict: { kind: "drop" } as const }
        : set.hasTargets === true
          ? { target: THEIRS }
          : {};
      return [{ kind: "add-elements", set, elements: [{ key, ...value }] }];
    }
  }
}

function ruleIn(chain: string, rule: NftRule): NftOperation[] {
  return [
    { kind: "add-chain", chain: { name: chain } },
    { kind: "add-rule", chain, rule },
  ];
}

/** The same command as text for `nft -f -`. */
export function foreignNftText(family: NftFamily, table: string, command: ForeignCommand): string {
  const at = (name: string) => `${family} ${table} ${name}`;
  switch (command.kind) {
    case "delete-table":
      return `delete table ${family} ${table}\n`;
    case "flush-chain":
      return `flush chain ${at(command.chain)}\n`;
    case "delete-chain":
      return `delete chain ${at(command.chain)}\n`;
    case "rename-chain":
      return `rename chain ${at(command.chain)} ${command.to}\n`;
    case "add-rule":
      return `add chain ${at(command.chain)}\nadd rule ${at(command.chain)} drop\n`;
    case "add-jump":
      return `add chain ${at(command.chain)}\nadd rule ${at(command.chain)} jump ${command.to}\n`;
    case "switch-off":
      return `add table ${family} ${table} { flags dormant ; }\n`;
    case "drop-policy": {
      const { type, hook, priority } = command.hook;
      const what = `type ${type} hook ${hook} priority ${priority} ; policy drop ;`;
      return `add chain ${at(command.chain)} { ${what} }\n`;
    }
    case "delete-set":
      return `delete ${command.set.isMap ? "map" : "set"} ${at(command.set.name)}\n`;
    case "delete-element":
      return `delete element ${at(command.set.name)} { ${command.key.join(" . ")} }\n`;
    case "add-element": {
      const { isMap, hasTargets } = command.set;
      const value = isMap ? " : drop" : hasTargets === true ? ` : ${THEIRS.ip} . ${THEIRS.port}` : "";
      return `add element ${at(command.set.name)} { ${command.key.join(" . ") || "*"}${value} }\n`;
    }
  }
}
