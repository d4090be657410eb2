/** The state of the daemon, kept up to date; notifies views when it changes. */
import { HELD_MS, SILENT_HEADER, type StateAnswer, type ToldSync } from "../answers.ts";
import { FAILED_PAUSE_MS, REQUEST_LIMIT_MS } from "./question.ts";

/** How many syncs the page keeps. */
const KEPT_SYNCS = 512;
/** The pause between two requests, as the daemon may change all the time. */
const PAUSE_MS = 2000;
/** A daemon that hangs answers nothing, and its connection stays open: this long after it had to answer it counts as silent. */
const SILENT_MS = 3000;

export interface Known {
  readonly answer: StateAnswer;
  /** When it came, in the browser's time. */
  readonly takenMs: number;
  /** Newest first. */
  readonly syncs: readonly ToldSync[];
}

export class State {
  known: Known | undefined;
  isSilent = false;
  /** How long the API server had been silent when the daemon last answered; undefined: there is none. */
  heardMs: number | undefined;
  /** The program that this page came from. */
  #program: string | undefined;
  /** When the daemon last answered, in the browser's time; undefined: never. */
  answeredMs: number | undefined;
  readonly #listeners = new Set<() => void>();
  /** The ETag of the last answer. */
  #tag = "";
  #timer = 0;
  #asked = new AbortController();

  /** How long ago the answer was true. */
  get ageMs(): number {
    const { answeredMs = Date.now(), known, isSilent } = this;
    return (isSilent ? answeredMs : Date.now()) - (known?.takenMs ?? Date.now());
  }

  /** Identifies the last sync: if it changes, the daemon may serve something else. */
  get place(): string {
    const { startedMs = 0, lastSync = 0 } = this.known?.answer ?? {};
    return `${startedMs} ${lastSync}`;
  }

  /** Whether another program answers than the one this page came from. */
  get isOutdated(): boolean {
    return this.#program !== undefined && this.#program !== this.known?.answer.status.program;
  }

  /** Asks while the page is visible. Who comes or goes on learns at once whether the daemon hangs. */
  start(): void {
    document.addEventListener("visibilitychange", () => this.#look());
    window.addEventListener("hashchange", () => this.#look());
    this.#look();
  }

  #look(): void {
    window.clearTimeout(this.#timer);
    this.#asked.abort();
    if (!document.hidden) void this.#ask(false);
  }

  /** The daemon does not send an unchanged state again. @param holds whether it may wait for a change before it answers. */
  async #ask(holds: boolean): Promise<void> {
    this.#asked = new AbortController();
    const { signal } = this.#asked;
    const { lastSync = 0, startedMs = 0 } = this.known?.answer ?? {};
    const path = `api/state?after=${lastSync}&of=${startedMs}`;
    let isSilent = false;
    const heldMs = holds && this.#tag !== "" ? HELD_MS : 0;
    const silence = window.setTimeout(() => {
      this.isSilent = true;
      this.#tell();
    }, heldMs + SILENT_MS);
    try {
      const response = await fetch(heldMs > 0 ? `${path}&hold` : path, {
        headers: { "If-None-Match": this.#tag },
        signal: AbortSignal.any([signal, AbortSignal.timeout(heldMs + REQUEST_LIMIT_MS)]),
      });
      // `kube-proxy page` says so where the daemon does not answer it.
      if (!response.ok && response.status !== 304) throw new Error(response.statusText);
      this.answeredMs = Date.now();
      const heard = response.headers.get(SILENT_HEADER);
      this.heardMs = heard === null ? undefined : Number(heard);
      if (response.status === 200) {
        this.#take((await response.json()) as StateAnswer);
        this.#tag = response.headers.get("etag") ?? "";
      }
    } catch {
      isSilent = true;
    }
    window.clearTimeout(silence);
    if (signal.aborted) return;
    this.isSilent = isSilent;
    this.#tell();
    this.#timer = window.setTimeout(() => void this.#ask(!isSilent), isSilent ? FAILED_PAUSE_MS : PAUSE_MS);
  }

  /** @returns a function that unsubscribes. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  #take(answer: StateAnswer): void {
    const { known } = this;
    this.#program ??= answer.status?.program;
    // A restarted daemon counts from 1.
    const before = known?.answer.startedMs === answer.startedMs ? known.syncs : [];
    const [last] = before;
    // Two concurrent requests may both return a sync.
    const added = answer.syncs.filter(({ number }) => number > (last?.number ?? 0));
    this.known = { answer, takenMs: Date.now(), syncs: [...added.toReversed(), ...before].slice(0, KEPT_SYNCS) };
  }

  #tell(): void {
    for (const listener of this.#listeners) listener();
  }
}
