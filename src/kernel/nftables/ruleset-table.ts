/** A whole table as data, built from operations. */
import type { NftOperation } from "./nftables.ts";
import type { NftChain, NftElement, NftFamily, NftRule, NftSet } from "./ruleset.ts";
import { chainJson, counterJson, type Json, ruleJson, setJson } from "./ruleset-json.ts";

export interface NftTable {
  readonly family: NftFamily;
  readonly name: string;
  readonly comment: string;
  /** The names of named counters. */
  readonly counters: readonly string[];
  readonly sets: readonly { readonly set: NftSet; readonly elements: readonly NftElement[] }[];
  readonly chains: readonly NftChain[];
}

/**
 * The table that these operations create, its objects in the order in which they are added. As in the kernel, adding an object again
 * changes nothing.
 * @throws RangeError for operations that delete, and for rules and elements of chains and sets that do not exist.
 */
export function tableOf(family: NftFamily, name: string, operations: readonly NftOperation[]): NftTable {
  let comment = "";
  const counters = new Set<string>();
  const sets = new Map<string, { set: NftSet; elements: NftElement[] }>();
  const chains = new Map<string, NftChain & { rules: NftRule[] }>();
  for (const operation of operations) {
    switch (operation.kind) {
      case "add-table":
        comment = operation.comment;
        break;
      case "add-counter":
        counters.add(operation.counter);
        break;
      case "add-set":
        if (!sets.has(operation.set.name)) sets.set(operation.set.name, { set: operation.set, elements: [] });
        break;
      case "add-chain":
        if (!chains.has(operation.chain.name)) chains.set(operation.chain.name, { ...operation.chain, rules: [] });
        break;
      case "add-rule":
        known(chains, operation.chain, operation).rules.push(operation.rule);
        break;
      case "add-elements":
        for (const element of operation.elements) known(sets, operation.set.name, operation).elements.push(element);
        break;
      default:
        throw new RangeError(`nftables: ${operation.kind} where there is nothing yet`);
    }
  }
  return { family, name, comment, counters: [...counters], sets: [...sets.values()], chains: [...chains.values()] };
}

function known<T>(objects: ReadonlyMap<string, T>, name: string, { kind }: NftOperation): T {
  const found = objects.get(name);
  if (found === undefined) throw new RangeError(`nftables: ${kind} to ${JSON.stringify(name)}, which does not exist`);
  return found;
}

/**
 * The table in libnftables' JSON schema, as `nft -j list ruleset` prints it, but without handles, and in an order that
 * `nft -j -f` can read back: chains come before the rules and elements that go to them.
 */
export function tableJson({ family, name, counters, sets, chains }: NftTable): Json[] {
  const table = { family, table: name };
  return [
    { table: { family, name } },
    ...counters.map((counter) => counterJson(table, counter)),
    ...chains.map((chain) => chainJson(table, chain)),
    ...sets.map(({ set, elements }) => setJson(table, set, elements)),
    ...chains.flatMap((chain) => chain.rules.map((rule) => ruleJson(table, chain.name, rule))),
  ];
}

/** The document that `nft -j -f` reads. @param objects those of one or more tables. */
export function libnftablesJson(objects: readonly unknown[]): unknown {
  return { nftables: [{ metainfo: { json_schema_version: 1 } }, ...objects] };
}
