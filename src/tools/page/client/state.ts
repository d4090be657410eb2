/** The state of the daemon, kept up to date; notifies views when it changes. */
import { SILENT_HEADER, type StateAnswer, type ToldSync } from "../answers.ts";
import { FAILED_PAUSE_MS, REQUEST_LIMIT_MS } from "./question.ts";

/** How many syncs the page keeps. */
const KEPT_SYNCS = 512;
/** The pause between two requests. */
const PAUSE_MS = 2000;
/** A daemon that hangs answers nothing, and its connection stays open: this long after the last answer it counts as silent. */
const SILENT_MS = 5000;

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
  /** The ETag of the last answer, and the path it belongs to. */
  #tag = { path: "", value: "" };
  #timer = 0;

  /** Identifies the last sync: if it changes, the daemon may serve something else. */
  get place(): string {
    const { startedMs = 0, lastSync = 0 } = this.known?.answer ?? {};
    return `${startedMs} ${lastSync}`;
  }

  /** Whether another program answers than the one this page came from. */
  get isOutdated(): boolean {
    return this.#program !== undefined && this.#program !== this.known?.answer.status.program;
  }

  /** Polls while the page is visible. */
  start(): void {
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) void this.#ask();
    });
    void this.#ask();
  }

  /** The daemon does not send an unchanged state again. */
  async #ask(): Promise<void> {
    window.clearTimeout(this.#timer);
    const { lastSync = 0, startedMs = 0 } = this.known?.answer ?? {};
    const path = `api/state?after=${lastSync}&of=${startedMs}`;
    let isSilent = false;
    const silence = window.setTimeout(() => this.#setSilent(true), SILENT_MS - PAUSE_MS);
    try {
      const response = await fetch(path, {
        headers: path === this.#tag.path ? { "If-None-Match": this.#tag.value } : {},
        signal: AbortSignal.timeout(REQUEST_LIMIT_MS),
      });
      this.answeredMs = Date.now();
      const silent = response.headers.get(SILENT_HEADER);
      this.heardMs = silent === null ? undefined : Number(silent);
      if (response.status === 200) {
        this.#take((await response.json()) as StateAnswer);
        this.#tag = { path, value: response.headers.get("etag") ?? "" };
      }
    } catch {
      isSilent = true;
    }
    window.clearTimeout(silence);
    this.#setSilent(isSilent);
    const pauseMs = isSilent ? FAILED_PAUSE_MS : PAUSE_MS;
    if (!document.hidden) this.#timer = window.setTimeout(() => void this.#ask(), pauseMs);
  }

  #setSilent(isSilent: boolean): void {
    if (isSilent === this.isSilent) return;
    this.isSilent = isSilent;
    this.#tell();
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
    this.#tell();
  }

  #tell(): void {
    for (const listener of this.#listeners) listener();
  }
}
