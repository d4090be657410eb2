/** Kernel notifications, from a socket that joins multicast groups. */
import type { ByteReader } from "./attributes.ts";
import { NetlinkDescriptor } from "./descriptor.ts";
import { forEachMessage, type ReplyVisitor } from "./frames.ts";
import { filterOf } from "./notification-filter.ts";

export interface SubscriptionOptions {
  /** NETLINK_ROUTE, NETLINK_NETFILTER, … */
  readonly protocol: number;
  /** Multicast groups by number. */
  readonly groups: readonly number[];
  readonly onMessage: ReplyVisitor;
  /** Called when notifications were lost because they were not read fast enough: read the real state. */
  readonly onOverrun: () => void;
  /** Ends the subscription. */
  readonly signal: AbortSignal;
  /**
   * The port id of the sender whose notifications are filtered out; it changes when that socket is reopened. Some still arrive: just
   * after a reopen, and where the kernel rejects the filter.
   */
  readonly ownPort?: () => number;
  /**
   * Called when the queue is empty. Returns what to wait for before the next read, so that messages gather and do not wake a thread
   * each; undefined waits for the next message. @default always undefined
   */
  readonly rest?: () => Promise<void> | undefined;
  /** Includes notifications of other network namespaces that links lead to, if the process has CAP_NET_BROADCAST. @default false */
  readonly coversNamespaces?: boolean;
  /** @default 4 MiB */
  readonly receiveBufferBytes?: number;
}

const DEFAULT_RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024;

/**
 * Calls `onMessage` for each notification until the signal aborts, and then resolves. The groups are joined when the call
 * returns its promise: no later change is missed. Rejects if the socket cannot be opened or fails, or if a visitor throws.
 */
export async function subscribe(options: SubscriptionOptions): Promise<void> {
  const { signal } = options;
  signal.throwIfAborted();
  const descriptor = new NetlinkDescriptor(options.protocol, {
    groups: options.groups,
    coversNamespaces: options.coversNamespaces ?? false,
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
  const take = (input: ByteReader, length: number): void => forEachMessage(input, length, options.onMessage);
  try {
    while (!signal.aborted) {
      filter();
      const taken = descriptor.receiveMany(take);
      if (taken === "lost") options.onOverrun();
      if (taken === "nothing") await (options.rest?.() ?? descriptor.readable(-1));
      // Let other work run between bursts.
      else await new Promise((resolve) => setImmediate(resolve));
    }
  } finally {
    signal.removeEventListener("abort", wake);
    descriptor.close();
  }
}

/** The listeners that share a subscription, each until its own signal aborts. */
export class Listeners<T extends object> implements Iterable<T> {
  readonly #leaving = new Map<T, (error: unknown) => void>();
  readonly #onNone: () => void;

  /** @param onNone called when the last listener has left. */
  constructor(onNone: () => void) {
    this.#onNone = onNone;
  }

  get size(): number {
    return this.#leaving.size;
  }

  /** Iterates over a snapshot: a listener may leave while it is called. */
  [Symbol.iterator](): Iterator<T> {
    return [...this.#leaving.keys()][Symbol.iterator]();
  }

  /** Adds a listener, unless the signal has aborted; resolves when it aborts. Rejects with the error of {@link fail}. */
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
