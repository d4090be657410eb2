/**
 * Ports for the proxy's own sockets, each given to one user at a time: reference userspace.md §1.5. All free ports are at
 * hand at once, so no request waits for a search.
 */

import { type PortRange, portRangeText } from "../../net/port-range.ts";
import { ListenError } from "../../relay/listen-error.ts";

interface PortAllocatorOptions {
  readonly range: PortRange;
  /** At least 0 and below 1. */
  readonly random: () => number;
  /** Called when a port comes back after a request had to go without: time to try again. */
  readonly onPortFree?: () => void;
}

/** Every port of the range is in use. The first words are upstream's. */
export class PortsExhaustedError extends Error {
  override readonly name = "PortsExhaustedError";
  readonly range: PortRange;

  constructor(range: PortRange, options?: ErrorOptions) {
    super(
      "port allocation failed; there are no remaining ports left to allocate in the accepted range " +
        `(${portRangeText(range)}): widen --proxy-port-range, or leave it out`,
      options,
    );
    this.range = range;
  }
}

/** A port in use, and what was opened there. */
export interface AllocatedPort<T> {
  /** 0 when the system chose: the socket knows. */
  readonly port: number;
  readonly opened: T;
}

export class PortAllocator {
  readonly #options: PortAllocatorOptions;
  /** In no order. */
  readonly #free: number[];
  readonly #used = new Set<number>();
  /** Whether a request has had to go without. */
  #isShort = false;

  constructor(options: PortAllocatorOptions) {
    const { first, last } = options.range;
    this.#options = options;
    this.#free = Array.from({ length: first === 0 ? 0 : last - first + 1 }, (_, index) => first + index);
  }

  /**
   * Opens something on a free port. A port that another process has, or that we may not use, is left for the next free one,
   * and given back in the end. Rejects with what `open` rejected with for any other reason, or with
   * {@link PortsExhaustedError}.
   */
  async open<T>(open: (port: number) => Promise<T>): Promise<AllocatedPort<T>> {
    if (this.#options.range.first === 0) return { port: 0, opened: await open(0) };
    const unusable: number[] = [];
    let lastError: unknown;
    try {
      for (let port = this.#take(); port !== undefined; port = this.#take()) {
        try {
          return { port, opened: await open(port) };
        } catch (error) {
          if (!isAboutThePort(error)) {
            this.release(port);
            throw error;
          }
          unusable.push(port);
          lastError = error;
        }
      }
    } finally {
      for (const port of unusable) this.#giveBack(port);
    }
    this.#isShort = true;
    throw new PortsExhaustedError(this.#options.range, { cause: lastError });
  }

  /** Gives a port back. One that is not in use, or outside of the range, is ignored. */
  release(port: number): void {
    if (!this.#giveBack(port) || !this.#isShort) return;
    this.#isShort = false;
    this.#options.onPortFree?.();
  }

  #take(): number | undefined {
    const index = Math.floor(this.#options.random() * this.#free.length);
    const last = this.#free.pop();
    if (last === undefined) return undefined;
    const port = this.#free[index] ?? last;
    if (index < this.#free.length) this.#free[index] = last;
    this.#used.add(port);
    return port;
  }

  #giveBack(port: number): boolean {
    if (!this.#used.delete(port)) return false;
    this.#free.push(port);
    return true;
  }
}

function isAboutThePort(error: unknown): boolean {
  return error instanceof ListenError && (error.code === "port_in_use" || error.code === "not_permitted");
}
