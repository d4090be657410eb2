/** A packet that the kernel traced, in the form of a simulated path: stages, base chains, rules with number and text. */
import { NFPROTO_IPV4, NFPROTO_IPV6 } from "../../kernel/netlink/nfnetlink.ts";
import { isOpeningSegment, type PacketEnds, packetEnds } from "../../kernel/nftables/tracing/packet-headers.ts";
import type { TraceEvent as KernelEvent } from "../../kernel/nftables/tracing/trace-event.ts";
import { TRACE_TABLE } from "../../kernel/nftables/tracing/trace-table.ts";
import type { IpFamily } from "../../net/ip.ts";
import { type BaseChain, type Program, type Rule, type Stage, usualRefusal } from "../netfilter/program.ts";
import type { Fate, TraceEvent } from "../netfilter/tree.ts";
import { NAMES } from "../nftables/constant.ts";
import { CONNECTION_STATES, type ConnectionState, newPacket, ofKnownConnection, type Packet } from "../packet.ts";
import type { ObservedPacket, ObservedVisit } from "./observed.ts";
import type { Way } from "./way.ts";

/** What is known about the ruleset besides the text of its rules. */
export interface RulePlaces {
  /** Hook and priority of a base chain; undefined if the table has changed in the meantime. */
  hookOf(
    family: number,
    table: string,
    chain: string,
  ): { readonly stage: Stage; readonly priority: number } | undefined;
  /** Index of a rule in its chain, from 0; undefined if it is gone. */
  indexOf(family: number, table: string, chain: string, handle: number): number | undefined;
  interfaceName(index: number): string | undefined;
}

export interface ObservedFlow {
  readonly family: IpFamily;
  readonly protocol: string;
}

/** The path of the packet through the kernel. */
export interface ObservedWay extends Way {
  /** The packet before the first hook. */
  readonly first: Packet;
}

const NF_QUEUE = 3;
const NFT_CONTINUE = -1;
const VERDICTS: Readonly<Record<number, string>> = {
  [NFT_CONTINUE]: "goes on",
  [-2]: "goes on",
  [-3]: "jump",
  [-4]: "goto",
  [-5]: "return",
  0: "drop",
  1: "accept",
  2: "taken",
  [NF_QUEUE]: "queue",
};
const FAMILY_NAMES: Readonly<Record<number, string>> = { 1: "inet", [NFPROTO_IPV4]: "ip", [NFPROTO_IPV6]: "ip6" };
const SENT_BY_NODE = "";

/** @param program the rules that the packet met. @returns undefined if the packet's headers cannot be read. */
export function observedWay(
  packet: ObservedPacket,
  flow: ObservedFlow,
  program: Program,
  places: RulePlaces,
): ObservedWay | undefined {
  const hasPorts = !flow.protocol.startsWith("icmp");
  const endsOf = (visit: ObservedVisit): PacketEnds | undefined => packetEnds(visit.headers, hasPorts);
  const [firstVisit] = packet.visits;
  const ends = firstVisit === undefined ? undefined : endsOf(firstVisit);
  if (firstVisit === undefined || ends === undefined) return undefined;
  const nameOf = (index: number | undefined): string | undefined =>
    index === undefined ? undefined : (places.interfaceName(index) ?? `interface ${index}`);
  const asked = newPacket({
    ...flow,
    ...ends,
    inInterface: nameOf(firstVisit.headers.inInterface) ?? SENT_BY_NODE,
    mark: firstVisit.mark,
    state: stateOf(packet, flow),
  });
  const lastEnds = packet.visits.map(endsOf).findLast((one) => one !== undefined) ?? ends;
  const first = isFirstOfConnection(packet, program, asked.state) ? asked : ofKnownConnection(asked, lastEnds);
  const events: TraceEvent[] = [];
  let last = first;
  for (const visit of packet.visits) {
    last = moved(last, first, endsOf(visit) ?? last, visit, nameOf(visit.headers.outInterface));
    const hook = places.hookOf(visit.family, visit.table, visit.chain);
    if (hook === undefined) continue;
    if (hook.stage !== lastOf("stage", events)?.stage) events.push({ kind: "stage", stage: hook.stage, packet: last });
    if (visit.table === TRACE_TABLE) continue;
    const base = baseChain(visit, hook, program);
    events.push({ kind: "base-chain", chain: base }, ...visit.events.flatMap((event) => stepOf(event, base, places)));
  }
  return { first, events, fate: fateOf(packet.end, events, last), packet: last };
}

/** The packet as a later hook sees it. */
function moved(
  packet: Packet,
  { source, destination, destinationPort }: Packet,
  ends: PacketEnds,
  { mark }: ObservedVisit,
  outInterface: string | undefined,
): Packet {
  return {
    ...packet,
    ...ends,
    mark,
    outInterface: outInterface ?? "",
    isDestinationTranslated: ends.destination !== destination || ends.destinationPort !== destinationPort,
    isSourceTranslated: ends.source !== source,
  };
}

