/**
 * Connected UDP sockets whose endpoint is gone are disconnected, so that they connect again, to one that serves. They are told apart from
 * sockets that went to the same address by themselves: only what a program of ours has led has a record.
 */
import type { Clock, Timer } from "../../async/clock.ts";
import { Mutex } from "../../async/mutex.ts";
import type { Disconnection, UdpDisconnector } from "../../kernel/sock-diag/disconnect-udp.ts";
import type { Logger } from "../../logging/logger.ts";
import type { Connections, LostConnection } from "./connections.ts";

interface StaleConnectionsOptions {
  readonly connections: Connections;
  readonly disconnector: Pick<UdpDisconnector, "disconnect">;
  readonly onDisconnected: (count: number) => void;
  readonly log: Logger;
  readonly clock: Clock;
}

/** A socket that is just connecting is found a moment later. */
const SECOND_LOOK_MS = 1000;
/** After a look that failed: nothing else may ask for one within an hour. */
const RETRY_MS = 10_000;

type Left = readonly [LostConnection, Disconnection];

export class StaleConnections {
  readonly #options: StaleConnectionsOptions;
  readonly #turns = new Mutex();
  #timer: Timer | undefined;
  /** Left by the look before the next timed one, which is the second for these. */
  #left: ReadonlySet<string> = new Set();
  #isWaiting = false;
  #isEnded = false;
  #hasComplained = false;
  #isFailing = false;

  constructor(options: StaleConnectionsOptions) {
    this.#options = options;
  }

  /** To be called after an endpoint of a UDP service port went, when the maps offer it no more. */
  async disconnect(): Promise<void> {
    // A look that has not begun sees what has gone since it was asked for.
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    try {
      const left = await this.#turns.run(() => {
        this.#isWaiting = false;
        return this.#look();
      });
      this.#isFailing = false;
      this.#lookLater(left);
    } catch (error) {
      this.#retry(error);
    }
  }

  /** The next process looks for them. Nothing of this is used after it. */
  close(): void {
    this.#isEnded = true;
    this.#timer?.cancel();
  }

  /** All that are led: nothing will tell them later. It is the end; nothing of this is used after it. */
  async disconnectAll(): Promise<void> {
    this.close();
    await this.#turns.run(async () => {
      try {
        const all = this.#options.connections.all();
        if (all.length > 0) await this.#options.disconnector.disconnect(all);
      } catch (error) {
        this.#options.log.error("UDP sockets that were led could not be disconnected", error);
      }
    });
  }

  /** @returns those that were not disconnected. */
  async #look(): Promise<readonly Left[]> {
    const { connections, disconnector, onDisconnected } = this.#options;
    const lost = this.#isEnded ? [] : connections.lost();
    if (lost.length === 0) return [];
    const outcomes = await disconnector.disconnect(lost);
    if (this.#isEnded) return [];
    const pairs = lost.map((one, at) => [one, outcomes[at] ?? "unreachable"] as const);
    const done = pairs.filter(([, outcome]) => outcome === "disconnected");
    for (const [one] of done) connections.forget(one);
    if (done.length > 0) onDisconnected(done.length);
    return pairs.filter(([, outcome]) => outcome !== "disconnected");
  }

  /** A look that is due stays so: others come with every change of the cluster. */
  #lookLater(left: readonly Left[]): void {
    if (left.length === 0 || this.#timer !== undefined) return;
    this.#left = new Set(left.map(([one]) => recordOf(one)));
    this.#after(SECOND_LOOK_MS, () => this.#lookAgain());
  }

  async #lookAgain(): Promise<void> {
    const { connections } = this.#options;
    const before = this.#left;
    try {
      const left = await this.#turns.run(() => this.#look());
      if (this.#isEnded) return;
      const unreachable = new Set<bigint>();
      const known = left.filter(([one]) => before.has(recordOf(one)));
      for (const [one, outcome] of known) {
        // It is not connected any more, or can never be told.
        connections.forget(one);
        if (outcome === "unreachable") unreachable.add(one.netns);
      }
      for (const netns of unreachable) connections.bar(netns);
      if (unreachable.size > 0) this.#complain(known.length);
      this.#lookLater(left.filter(([one]) => !before.has(recordOf(one))));
    } catch (error) {
      this.#retry(error);
    }
  }

  /** Said once while it lasts. */
  #retry(error: unknown): void {
    if (this.#isEnded) return;
    if (!this.#isFailing) this.#options.log.error("Looking for UDP sockets whose endpoint is gone failed", error);
    this.#isFailing = true;
    this.#after(RETRY_MS, () => this.disconnect());
  }

  #after(delayMs: number, look: () => Promise<void>): void {
    if (this.#isEnded) return;
    this.#timer?.cancel();
    this.#timer = this.#options.clock.setTimer(delayMs, () => {
      this.#timer = undefined;
      void look();
    });
  }

  #complain(sockets: number): void {
    if (this.#hasComplained) return;
    this.#hasComplained = true;
    this.#options.log.error(
      "Connected UDP sockets keep an endpoint that is gone: their network namespace is not found. Its next ones take the rules",
      undefined,
      { sockets },
    );
  }
}

/** A socket that has connected again meanwhile has another. */
function recordOf({ element: [key, value] }: LostConnection): string {
  return Buffer.concat([key, value]).toString("latin1");
}
