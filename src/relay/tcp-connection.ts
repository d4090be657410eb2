/**
 * One client's TCP connection: dials destinations until one answers (reference userspace.md §1.8), then carries bytes both
 * ways. Each direction ends on its own (userspace.md §1.8); a reset of one side resets the other.
 */
import type { Socket } from "node:net";
import type { Logger } from "../logging/logger.ts";
import { ByteFlow, type FlowShared, readThrough } from "./byte-flow.ts";
import type { DescriptorBudget } from "./descriptor-budget.ts";
import { LOOP, type OwnDials } from "./own-dials.ts";
import { type Destination, DIAL_TIMEOUTS_MS, type RelayOptions, type RelaySession } from "./relay.ts";
import { dialTcp } from "./tcp-dial.ts";
import type { UserShares } from "./user-shares.ts";

/** Shared by all connections of a process. */
export interface TcpShared extends FlowShared {
  readonly budget: DescriptorBudget;
  readonly ownDials: OwnDials;
  readonly users: UserShares;
  readonly log: Logger;
}

/** The client's socket and the destination's. */
const DESCRIPTORS = 2;

/** Local causes: the next attempt would fail for the same reason, so it waits until this one's timeout is over. */
const LOCAL_CAUSES = new Set(["EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "EADDRNOTAVAIL", "EAGAIN"]);

export class TcpConnection implements RelaySession {
  readonly client: Destination;
  readonly #options: RelayOptions;
  readonly #shared: TcpShared;
  readonly #onEnd: () => void;
  #clientSocket: Socket;
  #stopDialling: (() => void) | undefined;
  #endpointSocket: Socket | undefined;
  #flows: readonly ByteFlow[] = [];
  #timer: NodeJS.Timeout | undefined;
  #lastByteMs = 0;
  #stopWaiting: (() => void) | undefined;
  #forgetDial: (() => void) | undefined;
  #hasDescriptors = false;
  /** Set once connected. */
  #destination: Destination | undefined;
  #isEnded = false;

  /**
   * @param accepted a paused socket that allows half-open connections.
   * @param client its other end.
   * @param onEnd called once, when both sockets are closed.
   */
  constructor(accepted: Socket, client: Destination, options: RelayOptions, shared: TcpShared, onEnd: () => void) {
    this.#options = options;
    this.#shared = shared;
    this.#onEnd = onEnd;
    this.#clientSocket = accepted;
    this.client = client;
    accepted.on("error", () => this.cut());
  }

  get destination(): Destination | undefined {
    return this.#destination;
  }

  /** Starts to dial as soon as there are descriptors. */
  start(): void {
    if (this.#shared.ownDials.isLoop(this.client)) {
      this.#refuse(LOOP);
      return;
    }
    if (this.#shared.budget.take(DESCRIPTORS)) {
      this.#begin();
      return;
    }
    this.#stopWaiting = this.#shared.budget.wait(DESCRIPTORS, () => this.#begin());
    if (this.#stopWaiting === undefined) this.#refuse("out of file descriptors");
  }

  /** Ends the connection abruptly on both sides. @param isQuiet without a reset, unless unread data causes one. */
  cut(isQuiet = false): void {
    const end = isQuiet ? (socket: Socket) => void socket.destroy() : resetSocket;
    end(this.#clientSocket);
    this.#stopDialling?.();
    if (this.#endpointSocket !== undefined) end(this.#endpointSocket);
    if (this.#destination === undefined) this.#end();
  }

  #begin(): void {
    this.#stopWaiting = undefined;
    this.#hasDescriptors = true;
    this.#dial(0);
  }

  #refuse(reason: string): void {
    this.#options.observer.refused(this.client, reason);
    this.cut(this.#options.endsQuietly);
  }

  #dial(attempt: number): void {
    const timeoutMs = (this.#options.dialTimeoutsMs ?? DIAL_TIMEOUTS_MS)[attempt];
    const destination = timeoutMs === undefined ? undefined : this.#options.pick(this.client, attempt);
    if (destination === undefined || timeoutMs === undefined) {
      this.#refuse(attempt === 0 ? "no endpoint" : "failed to connect to an endpoint");
      return;
    }
    const { observer } = this.#options;
    const flow = new ByteFlow(this.#shared, (count) => this.#note("out", count));
    const startedMs = performance.now();
    this.#stopDialling = dialTcp(destination, timeoutMs, flow, {
      from: (local) => {
        this.#forgetDial?.();
        this.#forgetDial = this.#shared.ownDials.add(local, this.client);
      },
      connected: (socket) => this.#open(socket, flow, destination),
      failed: (reason) => {
        observer.dialFailed(destination, reason);
        const waitMs = LOCAL_CAUSES.has(reason) ? timeoutMs - (performance.now() - startedMs) : 0;
        if (waitMs > 0) this.#timer = setTimeout(() => this.#dial(attempt + 1), waitMs);
        else this.#dial(attempt + 1);
      },
    });
  }

  #open(endpoint: Socket, outward: ByteFlow, destination: Destination): void {
    const { observer } = this.#options;
    const inward = new ByteFlow(this.#shared, (count) => this.#note("in", count));
    const client = readThrough(inward, this.#clientSocket);
    this.#clientSocket = client;
    this.#endpointSocket = endpoint;
    this.#flows = [inward, outward];
    inward.connect(client, endpoint);
    outward.connect(endpoint, client);
    this.#destination = destination;
    observer.opened(destination);
    if (this.#options.endsIdle === true) this.#endIfIdle(performance.now());
    for (const [one, other] of [
      [client, endpoint],
      [endpoint, client],
    ] as const) {
      one.on("error", () => resetSocket(other));
      one.once("close", () => {
        if (other.closed) this.#end();
      });
    }
  }

  #note(direction: "in" | "out", count: number): void {
    this.#options.observer.bytes(direction, count);
    if (this.#options.endsIdle === true) this.#lastByteMs = performance.now();
  }

  /** Ends the connection if it has been silent for too long, and otherwise looks again when it would be. */
  #endIfIdle(lastByteMs: number): void {
    this.#lastByteMs = lastByteMs;
    const look = (): void => {
      const leftMs = this.#lastByteMs + this.#options.idleTimeoutMs - performance.now();
      if (leftMs <= 0) this.cut(this.#options.endsQuietly);
      else this.#timer = setTimeout(look, leftMs);
    };
    look();
  }

  /** Releases everything once both sockets are closed. */
  #end(): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    clearTimeout(this.#timer);
    this.#stopWaiting?.();
    this.#forgetDial?.();
    for (const flow of this.#flows) flow.release();
    if (this.#destination !== undefined) this.#options.observer.closed(this.#destination);
    this.#onEnd();
    if (this.#hasDescriptors) this.#shared.budget.giveBack(DESCRIPTORS);
  }
}

/**
 * Closes with a reset, at once. Node's `resetAndDestroy` first waits for everything to be written and then ends the stream
 * before the reset; this only sets the flag that it sets to make the close a reset.
 */
export function resetSocket(socket: Socket): void {
  // libuv refuses to reset while it shuts the stream down, and would leave the socket open.
  const isShuttingDown = socket.writableEnded && !socket.writableFinished && socket.writableLength === 0;
  if (!isShuttingDown) Reflect.set(socket, "resetAndClosing", true);
  socket.destroy();
}
