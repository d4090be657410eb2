/** The client-side rate limit (`clientConnection.qps` and `burst`, reference operation.md §8.1). */
import type { Clock } from "../../../../async/clock.ts";

const DEFAULT_QPS = 5;
const DEFAULT_BURST = 10;

interface RateLimiterOptions {
  /** Sustained requests per second; 0 means 5, negative means no limit. */
  readonly qps: number;
  /** Requests that may be sent at once; 0 means 10. */
  readonly burst: number;
  readonly clock: Clock;
}

/** A first-in, first-out token bucket. */
export class RateLimiter {
  readonly #qps: number;
  readonly #burst: number;
  readonly #clock: Clock;
  /** Negative while requests wait. */
  #tokens: number;
  #atMs: number;

  constructor({ qps, burst, clock }: RateLimiterOptions) {
    this.#qps = qps === 0 ? DEFAULT_QPS : qps;
    this.#burst = burst === 0 ? DEFAULT_BURST : Math.max(1, burst);
    this.#clock = clock;
    this.#tokens = this.#burst;
    this.#atMs = clock.monotonicMs();
  }

  /** Waits for a token, or until the signal aborts. @returns the wait in milliseconds. */
  async take(signal: AbortSignal): Promise<number> {
    if (this.#qps < 0) return 0;
    const nowMs = this.#clock.monotonicMs();
    this.#tokens = Math.min(this.#burst, this.#tokens + ((nowMs - this.#atMs) / 1000) * this.#qps);
    this.#atMs = nowMs;
    this.#tokens -= 1;
    if (this.#tokens >= 0) return 0;
    const waitMs = (-this.#tokens / this.#qps) * 1000;
    await this.#clock.sleep(waitMs, signal);
    return waitMs;
  }
}
