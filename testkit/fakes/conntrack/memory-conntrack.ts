/** A connection tracking table in memory: for tests. */

import type { ConntrackTable } from "../../../src/kernel/conntrack/conntrack.ts";
import { isSameFlow } from "../../../src/kernel/conntrack/ctnetlink.ts";
import { familyOf, type IpFamily } from "../../../src/net/ip.ts";
import type { UdpFlow } from "../../../src/net/udp-flow.ts";

export interface MemoryConntrack extends ConntrackTable {
  /** The kernel has one entry per original tuple: an older one with the same is replaced. */
  add(flow: UdpFlow): void;
  /** What is in the table, in order of appearance. */
  readonly flows: readonly UdpFlow[];
}

export function memoryConntrack(initial: Iterable<UdpFlow> = []): MemoryConntrack {
  const entries = new Map<string, UdpFlow>();
  const add = (flow: UdpFlow): void => void entries.set(originalKey(flow), flow);
  for (const flow of initial) add(flow);
  return {
    add,
    get flows() {
      return [...entries.values()];
    },
    async forEachUdpFlow(family: IpFamily, visit) {
      for (const flow of [...entries.values()]) if (familyOf(flow.sourceIP) === family) visit(flow);
    },
    async deleteUdpFlow(family, flow) {
      const key = originalKey(flow);
      const found = entries.get(key);
      if (found === undefined || familyOf(found.sourceIP) !== family || !isSameFlow(found, flow)) return false;
      return entries.delete(key);
    },
  };
}

function originalKey(flow: UdpFlow): string {
  return `${flow.sourceIP} ${flow.sourcePort} ${flow.destinationIP} ${flow.destinationPort}`;
}
