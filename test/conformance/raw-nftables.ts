/**
 * All that the kernel holds of a table, as text that is equal for equal tables: expressions, types, flags and user data, byte
 * for byte. Finer than any listing of nft's. What differs between equal tables is left out: handles, the order of elements,
 * the numbers in the names of anonymous sets, and this program's marks on its rules.
 */
import { inspect } from "node:util";
import { NFT_SET_ANONYMOUS } from "../../src/kernel/nftables/wire/constants.ts";
import type { NftExpression } from "../../src/kernel/nftables/wire/expressions.ts";
import type { NftablesClient } from "../../src/kernel/nftables/wire/nftables-client.ts";
import { commentOf } from "../../src/kernel/nftables/wire/userdata.ts";

/** @returns a line per object, sorted but for the rules of a chain; nothing when there is no table. */
export async function rawTable(client: NftablesClient, nfproto: number, table: string): Promise<string> {
  const found = (await client.tables(nfproto)).find(({ name }) => name === table);
  if (found === undefined) return "";
  const { handle: _, ...head } = found;
  const lines: string[] = [`table ${plain(head)}`];
  const anonymous = new Map<string, string>();
  for (const { name = "", handle: _, elementCount: _count, ...set } of await client.sets(nfproto, table)) {
    const elements = (await client.elements(nfproto, table, name)).map(plain).sort();
    const text = `${plain(set)} { ${elements.join(", ")} }`;
    if (((set.flags ?? 0) & NFT_SET_ANONYMOUS) !== 0) anonymous.set(name, text);
    else lines.push(`set ${name}: ${text}`);
  }
  for (const { handle: _, ...chain } of await client.chains(nfproto, table)) lines.push(`chain ${plain(chain)}`);
  const rules = new Map<string, string[]>();
  for (const { chain = "", expressions = [], userdata } of await client.rules(nfproto, table)) {
    const list = rules.get(chain) ?? [];
    const body = expressions.map((expression) => plain(withSet(expression, anonymous)));
    list.push(`rule ${chain} ${list.length}: ${body.join("; ")} comment ${commentOf(userdata)}`);
    rules.set(chain, list);
  }
  return `${[...lines.sort(), ...[...rules.keys()].sort().flatMap((chain) => rules.get(chain) ?? [])].join("\n")}\n`;
}

function withSet(expression: NftExpression, anonymous: ReadonlyMap<string, string>): NftExpression {
  if (expression.kind !== "lookup" || expression.set === undefined) return expression;
  return { ...expression, set: anonymous.get(expression.set) ?? expression.set };
}

function plain(value: unknown): string {
  const hex = JSON.parse(
    JSON.stringify(value, (_, item) => (item instanceof Uint8Array ? Buffer.from(item).toString("hex") : item)),
  );
  return inspect(hex, {
    depth: null,
    breakLength: Number.POSITIVE_INFINITY,
    sorted: true,
    maxStringLength: null,
    maxArrayLength: null,
  });
}
