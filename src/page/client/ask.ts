/** Requests to the daemon. */
import type { ErrorAnswer } from "../answers.ts";
import { plain } from "./dom.ts";

/** The pause after a failed request: the next one may succeed although nothing changes on the node. */
export const FAILED_PAUSE_MS = 5000;

/** @throws Error with the daemon's message about the request; TypeError if there is no answer. */
export async function ask<Answer>(path: string, query: Readonly<Record<string, string>>, signal?: AbortSignal) {
  const response = await fetch(`${path}?${new URLSearchParams(query)}`, { signal: signal ?? null });
  if (response.ok) return (await response.json()) as Answer;
  const isJson = response.headers.get("content-type") === "application/json";
  throw new Error(isJson ? ((await response.json()) as ErrorAnswer).error : await response.text());
}

/** Why there is no answer. */
export function failureText(error: unknown): string {
  return error instanceof Error ? plain(error.message) : "No answer";
}

/** The requests of a view, one at a time: a new one replaces the current and the scheduled one. */
export class Asking {
  readonly #load: (signal: AbortSignal) => Promise<void>;
  readonly #onFailure: (text: string) => void;
  #asked = new AbortController();
  #timer = 0;

  /** @param load asks, and shows the answer unless the signal has aborted. @param onFailure gets why there is none. */
  constructor(load: (signal: AbortSignal) => Promise<void>, onFailure: (text: string) => void) {
    this.#load = load;
    this.#onFailure = onFailure;
  }

  async now(load = this.#load): Promise<void> {
    this.end();
    this.#asked = new AbortController();
    const { signal } = this.#asked;
    try {
      await load(signal);
    } catch (error) {
      if (!signal.aborted) this.#onFailure(failureText(error));
    }
  }

  soon(delayMs: number): void {
    window.clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => void this.now(), delayMs);
  }

  get hasEnded(): boolean {
    return this.#asked.signal.aborted;
  }

  /** Aborts the current request and drops the scheduled one. */
  end(): void {
    window.clearTimeout(this.#timer);
    this.#asked.abort();
  }
}
