/**
 * The work between syncs: watches devices and addresses, periodically compares the kernel with the wanted state, and
 * removes draining real servers whose connections have ended.
 */

import type { IpAddress } from "../../net/ip.ts";
import { restAfterLook } from "../shared/look-rest.ts";
import type { Reconciler } from "../shared/reconciler.ts";
import { GRACE_PERIOD_MS, type GracefulTermination } from "./graceful-termination.ts";
import { DUMMY_DEVICE } from "./names.ts";
import { equalAddressFacts, type IpvsFacts, nodeAddressFacts } from "./node-facts.ts";
import type { IpvsOptions } from "./options.ts";
import type { IpvsKinds } from "./wanted.ts";

/** The debounce period: a pod that starts or ends causes several notifications; our changes of IPv6 addresses cause some, too. */
const SETTLE_MS = 1000;
/** Once so many verifications in a row have given way to syncs, the waiting sync becomes a full one. */
const PATIENCE = 5;

interface WatchOptions extends IpvsOptions {
  readonly reconciler: Reconciler<IpvsKinds, IpvsFacts>;
  readonly graceful: GracefulTermination;
  /** Whether the kernel rejected the binding of the address. */
  isInDoubt(address: IpAddress): boolean;
  /** Compares the kernel with the wanted state. @returns the number of differences by kind; undefined if there are none. */
  damage(signal: AbortSignal): Promise<Readonly<Record<string, number>> | undefined>;
}

export class Watch {
  readonly #options: WatchOptions;
  #verification: AbortController | undefined;
  /** Verifications that gave way since the last completed one. */
  #gaveWay = 0;

  constructor(options: WatchOptions) {
    this.#options = options;
  }

  /** Aborts a running verification, because a sync is waiting. It is repeated later. */
  giveWay(): void {
    this.#verification?.abort();
  }

  /**
   * Runs until the signal aborts. Rejects if devices cannot be watched.
   *
   * @param onLost another program destroyed something: a full sync is needed. @param requestSync the node's addresses changed.
   */
  async run(onLost: () => void, requestSync: () => void, signal: AbortSignal): Promise<void> {
    const { verifyPeriodMs, graceful } = this.#options;
    const stop = new AbortController();
    const ended = AbortSignal.any([signal, stop.signal]);
    const loops = [
      this.#watchLinks(() => this.#checkLinks(onLost, requestSync), ended),
      this.#repeat(verifyPeriodMs, "comparing the kernel with the wanted state", ended, () =>
        this.#verify(onLost, requestSync, ended),
      ),
      this.#repeat(GRACE_PERIOD_MS, "removing real servers without connections", ended, () =>
        graceful.removeIdle(ended),
      ),
    ];
    try {
      await Promise.all(loops);
    } finally {
      stop.abort();
      await Promise.allSettled(loops);
    }
  }

  async #watchLinks(look: () => Promise<void>, signal: AbortSignal): Promise<void> {
    const { links, clock } = this.#options;
    let isChecking = false;
    const check = async (): Promise<void> => {
      await clock.sleep(SETTLE_MS, signal);
      await this.#inTurn("checking devices and addresses", async () => {
        isChecking = false;
        if (!signal.aborted) await look();
      });
    };
    const onChange = (): void => {
      if (isChecking) return;
      isChecking = true;
      checks = checks.then(check);
    };
    // Changes from before the watch were not seen.
    isChecking = true;
    let checks = check();
    try {
      await links.watch(onChange, signal);
    } finally {
      await checks;
    }
  }

  async #checkLinks(onLost: () => void, requestSync: () => void): Promise<void> {
    const { config, links, nodePortAddresses, reconciler, isInDoubt, log } = this.#options;
    const { known: facts, wanted } = reconciler;
    if (facts === undefined) return;
    const found = nodeAddressFacts(await links.addresses(config.family), nodePortAddresses);
    const missing = [...wanted.of.addresses.entries()].filter(
      ([, { value }]) => !found.bound.has(value) && !isInDoubt(value),
    );
    if (missing.length > 0) {
      await this.#tell(`removed addresses from ${DUMMY_DEVICE}`, { addresses: missing.length });
      onLost();
    } else if (!equalAddressFacts(found, facts)) {
      log.info("The addresses of the node have changed", { nodePortAddresses: found.nodePortIPs.join(", ") });
      reconciler.forget();
      requestSync();
    }
  }

  async #verify(onLost: () => void, requestSync: () => void, signal: AbortSignal): Promise<void> {
    const { reconciler } = this.#options;
    if (reconciler.hasRefused && reconciler.known !== undefined) {
      // Rejected parts cannot be told from damage: the next sync, which retries them, is a full one instead.
      reconciler.forget();
      requestSync();
      return;
    }
    const verification = new AbortController();
    this.#verification = verification;
    try {
      const damage = await this.#options.damage(AbortSignal.any([signal, verification.signal]));
      this.#gaveWay = 0;
      if (damage === undefined) return;
      await this.#tell("changed state of the ipvs mode in the kernel", damage);
      onLost();
    } catch (error) {
      if (signal.aborted) return;
      if (verification.signal.aborted) {
        this.#gaveWay += 1;
        if (this.#gaveWay < PATIENCE) return;
        this.#gaveWay = 0;
        // The waiting sync becomes a full one.
        reconciler.forget();
        return;
      }
      // The state is unverified: a sync will succeed, or report what is wrong.
      onLost();
      throw error;
    } finally {
      this.#verification = undefined;
    }
  }

  /** Logs damage, or that the device is gone. */
  async #tell(what: string, damage: Readonly<Record<string, number>>): Promise<void> {
    const isGone = (await this.#options.links.link(DUMMY_DEVICE)) === undefined;
    const done = isGone ? `removed the device ${DUMMY_DEVICE}` : what;
    this.#options.log.warn(`Another program ${done}; repairing it`, damage);
  }

  async #repeat(periodMs: number, what: string, signal: AbortSignal, work: () => Promise<void>): Promise<void> {
    const { clock } = this.#options;
    let waitMs = periodMs;
    while (!signal.aborted) {
      await clock.sleep(waitMs, signal);
      if (signal.aborted) return;
      waitMs = Math.max(periodMs, restAfterLook(await this.#inTurn(what, work), periodMs));
    }
  }

  /** Only logs errors; the next turn tries again. @returns how long it took. */
  #inTurn(what: string, work: () => Promise<void>): Promise<number> {
    const { clock, reconciler, log } = this.#options;
    return reconciler.turns.run(async () => {
      const startMs = clock.monotonicMs();
      try {
        await work();
      } catch (error) {
        log.error(`The ipvs mode failed while ${what}, and will try again`, error);
      }
      return clock.monotonicMs() - startMs;
    });
  }
}
