/**
 * What goes on between syncs: devices and addresses are watched, the kernel is compared with what is wanted now and then,
 * and real servers that were waiting for their connections to end are removed.
 */

import type { Clock } from "../../async/clock.ts";
import type { Ipvs } from "../../kernel/ipvs/ipvs.ts";
import type { Links } from "../../kernel/route/links.ts";
import type { Logger } from "../../logging/logger.ts";
import type { NodePortAddresses } from "../../model/node-port-addresses.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import { restAfterLook } from "../shared/look-rest.ts";
import type { Reconciler } from "../shared/reconciler.ts";
import { GRACE_PERIOD_MS, type GracefulTermination } from "./graceful-termination.ts";
import { DUMMY_DEVICE } from "./names.ts";
import { equalAddressFacts, nodeAddressFacts } from "./node-facts.ts";
import type { PlanConfig, PlanFacts } from "./plan-service-port.ts";
import type { IpvsKinds } from "./wanted.ts";

/** A pod that starts or ends makes several announcements in a row, and our own changes of IPv6 addresses are announced, too. */
const SETTLE_MS = 1000;
/** So many verifications in a row may give way; then a sync looks at everything instead. */
const PATIENCE = 5;

export interface WatchOptions {
  readonly config: Pick<PlanConfig, "family">;
  readonly ipvs: Ipvs;
  readonly links: Links;
  readonly nodePortAddresses: NodePortAddresses;
  readonly verifyPeriodMs: number;
  readonly reconciler: Reconciler<IpvsKinds, PlanFacts>;
  readonly graceful: GracefulTermination;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Who is told. */
export interface Watched {
  /** Compares the kernel with what is wanted: how many things are wrong, by kind; undefined for none. */
  damage(signal: AbortSignal): Promise<Readonly<Record<string, number>> | undefined>;
  /** Whether the kernel has refused to bind the address. */
  isInDoubt(address: IpAddress): boolean;
  /** Another program destroyed something: all must be looked at. */
  onLost(): void;
  /** The node has other addresses: the next sync looks at everything. */
  requestSync(): void;
}

export class Watch {
  readonly #options: WatchOptions;
  readonly #family: IpFamily;
  #verification: AbortController | undefined;
  /** Verifications that gave way since one was completed. */
  #gaveWay = 0;

  constructor(options: WatchOptions) {
    this.#options = options;
    this.#family = options.config.family;
  }

  /** A sync is waiting: a verification under way ends, and is taken up again another time. */
  giveWay(): void {
    this.#verification?.abort(new GaveWay());
  }

  /** Runs until the signal aborts. Rejects when devices cannot be watched. */
  async run(watched: Watched, signal: AbortSignal): Promise<void> {
    const stop = new AbortController();
    const ended = AbortSignal.any([signal, stop.signal]);
    const loops = [this.#watchLinks(watched, ended), this.#verifyAgainAndAgain(watched, ended), this.#endGrace(ended)];
    try {
      await Promise.all(loops);
    } finally {
      stop.abort();
      await Promise.allSettled(loops);
    }
  }

  async #watchLinks(watched: Watched, signal: AbortSignal): Promise<void> {
    const { links, clock, reconciler } = this.#options;
    let isChecking = false;
    const check = async (): Promise<void> => {
      await clock.sleep(SETTLE_MS, signal);
      await reconciler.turns.run(async () => {
        isChecking = false;
        if (!signal.aborted) await this.#attempt("looking at devices and addresses", () => this.#checkLinks(watched));
      });
    };
    const onChange = (): void => {
      if (isChecking) return;
      isChecking = true;
      checks = checks.then(check);
    };
    // What happened before the watch began was not seen.
    isChecking = true;
    let checks = check();
    try {
      await links.watch(onChange, signal);
    } finally {
      await checks;
    }
  }

