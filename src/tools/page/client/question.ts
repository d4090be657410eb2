/** A question of a view to the daemon: it is repeated when the node has changed, and after a failure. */
import type { ErrorAnswer } from "../answers.ts";

/** The pause after a failed request: the next one may succeed although nothing changes on the node. */
export const FAILED_PAUSE_MS = 5000;
/** The shortest pause between two requests after changes, if the answer names none. */
const AGAIN_MS = 2000;
/** A daemon that has not answered by then hangs. */
export const REQUEST_LIMIT_MS = 30_000;

export class Question<Answer> {
  answer: Answer | undefined;
  /** Why there is no answer now; empty if there is one. */
  failure = "";
  isAsking = false;
  readonly #path: string;
  readonly #onChange: () => void;
  #query: Readonly<Record<string, string>> = {};
  #asked = new AbortController();
  #timer = 0;
  /** When it was last asked, in the browser's time. */
  askedMs = Number.NEGATIVE_INFINITY;
  #isStale = false;

  /** @param onChange called when any of the public fields has changed. */
  constructor(path: string, onChange: () => void) {
    this.#path = path;
    this.#onChange = onChange;
  }

  /** A new question replaces the current and the scheduled one. Empty values are left out. */
  ask(query: Readonly<Record<string, string>>, delayMs = 0): void {
    this.end();
    this.#query = Object.fromEntries(Object.entries(query).filter(([, value]) => value !== ""));
    if (delayMs === 0) void this.#now();
    else this.#soon(delayMs);
  }

  /** The same question, soon, and after the answer to the current one. An answer that costs the daemon much names a longer pause. */
  again(): void {
    this.#isStale = this.isAsking;
    const { pauseMs = AGAIN_MS } = (this.answer ?? {}) as { readonly pauseMs?: number };
    if (!this.isAsking) this.#soon(Math.max(0, this.askedMs + pauseMs - Date.now()));
  }

  /** Aborts the current request and drops the scheduled one. */
  end(): void {
    window.clearTimeout(this.#timer);
    this.#asked.abort();
    this.isAsking = false;
  }

  #soon(delayMs: number): void {
    window.clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => void this.#now(), delayMs);
  }

  async #now(): Promise<void> {
    this.end();
    this.#asked = new AbortController();
    const { signal } = this.#asked;
    this.#isStale = false;
    this.isAsking = true;
    this.askedMs = Date.now();
    this.#onChange();
    try {
      const limited = AbortSignal.any([signal, AbortSignal.timeout(REQUEST_LIMIT_MS)]);
      const answer = await ask<Answer>(this.#path, this.#query, limited);
      if (signal.aborted) return;
      this.answer = answer;
      this.failure = "";
    } catch (error) {
      if (signal.aborted) return;
      this.failure = error instanceof Error ? error.message : "No answer";
    }
    this.isAsking = false;
    this.#onChange();
    if (this.failure !== "") this.#soon(FAILED_PAUSE_MS);
    else if (this.#isStale) this.again();
  }
}

/** @throws Error with the daemon's message about the request; TypeError if there is no answer. */
async function ask<Answer>(path: string, query: Readonly<Record<string, string>>, signal: AbortSignal) {
  const response = await fetch(`${path}?${new URLSearchParams(query)}`, { signal });
  if (response.ok) return (await response.json()) as Answer;
  const isJson = response.headers.get("content-type") === "application/json";
  throw new Error(isJson ? ((await response.json()) as ErrorAnswer).error : await response.text());
}
