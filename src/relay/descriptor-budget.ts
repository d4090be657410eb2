/**
 * The file descriptors of the relays. Once a process has none left, the kernel refuses the next request and Node.js drops
 * pending connections silently; so the relays stop before that, and report it.
 */
import { ListenError, type ListenFacts } from "./listen-error.ts";

interface DescriptorBudgetOptions {
  readonly limit: number;
  /** Clients that may wait for descriptors; each already has one, which is not counted. @default 0 */
  readonly waitingLimit?: number;
  /** Called when there are too few, at most once every {@link SHORTAGE_REPORT_MS}. */
  readonly onShortage?: (limit: number) => void;
  /** Descriptors are taken from this budget, too. */
  readonly parent?: DescriptorBudget;
}

const SHORTAGE_REPORT_MS = 10_000;

/** Reserved for the rest of the process: one in this many descriptors, within the bounds below. */
const RESERVED_PART = 8;
/** For the program itself while it runs tools, and for waiting clients; the HTTP servers have their own share. */
const MIN_RESERVED = 52;
const MAX_RESERVED = 1024;
/** One in this many of those is for waiting clients. */
const WAITING_PART = 4;

/** The relays' share of the open-file limit. */
export function shareOfRelays(fileLimit: number): Pick<DescriptorBudgetOptions, "limit" | "waitingLimit"> {
  const reserved = Math.min(MAX_RESERVED, Math.max(MIN_RESERVED, Math.floor(fileLimit / RESERVED_PART)));
  return { limit: Math.max(0, fileLimit - reserved), waitingLimit: Math.floor(reserved / WAITING_PART) };
}

export class DescriptorBudget {
  readonly #options: DescriptorBudgetOptions;
  readonly #waiting = new Set<{ readonly count: number; readonly start: () => void }>();
  #used = 0;
  #reportedMs = Number.NEGATIVE_INFINITY;

  constructor(options: DescriptorBudgetOptions) {
    this.#options = options;
  }

  get used(): number {
    return this.#used;
  }

  get free(): number {
    return this.#options.limit - this.#used;
  }

  /** Takes descriptors if enough are free and nothing is waiting for them. */
  take(count: number): boolean {
    if (this.#waiting.size === 0 && this.#tryTake(count)) return true;
    // The parent reports its own shortage.
    if (this.#waiting.size > 0 || !this.#hasRoom(count)) this.#reportShortage();
    return false;
  }

  /**
   * Calls `start` once these descriptors are taken; first come, first served.
   *
   * @returns a function that withdraws the request, or `undefined` if too many are waiting already.
   */
  wait(count: number, start: () => void): (() => void) | undefined {
    if (this.#waiting.size >= (this.#options.waitingLimit ?? 0)) return undefined;
    const wish = { count, start };
    this.#waiting.add(wish);
    return () => void this.#waiting.delete(wish);
  }

  giveBack(count: number): void {
    this.#used -= count;
    this.#options.parent?.giveBack(count);
    for (const wish of this.#waiting) {
      if (!this.#tryTake(wish.count)) return;
      this.#waiting.delete(wish);
      wish.start();
    }
  }

  #tryTake(count: number): boolean {
    const { parent } = this.#options;
    if (!this.#hasRoom(count)) return false;
    if (parent !== undefined && !parent.take(count)) return false;
    this.#used += count;
    return true;
  }

  #hasRoom(count: number): boolean {
    return this.#used + count <= this.#options.limit;
  }

  #reportShortage(): void {
    const nowMs = performance.now();
    if (nowMs - this.#reportedMs < SHORTAGE_REPORT_MS) return;
    this.#reportedMs = nowMs;
    this.#options.onShortage?.(this.#options.limit);
  }
}

/** Takes the descriptor of a socket that is bound to a port. Throws `ListenError`. */
export function takeForListening(budget: DescriptorBudget, { protocol, address, port }: ListenFacts): void {
  if (!budget.take(1)) throw new ListenError("out_of_descriptors", { protocol, address, port });
}
