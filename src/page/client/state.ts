/** What is known of the daemon, kept up to date; views are told when it changes. */
import type { StateAnswer, SyncRecord } from "../answers.ts";
import { Poll } from "./ask.ts";

/** Syncs that the page keeps. */
const KEPT_SYNCS = 300;

export interface Known {
  readonly answer: StateAnswer;
  /** The newest first. */
  readonly syncs: readonly SyncRecord[];
}

export class State {
  known: Known | undefined;
  isSilent = false;
  readonly #listeners = new Set<() => void>();

  start(): void {
    const poll = new Poll<StateAnswer>(
      () => `api/state?after=${this.known?.answer.lastSync ?? 0}`,
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
    // A daemon that was started again counts from 1.
    const isNew = this.known !== undefined && answer.lastSync < this.known.answer.lastSync;
    const before = isNew ? [] : (this.known?.syncs ?? []);
    this.known = { answer, syncs: [...answer.syncs.toReversed(), ...before].slice(0, KEPT_SYNCS) };
    this.#tell();
  }

  #tell(): void {
    for (const listener of this.#listeners) listener();
  }
}
