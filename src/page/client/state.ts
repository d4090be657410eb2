/** What is known of the daemon, kept up to date; views are told when it changes. */
import type { StateAnswer, ToldSync } from "../answers.ts";
import { FAILED_PAUSE_MS } from "./ask.ts";

/** Syncs that the page keeps. */
const KEPT_SYNCS = 300;
/** How soon it is asked again. */
const PAUSE_MS = 2000;

export interface Known {
  readonly answer: StateAnswer;
  /** The newest first. */
  readonly syncs: readonly ToldSync[];
}

export class State {
  known: Known | undefined;
  isSilent = false;
  readonly #listeners = new Set<() => void>();
  /** Of the last answer, and what it was to. */
  #tag = { path: "", value: "" };
  #timer = 0;

  /** Of the last sync: another one, and what the daemon serves may have changed. */
  get place(): string {
    const { startedMs = 0, lastSync = 0 } = this.known?.answer ?? {};
    return `${startedMs} ${lastSync}`;
  }

  /** Asks again and again while the page is seen. */
  start(): void {
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) void this.#ask();
    });
    void this.#ask();
  }

  /** What has not changed is not sent. */
  async #ask(): Promise<void> {
    window.clearTimeout(this.#timer);
    const { lastSync = 0, startedMs = 0 } = this.known?.answer ?? {};
    const path = `api/state?after=${lastSync}&of=${startedMs}`;
    let isSilent = false;
    try {
      const response = await fetch(path, {
        headers: path === this.#tag.path ? { "If-None-Match": this.#tag.value } : {},
      });
      if (response.status === 200) {
        this.#take((await response.json()) as StateAnswer);
        this.#tag = { path, value: response.headers.get("etag") ?? "" };
      }
    } catch {
      isSilent = true;
    }
    if (isSilent !== this.isSilent) {
      this.isSilent = isSilent;
      this.#tell();
    }
    const pauseMs = isSilent ? FAILED_PAUSE_MS : PAUSE_MS;
    if (!document.hidden) this.#timer = window.setTimeout(() => void this.#ask(), pauseMs);
  }

  /** @returns what ends it. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  #take(answer: StateAnswer): void {
    const { known } = this;
    // A daemon that was started again counts from 1.
    const before = known?.answer.startedMs === answer.startedMs ? known.syncs : [];
    const [last] = before;
    // Of two questions at once, both bring the same.
    const added = answer.syncs.filter(({ number }) => number > (last?.number ?? 0));
    this.known = { answer, syncs: [...added.toReversed(), ...before].slice(0, KEPT_SYNCS) };
    this.#tell();
  }

  #tell(): void {
    for (const listener of this.#listeners) listener();
  }
}

/** Tells when what the daemon serves may have changed. @returns what ends it. */
export function onNewPlace(state: Pick<State, "place" | "onChange">, listener: () => void): () => void {
  let seen = state.place;
  return state.onChange(() => {
    if (state.place === seen) return;
    seen = state.place;
    listener();
  });
}

/** Fills the main part; called with the query of the address. @returns what ends the view. */
export type View = (main: HTMLElement, query: URLSearchParams, state: State) => () => void;