/** The connection-tracking state, if the kernel reports it; otherwise inferred from the packet. */
function stateOf({ visits }: ObservedPacket, { protocol }: ObservedFlow): ConnectionState {
  const bits = visits.find(({ connection }) => connection !== undefined)?.connection?.state;
  if (bits !== undefined) return CONNECTION_STATES.find((name) => name === NAMES.state?.[bits]) ?? "invalid";
  const [first] = visits;
  if (protocol === "tcp") return first !== undefined && isOpeningSegment(first.headers) ? "new" : "established";
  return "new";
}

/** Only the first packet of a connection meets nat chains; all packets of it are `new` until one is answered. */
function isFirstOfConnection({ visits }: ObservedPacket, program: Program, state: ConnectionState): boolean {
  if (state !== "new" && state !== "related") return false;
  const chains = Object.values(program).flat();
  const natChains = new Set(chains.filter(({ type }) => type === "nat").map(({ chain }) => chain.name));
  return natChains.size === 0 || visits.some(({ chain }) => natChains.has(chain));
}

function lastOf<K extends TraceEvent["kind"]>(kind: K, events: readonly TraceEvent[]) {
  return events.findLast((event): event is TraceEvent & { readonly kind: K } => event.kind === kind);
}

/** The fate of the packet after these events. */
function fateOf(end: ObservedPacket["end"], events: readonly TraceEvent[], packet: Packet): Fate {
  switch (end) {
    case "sent":
    case "delivered":
      return { kind: end };
    case "dropped": {
      const [policy, rule] = [lastOf("policy", events)?.chain, lastOf("match", events)];
      if (policy !== undefined) return { kind: "dropped", by: `the policy of ${policy.table} ${policy.chain.name}` };
      if (rule === undefined) return { kind: "dropped", by: "a rule that is gone" };
      const { text } = rule.rule;
      const table = lastOf("base-chain", events)?.chain.table;
      const by = `${table} ${rule.chain} rule ${Math.max(rule.index, 0) + 1}: ${text}`;
      const answer = refusalIn(text, packet);
      return answer === undefined ? { kind: "dropped", by } : { kind: "refused", answer, by };
    }
    case "vanished": {
      const where = lastOf("stage", events)?.stage ?? "the first hook";
      const because = events.some((event) => event.kind === "match" && event.said === VERDICTS[NF_QUEUE])
        ? `a rule of ${where} hands it to another program`
        : `after ${where} the kernel reports nothing more: routing, reverse path filtering, IPVS or another part has taken it`;
      return { kind: "uncertain", because };
    }
  }
}

function stepOf(
  { kind, family, table, chain, handle, verdict }: KernelEvent,
  base: BaseChain,
  places: RulePlaces,
): TraceEvent[] {
  if (kind === "policy" && verdict.code === 0) return [{ kind, chain: base }];
  if (kind !== "rule" || handle === undefined) return [];
  const index = places.indexOf(family, table, chain, handle);
  const found = index === undefined ? undefined : base.chainNamed(chain)?.ruleAt(index);
  const rule: Rule = found ?? { text: `a rule that is not known (handle ${handle})`, steps: [] };
  const word = VERDICTS[verdict.code ?? NFT_CONTINUE] ?? `verdict ${verdict.code}`;
  const said = verdict.chain === undefined ? word : `${word} ${verdict.chain}`;
  return [{ kind: "match", chain, index: index ?? -1, rule, said }];
}

/** The program's base chain, so that it prints under the same name; a stub with only the name if there is none. */
function baseChain(
  { family, table, chain: name }: ObservedVisit,
  { stage, priority }: { readonly stage: Stage; readonly priority: number },
  program: Program,
): BaseChain {
  const prefix = FAMILY_NAMES[family] ?? `family ${family}`;
  const own = `${prefix} ${table}`;
  const labels = [own, `${prefix === "ip6" ? "ip6tables" : "iptables"} -t ${table}`];
  const known = program[stage].find(({ table: label, chain }) => chain.name === name && labels.includes(label));
  if (known !== undefined) return known;
  const chain = { name, length: 0, ruleAt: () => undefined };
  return { table: own, type: "filter", stage, priority, policy: "accept", chain, chainNamed: () => undefined };
}

/** What the sender gets from a rule that rejects; undefined for other rules. */
function refusalIn(text: string, packet: Packet): string | undefined {
  const [, answer] = /(?:--reject-with|\breject with) (\S+(?: (?:type )?[a-z-]+)?)/.exec(text) ?? [];
  if (answer !== undefined) return answer;
  return /\breject\b|-j REJECT\b/.test(text) ? usualRefusal(packet) : undefined;
}
