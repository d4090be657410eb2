/** A connection tracking table in memory, for tests. */

import type { ConntrackTable, TrackedFlow } from "../../../src/kernel/conntrack/conntrack.ts";
import { type Flow, isSameFlow } from "../../../src/net/flow.ts";
import { familyOf, type IpFamily } from "../../../src/net/ip.ts";

export interface MemoryConntrack extends ConntrackTable {
  /** The kernel has one entry per original tuple: adding one replaces an older one. */
  add(flow: TrackedFlow): void;
  /** The contents of the table, in order of appearance. */
  readonly flows: readonly TrackedFlow[];
}

export function memoryConntrack(initial: Iterable<TrackedFlow> = []): MemoryConntrack {
  const entries = new Map<string, TrackedFlow>();
  const add = (flow: TrackedFlow): void => void entries.set(originalKey(flow), flow);
  for (const flow of initial) add(flow);
  return {
    add,
    get flows() {
      return [...entries.values()];
    },
    async readFlows(family: IpFamily, { protocol, isUnanswered }, begin) {
      const visit = begin();
      for (const flow of [...entries.values()]) {
        const isWanted = (protocol ?? flow.protocol) === flow.protocol && !(isUnanswered && flow.isAnswered !== false);
        if (familyOf(flow.sourceIP) === family && isWanted) visit(flow);
      }
      return true;
    },
    async deleteFlow(family, flow) {
      const key = originalKey(flow);
      const found = entries.get(key);
      if (found === undefined || familyOf(found.sourceIP) !== family || !isSameFlow(found, flow)) return false;
      return entries.delete(key);
    },
  };
}

function originalKey(flow: Flow): string {
  return `${flow.protocol} ${flow.sourceIP} ${flow.sourcePort} ${flow.destinationIP} ${flow.destinationPort}`;
}
