/** Chains that packets may meet but a walk does not follow. */
import { isObject } from "../../kernel/nftables/json.ts";
import type { Dump } from "./recognise.ts";

/** The first such chain that may decide something, in words; undefined if there is none. */
export function unwalkedChain(dumps: readonly Dump[]): string | undefined {
  const objects = dumps.flatMap((dump) => (dump.kind === "nftables" ? dump.objects.filter(isObject) : []));
  const [chains, rules] = [objects.map(({ chain }) => chain), objects.map(({ rule }) => rule)];
  // Tools such as ebtables leave chains without rules behind.
  const hasSay = ({ family, table, policy }: Readonly<Record<string, unknown>>) =>
    policy === "drop" || rules.some((rule) => isObject(rule) && rule.family === family && rule.table === table);
  for (const chain of chains.filter(isObject)) {
    const { family, table, name, hook } = chain;
    const isAtBridge = family === "bridge" && hook !== undefined;
    if ((!isAtBridge && hook !== "ingress" && hook !== "egress") || !hasSay(chain)) continue;
    return `the chain ${name} of the table ${family} ${table} runs at a ${isAtBridge ? "bridge" : "device"}`;
  }
  return undefined;
}
