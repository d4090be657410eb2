/** Ports for the proxy's own sockets, each given to one user at a time: reference userspace.md §1.5. */

import { type PortRange, portRangeText } from "../../net/port-range.ts";
import { ListenError } from "../../relay/listen-error.ts";

interface PortAllocatorOptions {
  readonly range: PortRange;
  /** At least 0 and below 1. */
  readonly random: () => number;
  /** Called when a port is released after a request found none: it can be tried again. */
  readonly onPortFree?: () => void;
}

/** All ports of the range are in use. The message begins as upstream's. */
export class PortsExhaustedError extends Error {
  override readonly name = "PortsExhaustedError";

  constructor(range: PortRange, options?: ErrorOptions) {
    super(
      "port allocation failed; there are no remaining ports left to allocate in the accepted range " +
        `(${portRangeText(range)}): widen --proxy-port-range, or leave it out`,
      options,
    );
  }
}

export class PortAllocator {
  readonly #options: PortAllocatorOptions;
  readonly #used = new Set<number>();
  /** Whether a request found no free port. */
  #isShort = false;

  constructor(options: PortAllocatorOptions) {
    this.#options = options;
  }

  /**
   * Calls `open` with a free port, or with 0 to let the system choose. Skips ports that another process holds or that
   * we may not use. Rejects with any other error of `open`, or with {@link PortsExhaustedError}.
   */
  async open<T>(open: (port: number) => Promise<T>): Promise<T> {
    const { range, random } = this.#options;
    const { first, last } = range;
    if (first === 0) return await open(0);
    const length = last - first + 1;
    const begin = Math.floor(random() * length);
    let cause: unknown;
    for (let tried = 0; tried < length && this.#used.size < length; tried++) {
      const port = first + ((begin + tried) % length);
      if (this.#used.has(port)) continue;
      this.#used.add(port);
      try {
        return await open(port);
      } catch (error) {
        this.#used.delete(port);
        if (!isAboutThePort(error)) throw error;
        cause = error;
      }
    }
    this.#isShort = true;
    throw new PortsExhaustedError(range, { cause });
  }

  /** Releases a port. Ignores ports that are not in use or outside of the range. */
  release(port: number): void {
    if (!this.#used.delete(port) || !this.#isShort) return;
    this.#isShort = false;
    this.#options.onPortFree?.();
  }
}

function isAboutThePort(error: unknown): boolean {
  return error instanceof ListenError && (error.code === "port_in_use" || error.code === "not_permitted");
}
