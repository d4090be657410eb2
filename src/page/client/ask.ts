/** Questions to the daemon. */
import type { ErrorAnswer } from "../answers.ts";

/** How soon it is asked again after a question that failed: nothing need change on the node before it can be answered. */
export const FAILED_PAUSE_MS = 5000;

/** What the daemon says is wrong with a question, in words. */
class RefusedError extends Error {}

/** @throws RefusedError with the daemon's words; TypeError when there is no answer. */
export async function ask<Answer>(path: string, query: Readonly<Record<string, string>>, signal?: AbortSignal) {
  const response = await fetch(`${path}?${new URLSearchParams(query)}`, { signal: signal ?? null });
  if (response.ok) return (await response.json()) as Answer;
  const isJson = response.headers.get("content-type") === "application/json";
  throw new RefusedError(isJson ? ((await response.json()) as ErrorAnswer).error : await response.text());
}

/** Asks again and again while the page is seen; what has not changed is not sent. */
export class Poll<Answer> {
  readonly #path: () => string;
  readonly #onAnswer: (answer: Answer) => void;
  readonly #onSilence: (isSilent: boolean) => void;
  #tag = "";
  #tagPath = "";
  #timer = 0;

  constructor(path: () => string, onAnswer: (answer: Answer) => void, onSilence: (isSilent: boolean) => void) {
    this.#path = path;
    this.#onAnswer = onAnswer;
    this.#onSilence = onSilence;
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) void this.run();
    });
  }

  async run(): Promise<void> {
    window.clearTimeout(this.#timer);
    let pauseMs = 2000;
    try {
      const path = this.#path();
      const headers = path === this.#tagPath ? { "If-None-Match": this.#tag } : undefined;
      const response = await fetch(path, { headers: headers ?? {} });
      if (response.status === 200) {
        this.#onAnswer((await response.json()) as Answer);
        this.#tag = response.headers.get("etag") ?? "";
        this.#tagPath = path;
      }
      this.#onSilence(false);
    } catch {
      this.#onSilence(true);
      pauseMs = FAILED_PAUSE_MS;
    }
    if (!document.hidden) this.#timer = window.setTimeout(() => void this.run(), pauseMs);
  }
}
