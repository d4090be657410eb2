/**
 * Simulates packets in the planner's own nftables tables, with nothing else on the node. It reads the JSON that `render -o json`
 * prints and nft lists, so that the walk sees what reaches the kernel.
 */
import { type NftTable, tableJson } from "../../kernel/nftables/ruleset-table.ts";
import type { NodeFacts } from "../facts.ts";
import { programOf } from "../netfilter/calling-order.ts";
import type { Entry } from "../netfilter/program.ts";
import { type Outcome, outcomesOf, type TraceNode, type WalkOptions } from "../netfilter/tree.ts";
import { walk } from "../netfilter/walk.ts";
import { readNftRuleset } from "../nftables/ruleset.ts";
import { newPacket, type PacketQuestion } from "../packet.ts";

export interface NftSimulation {
  /** Every path that the packet can take. @throws TooManyWaysError */
  trace(packet: PacketQuestion, options?: WalkOptions): TraceNode;
  /** Only the ends of these paths, with their odds. */
  outcomes(packet: PacketQuestion): readonly Outcome[];
  /** Adds what a packet wrote into a set (`Outcome.entries`), for later packets. */
  remember(entry: Entry): void;
}

/** Compiles a table once, for many packets. */
export function simulateTable(table: NftTable, facts: NodeFacts): NftSimulation {
  const family = table.family === "ip" ? "IPv4" : "IPv6";
  const ruleset = readNftRuleset(tableJson(table), { family, facts });
  const program = programOf(ruleset.chains);
  return {
    trace: (packet, options) => walk(program, newPacket(packet), facts, options),
    outcomes: (packet) => [...outcomesOf(walk(program, newPacket(packet), facts, { record: "ends" }))],
    remember: (entry) => ruleset.remember(entry),
  };
}
