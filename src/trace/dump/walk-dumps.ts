/** A packet's path through dumps of any operating system. */
import type { IpFamily } from "../../net/ip.ts";
import type { NodeFacts } from "../facts.ts";
import type { TraceNode, WalkOptions } from "../netfilter/tree.ts";
import { walk } from "../netfilter/walk.ts";
import type { Packet } from "../packet.ts";
import { type DumpOptions, programOfDumps } from "./program.ts";
import type { Dump } from "./recognise.ts";

type Knowledge = Pick<DumpOptions, "knowsClients" | "knowsDynamicSets">;

/** A walk for many packets of one family. @param facts about the node that printed the dumps. */
export function walkerOf(
  dumps: readonly Dump[],
  family: IpFamily,
  facts: NodeFacts,
  knowledge: Knowledge,
): (packet: Packet, options: WalkOptions) => TraceNode {
  const host = dumps.find((dump) => dump.kind === "walker");
  if (host !== undefined) return (packet, options) => host.walk(packet, facts, options);
  const { program } = programOfDumps(dumps, { ...knowledge, family, facts });
  return (packet, options) => walk(program, packet, facts, options);
}

/** @param facts about the node that printed the dumps. @throws TooManyWaysError */
export function walkDumps(
  dumps: readonly Dump[],
  packet: Packet,
  facts: NodeFacts,
  options: WalkOptions & Knowledge,
): TraceNode {
  return walkerOf(dumps, packet.family, facts, options)(packet, options);
}
