/** Accounting counters as rules and metrics use them: a counter exists or does not, and nothing throws over it. */
import type { Logger } from "../../logging/logger.ts";
import type { AccountingCounters } from "./nfacct.ts";

export interface AvailableCounters {
  /** Creates the counter if it is missing; resolves to whether it exists now. Failures are logged. */
  ensure(name: string): Promise<boolean>;
  /** Packets counted so far; `undefined` when there is no such counter. Rejects when the kernel refuses. */
  packets(name: string): Promise<number | undefined>;
}

/** Resolves to `undefined`, with a log line, when the kernel has no accounting objects (reference iptables-operation.md §12.2). */
export async function availableCounters(
  counters: AccountingCounters,
  log: Logger,
): Promise<AvailableCounters | undefined> {
  const probe = await counters.probe();
  if (!probe.available) {
    log.info("Kernel has no nfacct counters, rules are written without them", {
      cannot: "counters of dropped and localhost packets (nfacct)",
      why: probe.reason,
    });
    return undefined;
  }
  return {
    async ensure(name) {
      try {
        await counters.ensure(name);
        return true;
      } catch (error) {
        log.error("Failed to create nfacct counter, the rule is written without it", error, { counter: name });
        return false;
      }
    },
    async packets(name) {
      return (await counters.read(name))?.packets;
    },
  };
}
