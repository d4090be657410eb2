/** What packets may meet but a walk does not follow. */
import type { JsonObject } from "../../kernel/nftables/json.ts";
import type { IpFamily } from "../../net/ip.ts";
import { unreadHooks } from "./hooked.ts";
import { savedAlone } from "./iptables-nft.ts";
import { bodiesOf, type Dump, listedObjects } from "./recognise.ts";

/** In words; empty if all rules that were given are walked. What only packets of some devices meet is not among it. */
export function unwalkedIn(dumps: readonly Dump[], family: IpFamily): string[] {
  const unread = dumps.flatMap((dump) =>
    dump.kind === "unread" && !dump.isOfRules && dump.past === undefined ? [dump.what] : [],
  );
  return [...unread, ...unreadHooks(dumps, family), ...savedAlone(dumps, family), ...unwalkedChains(dumps)];
}

function unwalkedChains(dumps: readonly Dump[]): string[] {
  const objects = listedObjects(dumps);
  const rules = bodiesOf(objects, "rule");
  // Tools such as ebtables leave chains without rules behind.
  const hasSay = ({ family, table, policy }: JsonObject) =>
    policy === "drop" || rules.some((rule) => rule.family === family && rule.table === table);
  return bodiesOf(objects, "chain").flatMap((chain) => {
    const { family, table, name, hook } = chain;
    const isAtBridge = family === "bridge" && hook !== undefined;
    if ((!isAtBridge && hook !== "ingress" && hook !== "egress") || !hasSay(chain)) return [];
    return [`the chain ${name} of the table ${family} ${table} runs at a ${isAtBridge ? "bridge" : "device"}`];
  });
}
