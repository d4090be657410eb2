/** Which keys packets can add to a set: its rules' own conditions may be parts of the key. */
import { isDeepStrictEqual } from "node:util";
import { elementOf, type JsonObject, listOf, named, partsOf, textOf } from "../../kernel/nftables/json.ts";
import type { Parts } from "../value.ts";
import type { SetIndex } from "./named-set.ts";

/** Tells each set that packets fill by which rules it is filled. @returns the names of all sets into which rules write */
export function limitAddedKeys(rules: Iterable<JsonObject>, sets: ReadonlyMap<string, SetIndex>): ReadonlySet<string> {
  const written = new Set<string>();
  const adding = new Map<SetIndex, ((key: Parts) => boolean)[]>();
  for (const { expr } of rules) {
    const statements = listOf(expr);
    for (const statement of statements) {
      const { set, map, elem } = writtenIn(statement);
      const name = textOf(set ?? map)?.slice(1);
      if (name === undefined) continue;
      written.add(name);
      const index = sets.get(name);
      if (index?.isFilledByPackets !== true) continue;
      const conditions = statements.map((other) => keyCondition(other, partsOf(elementOf(elem).val), sets));
      adding.set(index, [...(adding.get(index) ?? []), (key) => conditions.every((holds) => holds(key))]);
    }
  }
  for (const [index, rulesOfSet] of adding) index.canAdd = (key) => rulesOfSet.some((canAdd) => canAdd(key));
  return written;
}

/** nft 1.0.6 prints statements that fill maps as text. */
function writtenIn(statement: unknown): JsonObject {
  if (typeof statement !== "string") return named(statement).fields;
  const [, map] = /^(?:add|update|delete) (@\S+) \{/.exec(statement) ?? [];
  return map === undefined ? {} : { map };
}

/** Whether a statement lets a packet through that adds a key, as far as the key tells: `… @sticky-frontends-600`. */
function keyCondition(statement: unknown, added: readonly unknown[], sets: ReadonlyMap<string, SetIndex>) {
  const { op, left, right } = named(statement).fields;
  const index = op === "==" ? sets.get(textOf(right)?.slice(1) ?? "") : undefined;
  const places = partsOf(left).map((part) => added.findIndex((own) => isDeepStrictEqual(own, part)));
  return (key: Parts): boolean => {
    const asked = places.flatMap((at) => key[at] ?? []);
    if (index === undefined || index.isFilledByPackets || index.isUnclear || asked.length < places.length) return true;
    return index.lookup(asked) !== undefined;
  };
}
