/** What is known of one endpoint that may be left out: signs of silence since the last answer, and how often it was left out. */

/** How one `connect()` of this process ended. `failed` and `refused` say nothing: this node may refuse by itself. */
export type ProbeOutcome = "answered" | "refused" | "silent" | "unreachable" | "failed";

/** Unanswered SYNs in a row: where one of ten packets is lost each way, once in 20,000 times. */
const ENOUGH_SILENCE = 6;
/** One client's silence is none: a NetworkPolicy may block it. */
const MOST_OF_ONE_SOURCE = 3;
/** In this time, own connections end, and an overloaded endpoint answers others. */
const LEAST_SILENCE_MS = 900;
const PROBE_AGAIN_MS = 1_000;
/** An endpoint is watched so long after the last sign. */
export const SUSPICION_MS = 10_000;
/** An endpoint that is back has this long to answer before the next one comes back. */
const TRIAL_MS = 5_000;
const NEVER = Number.NEGATIVE_INFINITY;

export class WatchedEndpoint {
  /** The node's name; the address where none is named. */
  readonly node: string;
  readonly isLocal: boolean;
  /** Whether an own connection was answered: only then does the silence on one count. */
  hasAnsweredProbe: boolean;
  /** Since when it is judged silent, and left out. */
  judgedMs: number | undefined;
  leftMs: number | undefined;
  /** Until then, it neither comes back nor is left out again. */
  dueMs = NEVER;
  lastAnswerMs = NEVER;
  /** There was no answer since then; before, none may have been watched. */
  silentFromMs = NEVER;
  #backMs = NEVER;
  #relapses = 0;
  #lastSignMs = NEVER;
  /** SYNs without an answer since then, by the client's source, and of own connections. */
  #sources = new Map<string, number>();
  #silentProbes = 0;
  #probedMs = NEVER;

  constructor(node: string, isLocal: boolean, hasAnsweredProbe = false) {
    this.node = node;
    this.isLocal = isLocal;
    this.hasAnsweredProbe = hasAnsweredProbe;
  }

  /** Whether it matters who is answered. */
  isSuspect(nowMs: number): boolean {
    return this.judgedMs !== undefined || nowMs - this.#lastSignMs <= SUSPICION_MS;
  }

  get #silence(): number {
    let silence = this.#silentProbes;
    for (const count of this.#sources.values()) silence += Math.min(count, MOST_OF_ONE_SOURCE);
    return silence;
  }

  get #syns(): number {
    let syns = 0;
    for (const count of this.#sources.values()) syns += count;
    return syns;
  }

  /** Whether it is silent, or was to some client: too little to leave it out, and enough to doubt this node. */
  isUnheard(nowMs: number): boolean {
    const isLong = this.isSuspect(nowMs) && nowMs - this.silentFromMs >= LEAST_SILENCE_MS;
    return this.judgedMs !== undefined || (isLong && this.#syns >= ENOUGH_SILENCE);
  }

  /** For people. */
  get reason(): string {
    return `${this.#syns} repeated SYNs were not answered${this.#silentProbes > 0 ? ", nor own connections" : ""}`;
  }

  unanswered(source: string, count: number, nowMs: number): void {
    if (!this.isSuspect(nowMs)) this.#forgetSigns(nowMs);
    this.#lastSignMs = nowMs;
    this.#sources.set(source, (this.#sources.get(source) ?? 0) + count);
  }

  answered(nowMs: number): void {
    this.lastAnswerMs = nowMs;
    if (this.leftMs !== undefined) return;
    this.judgedMs = undefined;
    this.#forgetSigns(nowMs);
  }

  #forgetSigns(nowMs: number): void {
    this.silentFromMs = nowMs;
    this.#sources = new Map();
    this.#silentProbes = 0;
  }

  probed(outcome: ProbeOutcome): void {
    if (outcome === "answered") this.hasAnsweredProbe = true;
    // A connection that began before the last answer says less than that.
    const isSign = this.hasAnsweredProbe && this.#probedMs >= this.silentFromMs;
    if (isSign && (outcome === "silent" || outcome === "unreachable")) this.#silentProbes += 1;
  }

  /** After a read, which found all answers up to now. */
  judge(nowMs: number): void {
    if (this.leftMs !== undefined) return;
    if (nowMs - this.#lastSignMs > SUSPICION_MS) {
      this.judgedMs = undefined;
      return;
    }
    // So many own connections alone are not enough.
    const enough = ENOUGH_SILENCE + (this.hasAnsweredProbe ? 1 : 0);
    if (nowMs - this.silentFromMs >= LEAST_SILENCE_MS && this.#silence >= enough) this.judgedMs ??= nowMs;
  }

  leave(nowMs: number, backOffMs: number, longestMs: number): void {
    if (nowMs - this.#backMs > longestMs) this.#relapses = 0;
    this.leftMs = nowMs;
    this.dueMs = nowMs + Math.min(longestMs, backOffMs * 2 ** this.#relapses);
    this.#relapses += 1;
  }

  comeBack(nowMs: number): void {
    this.leftMs = undefined;
    this.judgedMs = undefined;
    this.#backMs = nowMs;
    this.#lastSignMs = nowMs;
    this.#forgetSigns(nowMs);
  }

  /** It answers an own connection, or only time can tell. */
  mayComeBack(nowMs: number): boolean {
    return nowMs >= this.dueMs && (this.lastAnswerMs >= this.dueMs || !this.hasAnsweredProbe);
  }

  /** It came back, and has not answered yet. */
  isOnTrial(nowMs: number): boolean {
    return nowMs - this.#backMs < TRIAL_MS && this.lastAnswerMs <= this.#backMs;
  }

  /** Whether it is still to be found out if own connections are allowed. */
  get isUntried(): boolean {
    return this.#probedMs === NEVER && !this.hasAnsweredProbe;
  }

  /** @returns how many own connections to begin now. */
  beginProbes(nowMs: number): number {
    const count = this.#wantedProbes(nowMs);
    if (count > 0) this.#probedMs = nowMs;
    return count;
  }

  #wantedProbes(nowMs: number): number {
    // At once, to see whether that was wrong.
    if ((this.leftMs === nowMs && this.#probedMs !== nowMs) || this.isUntried) return 1;
    if (nowMs - this.#probedMs < PROBE_AGAIN_MS) return 0;
    if (this.leftMs !== undefined) return nowMs >= this.dueMs && this.hasAnsweredProbe ? 1 : 0;
    if (this.#silentProbes > 0 || this.#lastSignMs < this.silentFromMs) return 0;
    return this.hasAnsweredProbe ? ENOUGH_SILENCE : 1;
  }
}
