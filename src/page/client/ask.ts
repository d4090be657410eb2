/** Questions to the daemon. */
import type { ErrorAnswer } from "../answers.ts";
import { plain } from "./dom.ts";

/** How soon it is asked again after a question that failed: nothing need change on the node before it can be answered. */
export const FAILED_PAUSE_MS = 5000;

/** @throws Error with what the daemon says is wrong with the question; TypeError when there is no answer. */
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

/** What a view asks, one question at a time: a later one takes the place of the one before, and of one that waits. */
export class Asking {
  readonly #load: (signal: AbortSignal) => Promise<void>;
  readonly #onFailure: (text: string) => void;
  #asked = new AbortController();
  #timer = 0;

  /** @param load asks, and shows the answer unless the signal has aborted. @param onFailure told why there is none. */
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

  /** An answer is of no use now. */
  end(): void {
    window.clearTimeout(this.#timer);
    this.#asked.abort();
  }
}
