/** What is known of the daemon, kept up to date; views are told when it changes. */
import type { StateAnswer, ToldSync } from "../answers.ts";
import { Poll } from "./ask.ts";

/** Syncs that the page keeps. */
const KEPT_SYNCS = 300;

export interface Known {
  readonly answer: StateAnswer;
  /** The newest first. */
  readonly syncs: readonly ToldSync[];
}

export class State {
  known: Known | undefined;
  isSilent = false;
  readonly #listeners = new Set<() => void>();

  /** Of the last sync: another one, and what the daemon serves may have changed. */
  get place(): string {
    const { startedMs = 0, lastSync = 0 } = this.known?.answer ?? {};
    return `${startedMs} ${lastSync}`;
  }

  start(): void {
    const poll = new Poll<StateAnswer>(
      () => `api/state?after=${this.known?.answer.lastSync ?? 0}&of=${this.known?.answer.startedMs ?? 0}`,
      (answer) => this.#take(answer),
      (isSilent) => {
        if (isSilent === this.isSilent) return;
        this.isSilent = isSilent;
        this.#tell();
      },
    );
    void poll.run();
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

/** Fills the main part; called with the query of the address. @returns what ends the view. */
export type View = (main: HTMLElement, query: URLSearchParams, state: State) => () => void;
