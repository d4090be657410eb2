/**
 * Detects when another program flushes the tables: regularly checks an empty canary chain in every table. Reference
 * iptables-operation.md §11. Beyond upstream, it can check the caller's own rules too, because a flush that keeps the
 * chains (`iptables -F` without `-X`) keeps the canaries.
 */
import type { Clock } from "../../async/clock.ts";
import type { Logger } from "../../logging/logger.ts";
import type { Iptables, IptablesTable, Presence } from "./iptables.ts";
import { chainLines, transactionText } from "./rule-text.ts";

interface CanaryMonitorOptions {
  readonly iptables: Iptables;
  /** Name of the canary chain, the same in every table. */
  readonly chain: string;
  readonly intervalMs: number;
  /** Whether the caller's other rules are still present. @default always present */
  readonly isIntact?: () => Promise<Presence>;
  /** Called on every loss; the canaries are recreated after it resolves. Should not reject. */
  readonly onLost: () => void | Promise<void>;
  readonly log: Logger;
  readonly clock: Pick<Clock, "monotonicMs" | "sleep">;
}

/** In creation order; a flush is detected in the first table. */
const TABLES = ["mangle", "nat", "filter"] as const;
const [WATCHED, ...OTHERS] = TABLES;

const POLL_MS = 100;
const SETTLE_LIMIT_MS = 5_000;

/**
 * Watches until the signal aborts, then deletes the canaries and resolves. Never rejects: if a check fails because the
 * xtables lock is held or a tool fails, presence is unknown and does not count as a loss.
 */
export async function monitorCanaries(options: CanaryMonitorOptions, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    if (await createCanaries(options)) await watchUntilLost(options, signal);
    else await options.clock.sleep(options.intervalMs, signal);
  }
  await deleteCanaries(options);
}

/** Resolves to false if a canary could not be created: the monitor would mistake an incomplete set for a flush. */
async function createCanaries({ iptables, chain, log }: CanaryMonitorOptions): Promise<boolean> {
  try {
    await iptables.restore(TABLES.map((table) => transactionText(table, chainLines([chain]))));
    return true;
  } catch (error) {
    log.error("Could not set up iptables canary, flushes will go unnoticed until it works", error, { chain });
    return false;
  }
}

/** Returns after it has reported one loss, or when the signal aborts. */
async function watchUntilLost(options: CanaryMonitorOptions, signal: AbortSignal): Promise<void> {
  const { clock, intervalMs, log, onLost } = options;
  while (!signal.aborted) {
    await clock.sleep(intervalMs, signal);
    if (signal.aborted) return;
    const loss = await findLoss(options, signal);
    if (loss === undefined || signal.aborted) continue;
    log.info("Reloading after iptables flush", { lost: loss });
    try {
      await onLost();
    } catch (error) {
      log.error("Reload after iptables flush failed", error);
    }
    return;
  }
}

async function deleteCanaries({ iptables, chain, log }: CanaryMonitorOptions): Promise<void> {
  for (const table of TABLES) {
    try {
      await iptables.deleteChain(table, chain);
    } catch (error) {
      log.v(2, "Could not delete iptables canary", { table, chain, err: error });
    }
  }
}

async function findLoss(options: CanaryMonitorOptions, signal: AbortSignal): Promise<"canary" | "rules" | undefined> {
  if ((await canaryPresence(options, WATCHED)) === "absent") {
    await waitForFlushToEnd(options, signal);
    return "canary";
  }
  if ((await rulesPresence(options)) !== "absent") return undefined;
  // Check twice: the program that removed the rules may be about to restore them.
  await options.clock.sleep(POLL_MS, signal);
  return (await rulesPresence(options)) === "absent" ? "rules" : undefined;
}

/** A flush goes table by table; the rest of it would undo a reload that starts in between. */
async function waitForFlushToEnd(options: CanaryMonitorOptions, signal: AbortSignal): Promise<void> {
  const { clock, log, chain } = options;
  const deadlineMs = clock.monotonicMs() + SETTLE_LIMIT_MS;
  for (;;) {
    const remaining = await firstWithCanary(options);
    if (remaining === undefined || signal.aborted) return;
    if (clock.monotonicMs() >= deadlineMs) {
      const facts = { chain, gone: WATCHED, remaining };
      log.warn("Inconsistent iptables state detected: the canary is gone from one table but not from others", facts);
      return;
    }
    await clock.sleep(POLL_MS, signal);
  }
}

async function firstWithCanary(options: CanaryMonitorOptions): Promise<IptablesTable | undefined> {
  for (const table of OTHERS) if ((await canaryPresence(options, table)) !== "absent") return table;
  return undefined;
}

async function canaryPresence(options: CanaryMonitorOptions, table: IptablesTable): Promise<Presence> {
  return await presence(options, "canary", () => options.iptables.chainPresence(table, options.chain));
}

async function rulesPresence(options: CanaryMonitorOptions): Promise<Presence> {
  const { isIntact } = options;
  return isIntact === undefined ? "present" : await presence(options, "rules", isIntact);
}

async function presence({ log }: CanaryMonitorOptions, what: string, test: () => Promise<Presence>): Promise<Presence> {
  try {
    return await test();
  } catch (error) {
    log.error("Could not test for an iptables flush", error, { what });
    return "unknown";
  }
}
