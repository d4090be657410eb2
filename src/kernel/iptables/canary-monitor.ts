/**
 * Notices when another program flushes the tables: an empty chain in every table, tested now and then. Reference
 * iptables-operation.md §11. Beyond upstream, the caller may have its own rules tested too, since a flush that
 * leaves the chains (`iptables -F` without `-X`) leaves the canaries.
 */
import type { Logger } from "../../logging/logger.ts";
import type { Iptables, IptablesTable, Presence } from "./iptables.ts";

/** The part of a clock that is used here. */
interface MonitorClock {
  monotonicMs(): number;
  /** Resolves early when the signal aborts; never rejects. */
  sleep(delayMs: number, signal: AbortSignal): Promise<void>;
}

interface CanaryMonitorOptions {
  readonly iptables: Iptables;
  /** Name of the canary chain, the same in every table. */
  readonly chain: string;
  readonly intervalMs: number;
  /** Whether other rules of the caller are still there. @default always present */
  readonly isIntact?: () => Promise<Presence>;
  /** Called on every loss; the canaries are put back when it has finished. Should not reject. */
  readonly onLost: () => void | Promise<void>;
  readonly log: Logger;
  readonly clock: MonitorClock;
}

/** The order in which canaries are created; a flush is noticed in the first. */
const TABLES: readonly IptablesTable[] = ["mangle", "nat", "filter"];
const [WATCHED, ...OTHERS] = ["mangle", "nat", "filter"] as const;

const POLL_MS = 100;
const SETTLE_LIMIT_MS = 5_000;

/**
 * Watches until the signal aborts, then deletes the canaries and resolves. Never rejects: what cannot be tested, because
 * the xtables lock is held or a tool fails, counts as unknown and never as lost.
 */
export async function monitorCanaries(options: CanaryMonitorOptions, signal: AbortSignal): Promise<void> {
  const monitor = new CanaryMonitor(options, signal);
  while (!signal.aborted) {
    if (await monitor.createCanaries()) await monitor.watchUntilLost();
    else await options.clock.sleep(options.intervalMs, signal);
  }
  await monitor.deleteCanaries();
}

class CanaryMonitor {
  readonly #options: CanaryMonitorOptions;
  readonly #signal: AbortSignal;

  constructor(options: CanaryMonitorOptions, signal: AbortSignal) {
    this.#options = options;
    this.#signal = signal;
  }

  /** Resolves to false when a canary could not be made: a half-made set would be taken for a flush. */
  async createCanaries(): Promise<boolean> {
    const { iptables, chain, log } = this.#options;
    for (const table of TABLES) {
      try {
        await iptables.ensureChain(table, chain);
      } catch (error) {
        log.error("Could not set up iptables canary, flushes will go unnoticed until it works", error, {
          table,
          chain,
        });
        return false;
      }
    }
    return true;
  }

  /** Returns after one loss has been reported, or when the signal aborts. */
  async watchUntilLost(): Promise<void> {
    const { clock, intervalMs, log, onLost } = this.#options;
    while (!this.#signal.aborted) {
      await clock.sleep(intervalMs, this.#signal);
      if (this.#signal.aborted) return;
      const loss = await this.#findLoss();
      if (loss === undefined || this.#signal.aborted) continue;
      log.info("Reloading after iptables flush", { lost: loss });
      try {
        await onLost();
      } catch (error) {
        log.error("Reload after iptables flush failed", error);
      }
      return;
    }
  }

  async deleteCanaries(): Promise<void> {
    const { iptables, chain, log } = this.#options;
    for (const table of TABLES) {
      try {
        await iptables.deleteChain(table, chain);
      } catch (error) {
        log.v(2, "Could not delete iptables canary", { table, chain, err: error });
      }
    }
  }

  async #findLoss(): Promise<"canary" | "rules" | undefined> {
    if ((await this.#canaryPresence(WATCHED)) === "absent") {
      await this.#waitForFlushToEnd();
      return "canary";
    }
    if ((await this.#rulesPresence()) !== "absent") return undefined;
    // Asked again, for the program that took the rules may be about to put them back.
    await this.#options.clock.sleep(POLL_MS, this.#signal);
    return (await this.#rulesPresence()) === "absent" ? "rules" : undefined;
  }

  /** A flush goes table by table; reloading in the middle of it would be undone by the rest. */
  async #waitForFlushToEnd(): Promise<void> {
    const { clock, log, chain } = this.#options;
    const deadlineMs = clock.monotonicMs() + SETTLE_LIMIT_MS;
    for (;;) {
      let remaining: IptablesTable | undefined;
      for (const table of OTHERS) {
        if ((await this.#canaryPresence(table)) !== "absent") {
          remaining = table;
          break;
        }
      }
      if (remaining === undefined || this.#signal.aborted) return;
      if (clock.monotonicMs() >= deadlineMs) {
        log.warn("Inconsistent iptables state detected: the canary is gone from one table but not from others", {
          chain,
          gone: WATCHED,
          remaining,
        });
        return;
      }
      await clock.sleep(POLL_MS, this.#signal);
    }
  }

  async #canaryPresence(table: IptablesTable): Promise<Presence> {
    const { iptables, chain } = this.#options;
    return await this.#presence("canary", () => iptables.chainPresence(table, chain));
  }

  async #rulesPresence(): Promise<Presence> {
    const { isIntact } = this.#options;
    return isIntact === undefined ? "present" : await this.#presence("rules", isIntact);
  }

  async #presence(what: string, test: () => Promise<Presence>): Promise<Presence> {
    try {
      return await test();
    } catch (error) {
      this.#options.log.error("Could not test for an iptables flush", error, { what });
      return "unknown";
    }
  }
}
