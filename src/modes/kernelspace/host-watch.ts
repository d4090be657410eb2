/**
 * Decides when to check HNS between syncs. It sends notifications about networks, attached endpoints of pods and its
 * own end, but not about deleted load balancers and endpoints: so it is also polled every few seconds, which costs
 * three calls. Reference windows-hcn.md §4.1, windows-practice.md §8.
 */
import type { Mutex } from "../../async/mutex.ts";
import { restAfterLook } from "../shared/look-rest.ts";
import type { Hcn } from "./hcn/hcn.ts";
import { HNS_NOTICES } from "./hcn/hcn-calls.ts";
import type { KernelspaceOptions } from "./options.ts";

interface HostWatchOptions extends Pick<KernelspaceOptions, "syncPeriodMs" | "clock" | "log"> {
  readonly hcn: Pick<Hcn, "watch">;
  /** Held while HNS is called: only one call may be in progress at a time. */
  readonly turns: Mutex;
}

const NOTICES: ReadonlySet<number> = new Set(Object.values(HNS_NOTICES));
/** The polling period without notifications. */
const LOOK_MS = 5_000;
/** Notifications within this time cause one check. */
const GATHER_MS = 500;

export class HostWatch {
  readonly #options: HostWatchOptions;
  #wake: (() => void) | undefined;
  #hasNotice = false;
  /** Ends the registration; undefined if there is none. */
  #end: (() => Promise<void>) | undefined;
  /** HNS has stopped, so its return is to be reported. */
  #isGone = false;
  /** The last logged error of a check, which is not repeated. */
  #told = "";
  /** The last logged reason why HNS sends no notifications. */
  #deaf = "";

  constructor(options: HostWatchOptions) {
    this.#options = options;
  }

  /**
   * Runs until the signal aborts.
   *
   * @param look checks whether other programs changed something.
   * @param onBack HNS answers again: what failed in the meantime need not wait for its retry.
   */
  async run(look: () => Promise<void>, signal: AbortSignal, onBack: () => void): Promise<void> {
    try {
      let tookMs = 0;
      while (!signal.aborted) {
        await this.#listen(onBack);
        await this.#pause(restAfterLook(tookMs, this.#options.syncPeriodMs), signal);
        if (signal.aborted) return;
        tookMs = await this.#look(look, signal);
      }
    } finally {
      await this.#stopListening();
    }
  }

  /** @returns how long it took. */
  async #look(look: () => Promise<void>, signal: AbortSignal): Promise<number> {
    const { clock, turns, log } = this.#options;
    this.#hasNotice = false;
    let beganMs = clock.monotonicMs();
    try {
      await turns.run(async () => {
        beganMs = clock.monotonicMs();
        await look();
      });
      this.#told = "";
    } catch (error) {
      if (signal.aborted) return 0;
      const text = String(error);
      if (text !== this.#told) log.error("Failed to check HNS for changes", error);
      this.#told = text;
    }
    return clock.monotonicMs() - beganMs;
  }

  /** Registers for notifications; without them, polling goes on. */
  async #listen(onBack: () => void): Promise<void> {
    const { hcn, turns, log } = this.#options;
    if (this.#isGone) await this.#stopListening();
    if (this.#end !== undefined) return;
    try {
      this.#end = await turns.run(() => hcn.watch((notice) => this.#onNotice(notice)));
    } catch (error) {
      const text = String(error);
      if (text !== this.#deaf) log.v(2, "HNS sends no notifications of changes; it is polled only", { error: text });
      this.#deaf = text;
      return;
    }
    this.#deaf = "";
    if (!this.#isGone) return;
    this.#isGone = false;
    log.info("HNS is back");
    this.#hasNotice = true;
    onBack();
  }

  async #stopListening(): Promise<void> {
    const end = this.#end;
    this.#end = undefined;
    await end?.();
  }

  #onNotice(notice: number): void {
    if (!NOTICES.has(notice)) return;
    if (notice === HNS_NOTICES.serviceGone && !this.#isGone) {
      this.#isGone = true;
      this.#options.log.warn("HNS stops or restarts; everything is read again when it is back");
    }
    this.#hasNotice = true;
    this.#wake?.();
  }

  /** Ends early on a notification, even one from before. */
  async #pause(leastMs: number, signal: AbortSignal): Promise<void> {
    const { clock, syncPeriodMs } = this.#options;
    const within = (ms: number): number => Math.min(Math.max(ms, leastMs), syncPeriodMs);
    const paused = new AbortController();
    this.#wake = () => paused.abort();
    if (!this.#hasNotice) await clock.sleep(within(LOOK_MS), AbortSignal.any([signal, paused.signal]));
    this.#wake = undefined;
    if (this.#hasNotice) await clock.sleep(within(GATHER_MS), signal);
  }
}
