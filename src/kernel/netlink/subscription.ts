/** Notifications of the kernel: a socket that joined multicast groups. */
import type { ByteReader } from "./attributes.ts";
import { NetlinkDescriptor } from "./descriptor.ts";
import { forEachMessage, type Reply, type ReplyVisitor } from "./frames.ts";
import { filterOf } from "./notification-filter.ts";

export interface SubscriptionOptions {
  /** NETLINK_ROUTE, NETLINK_NETFILTER, … */
  readonly protocol: number;
  /** Multicast groups by number. */
  readonly groups: readonly number[];
  readonly onMessage: ReplyVisitor;
  /** Messages were lost because they were not taken fast enough: look at the real state. */
  readonly onOverrun: () => void;
  /** Ends the subscription. */
  readonly signal: AbortSignal;
  /**
   * The sender whose notifications are left out; another one when its socket is opened again. Some still come: just after that, and
   * where the system takes no filter.
   */
  readonly ownPort?: () => number;
  /**
   * Asked whenever all that was waiting has been taken: what to wait for before anything is looked at again, while messages gather
   * without waking a thread for each. Undefined: the next message is waited for. @default never anything
   */
  readonly rest?: () => Promise<void> | undefined;
  /** @default 4 MiB */
  readonly receiveBufferBytes?: number;
}

const DEFAULT_RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024;

/**
 * Calls `onMessage` for each notification until the signal is aborted, and then resolves. Joined when it returns, so
 * nothing that happens afterwards is missed. Rejects when the socket cannot be opened or fails, or when a visitor throws.
 */
export async function subscribe(options: SubscriptionOptions): Promise<void> {
  const { signal } = options;
  signal.throwIfAborted();
  const descriptor = new NetlinkDescriptor(options.protocol, {
    groups: options.groups,
    receiveBufferBytes: options.receiveBufferBytes ?? DEFAULT_RECEIVE_BUFFER_BYTES,
  });
  const wake = (): void => descriptor.wake();
  signal.addEventListener("abort", wake, { once: true });
  let filtered: number | undefined;
  const filter = (): void => {
    const portId = options.ownPort?.();
    if (portId === undefined || portId === filtered) return;
    filtered = portId;
    descriptor.attachFilter(filterOf(portId));
  };
  const visit = (reply: Reply): undefined => {
    options.onMessage(reply);
  };
  const take = (input: ByteReader, length: number): void => forEachMessage(input, length, visit);
  try {
    while (!signal.aborted) {
      filter();
      const taken = descriptor.receiveMany(take);
      if (taken === "lost") options.onOverrun();
      if (taken === "nothing") await (options.rest?.() ?? descriptor.readable(-1));
      // What comes together is taken in turns with other work.
      else await new Promise((resolve) => setImmediate(resolve));
    }
  } finally {
    signal.removeEventListener("abort", wake);
    descriptor.close();
  }
}

/** Those who share a subscription, each until its own signal aborts. */
export class Listeners<T extends object> implements Iterable<T> {
  readonly #leaving = new Map<T, (error: unknown) => void>();
  readonly #onNone: () => void;

  /** @param onNone the last has left. */
  constructor(onNone: () => void) {
    this.#onNone = onNone;
  }

  get size(): number {
    return this.#leaving.size;
  }

  /** Those of this moment: one may leave while it is told. */
  [Symbol.iterator](): Iterator<T> {
    return [...this.#leaving.keys()][Symbol.iterator]();
  }

  /** Adds a listener, unless the signal has aborted; resolves when it does. Rejects with what all are failed with. */
  join(listener: T, signal: AbortSignal): Promise<void> {
    const left = Promise.withResolvers<void>();
    if (signal.aborted) return Promise.resolve();
    const leave = (): void => {
      this.#leaving.delete(listener);
      signal.removeEventListener("abort", end);
      if (this.size === 0) this.#onNone();
    };
    const end = (): void => {
      leave();
      left.resolve();
    };
    signal.addEventListener("abort", end);
    this.#leaving.set(listener, (error) => {
      leave();
      left.reject(error);
    });
    return left.promise;
  }

  fail(error: unknown): void {
    for (const leave of [...this.#leaving.values()]) leave(error);
  }
}
