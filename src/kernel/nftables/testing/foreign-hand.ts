/** What another program does to the table in tests: on a kernel in memory, or on a real one with the `nft` program. */

import type { IpAddress } from "../../../net/ip.ts";
import type { Nftables, NftOperation } from "../nftables.ts";
import type { NftFamily, NftHook, NftRule, NftSet, NftValue } from "../ruleset.ts";

export type ForeignCommand =
  | { readonly kind: "delete-table" }
  | { readonly kind: "flush-chain"; readonly chain: string }
  | { readonly kind: "delete-chain"; readonly chain: string }
  | { readonly kind: "rename-chain"; readonly chain: string; readonly to: string }
  /** A rule `drop`; the chain is made if need be. */
  | { readonly kind: "add-rule"; readonly chain: string }
  /** A rule that jumps to another chain; the chain is made if need be. */
  | { readonly kind: "add-jump"; readonly chain: string; readonly to: string }
  /** Makes the table if need be. */
  | { readonly kind: "switch-off" }
  /** The policy of a base chain, which is made if need be. */
  | { readonly kind: "drop-policy"; readonly chain: string; readonly hook: NftHook }
  | { readonly kind: "delete-set"; readonly set: NftSet }
  | { readonly kind: "delete-element"; readonly set: NftSet; readonly key: readonly NftValue[] }
  /** That drops, or leads to a target of its own. An empty key: the element that catches all. */
  | { readonly kind: "add-element"; readonly set: NftSet; readonly key: readonly NftValue[] };

/** Where an element that another program made leads to. */
const THEIRS = { ip: "192.0.2.99" as IpAddress, port: 99 }; // canonical

/** Does it with a handle of another program's on a kernel in memory: all but renaming, which this project has no operation for. */
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

/** The same as text for `nft -f -`. Pure. */
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
