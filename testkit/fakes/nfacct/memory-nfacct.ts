/** Accounting counters in memory: for tests, and for runs without a kernel. */
import { type AccountingCounters, type CounterValue, checkCounterName } from "../../../src/kernel/nfacct/nfacct.ts";

export interface MemoryCounters extends AccountingCounters {
  /** Counts traffic, as a rule that names the counter would. Throws when there is no such counter. */
  count(name: string, packets: number, bytes: number): void;
}

/** `options.unavailable` makes it a kernel without accounting, which refuses everything for that reason. */
export function memoryCounters(options: { readonly unavailable?: string } = {}): MemoryCounters {
  const counters = new Map<string, CounterValue>();
  const { unavailable } = options;
  const check = (name: string): void => {
    checkCounterName(name);
    if (unavailable !== undefined) throw new Error(unavailable);
  };
  return {
    async ensure(name) {
      check(name);
      if (!counters.has(name)) counters.set(name, { packets: 0, bytes: 0 });
    },
    async read(name) {
      check(name);
      return counters.get(name);
    },
    count(name, packets, bytes) {
      const old = counters.get(name);
      if (old === undefined) throw new Error(`no accounting counter ${name}`);
      counters.set(name, { packets: old.packets + packets, bytes: old.bytes + bytes });
    },
  };
}