  async #checkLinks(watched: Watched): Promise<void> {
    const { links, nodePortAddresses, reconciler, log } = this.#options;
    const { known: facts, wanted } = reconciler;
    if (facts === undefined) return;
    const found = nodeAddressFacts(await links.addresses(this.#family), nodePortAddresses);
    const missing = [...wanted.of.addresses.allEffective()].filter(
      ({ value }) => !found.bound.has(value) && !watched.isInDoubt(value),
    );
    if (missing.length > 0) {
      const lost = { addresses: missing.length };
      if (!(await this.#saidGone(lost))) {
        log.warn(`Another program removed addresses from ${DUMMY_DEVICE}; repairing it`, lost);
      }
      watched.onLost();
    } else if (!equalAddressFacts(found, facts)) {
      log.info("The addresses of the node have changed", { nodePortAddresses: found.nodePortIPs.join(", ") });
      reconciler.forget();
      watched.requestSync();
    }
  }

  async #verifyAgainAndAgain(watched: Watched, signal: AbortSignal): Promise<void> {
    const { clock, verifyPeriodMs } = this.#options;
    let waitMs = verifyPeriodMs;
    while (!signal.aborted) {
      await clock.sleep(waitMs, signal);
      if (signal.aborted) return;
      let elapsedMs = 0;
      await this.#options.reconciler.turns.run(async () => {
        const startMs = clock.monotonicMs();
        await this.#attempt("comparing the kernel with what is wanted", () => this.#verify(watched, signal));
        elapsedMs = clock.monotonicMs() - startMs;
      });
      waitMs = Math.max(verifyPeriodMs, restAfterLook(elapsedMs, verifyPeriodMs));
    }
  }

  async #verify(watched: Watched, signal: AbortSignal): Promise<void> {
    const { reconciler } = this.#options;
    if (reconciler.hasRefused && reconciler.known !== undefined) {
      // What was refused cannot be told from damage: the next sync, which tries it again, looks at everything.
      reconciler.forget();
      watched.requestSync();
      return;
    }
    const verification = new AbortController();
    this.#verification = verification;
    try {
      const damage = await watched.damage(AbortSignal.any([signal, verification.signal]));
      this.#gaveWay = 0;
      if (damage === undefined) return;
      if (!(await this.#saidGone(damage))) {
        this.#options.log.warn("Another program changed what the ipvs mode has in the kernel; repairing it", damage);
      }
      watched.onLost();
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof GaveWay) {
        this.#gaveWay += 1;
        if (this.#gaveWay < PATIENCE) return;
        this.#gaveWay = 0;
        // The one that waits for its turn.
        reconciler.forget();
        return;
      }
      // What cannot be compared is unverified: a sync will succeed, or say what is wrong.
      watched.onLost();
      throw error;
    } finally {
      this.#verification = undefined;
    }
  }

  /** Whichever look comes first says that the device is gone. @returns whether it is. */
  async #saidGone(damage: Readonly<Record<string, number>>): Promise<boolean> {
    if ((await this.#options.links.link(DUMMY_DEVICE)) !== undefined) return false;
    this.#options.log.warn(`Another program removed the device ${DUMMY_DEVICE}; repairing it`, damage);
    return true;
  }

  async #endGrace(signal: AbortSignal): Promise<void> {
    const { clock, reconciler, graceful, ipvs, log } = this.#options;
    while (!signal.aborted) {
      await clock.sleep(GRACE_PERIOD_MS, signal);
      if (signal.aborted || graceful.size === 0) continue;
      await reconciler.turns.run(() =>
        this.#attempt("removing real servers without connections", () => graceful.removeIdle(ipvs, log, signal)),
      );
    }
  }

  /** Tries again with the next turn; what is wrong with the kernel, a sync will say, too. */
  async #attempt(what: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#options.log.error(`The ipvs mode could not go on ${what}, and will try again`, error);
    }
  }
}

/** Why a verification ended early. */
class GaveWay extends Error {}
