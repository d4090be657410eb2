/** A packet's way through what dumps have, whichever system they are of. */
import type { NodeFacts } from "../facts.ts";
import { walkHostPlan } from "../hns/walk.ts";
import type { TraceNode } from "../netfilter/tree.ts";
import { type WalkOptions, walk } from "../netfilter/walk.ts";
import type { Packet } from "../packet.ts";
import { type DumpOptions, programOfDumps } from "./program.ts";
import type { Dump } from "./recognise.ts";

export interface DumpWalkOptions extends WalkOptions, Pick<DumpOptions, "knowsClients" | "knowsDynamicSets"> {}

/** @param facts of the node that the dumps are of. @throws TooManyWaysError */
export function walkDumps(
  dumps: readonly Dump[],
  packet: Packet,
  facts: NodeFacts,
  options: DumpWalkOptions,
): TraceNode {
  const host = dumps.find((dump) => dump.kind === "hns");
  if (host !== undefined) return walkHostPlan(host.plan, packet, facts, options);
  const { program } = programOfDumps(dumps, { ...options, family: packet.family, facts });
  return walk(program, packet, facts, options);
}
