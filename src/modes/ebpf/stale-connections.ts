/**
 * Disconnects connected UDP sockets whose endpoint is gone, so that they reconnect to one that serves. Sockets that
 * connected to the endpoint's address directly are left alone: only sockets that our programs redirected have a record.
 */
import type { Clock, Timer } from "../../async/clock.ts";
import { Mutex } from "../../async/mutex.ts";
import type { UdpDisconnector } from "../../kernel/sock-diag/disconnect-udp.ts";
import type { Logger } from "../../logging/logger.ts";
import type { Connections, LostConnection } from "./connections.ts";
import { UNTOLD } from "./socket-news.ts";

interface StaleConnectionsOptions {
  readonly connections: Connections;
  readonly disconnector: Pick<UdpDisconnector, "disconnect">;
  readonly onDisconnected: (count: number) => void;
  /** A network namespace was not found. */
  readonly onUnreachable: () => void;
  readonly log: Logger;
  readonly clock: Clock;
}

/** A socket that is still connecting will be found a moment later. */
const SECOND_LOOK_MS = 1000;
/** Delay after a failure: otherwise, the next attempt may be an hour away. */
const RETRY_MS = 10_000;

export class StaleConnections {
  readonly #options: StaleConnectionsOptions;
  readonly #turns = new Mutex();
  #timer: Timer | undefined;
  #isWaiting = false;
  #isEnded = false;
  #hasComplained = false;
  #isFailing = false;

  constructor(options: StaleConnectionsOptions) {
    this.#options = options;
  }

  /**
   * Call after a UDP service port has lost an endpoint and the maps no longer offer it.
   * @param left records for which this is the second, timed attempt. Other attempts may run before it.
   */
  async disconnect(left?: ReadonlySet<string>): Promise<void> {
    // A queued attempt will also find what has gone since it was queued.
    if (this.#isWaiting && left === undefined) return;
    this.#isWaiting = true;
    try {
      await this.#turns.run(() => {
        this.#isWaiting = false;
        return this.#look(left);
      });
      this.#isFailing = false;
    } catch (error) {
      if (this.#isEnded) return;
      // Log it once while it lasts.
      if (!this.#isFailing) this.#options.log.error("Looking for UDP sockets whose endpoint is gone failed", error);
      this.#isFailing = true;
      this.#after(RETRY_MS);
    }
  }

  /** Leaves the sockets to the next process. Do not use this object afterwards. */
  close(): void {
    this.#isEnded = true;
    this.#timer?.cancel();
  }

  /** Disconnects all redirected sockets, because nothing will tell them later. Do not use this object afterwards. */
  async disconnectAll(): Promise<void> {
    this.close();
    await this.#turns.run(async () => {
      try {
        const all = this.#options.connections.all();
        if (all.length > 0) await this.#options.disconnector.disconnect(all);
      } catch (error) {
        this.#options.log.error(UNTOLD, error);
      }
    });
  }

  async #look(before: ReadonlySet<string> = new Set()): Promise<void> {
    const { connections, disconnector, onDisconnected, onUnreachable } = this.#options;
    const lost = this.#isEnded ? [] : connections.lost();
    if (lost.length === 0) return;
    const outcomes = await disconnector.disconnect(lost);
    if (this.#isEnded) return;
    const left: string[] = [];
    let [disconnected, givenUp] = [0, 0];
    for (const [at, one] of lost.entries()) {
      const record = recordOf(one);
      const outcome = outcomes[at] ?? "unreachable";
      if (outcome === "disconnected") disconnected++;
      else if (before.has(record)) {
        // The socket is not connected any more, or can never be told.
        if (outcome === "unreachable") givenUp++;
      } else {
        left.push(record);
        continue;
      }
      connections.setTold(one);
    }
    if (disconnected > 0) onDisconnected(disconnected);
    if (givenUp > 0) onUnreachable();
    if (givenUp > 0) this.#complain(givenUp);
    // Keep a timer that is already set: attempts come with every cluster change and must not postpone it.
    if (left.length === 0 || this.#timer !== undefined) return;
    this.#after(SECOND_LOOK_MS, new Set(left));
  }

  #after(delayMs: number, left?: ReadonlySet<string>): void {
    this.#timer?.cancel();
    this.#timer = this.#options.clock.setTimer(delayMs, () => {
      this.#timer = undefined;
      void this.disconnect(left);
    });
  }

  #complain(sockets: number): void {
    if (this.#hasComplained) return;
    this.#hasComplained = true;
    this.#options.log.error(
      "Connected UDP sockets keep an endpoint that is gone, because their network namespace was not found",
      undefined,
      { sockets },
    );
  }
}

/** Differs once the socket connects again. */
function recordOf({ element: [key, value] }: LostConnection): string {
  return Buffer.concat([key, value]).toString("latin1");
}
