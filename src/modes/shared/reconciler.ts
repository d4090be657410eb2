/**
 * Reconciles a kernel interface that takes single parts with what all service ports want. Keeps the wanted parts, the known
 * state, the rejected parts with their last known good values, and the backoff. A mode plans a service port into parts, and has
 * a target that reads and writes them. A full sync, including the first, reads everything and writes only what differs; any
 * other sync writes what changed and what is in doubt. The target remembers what is in doubt, as only it can check it.
 */
import type { Clock, Timer } from "../../async/clock.ts";
import { Mutex } from "../../async/mutex.ts";
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import type { SyncFailure, SyncInput, SyncOutcome } from "../../contract/backend.ts";
import type { KernelWaits } from "../../kernel/kernel-waits.ts";
import type { Logger } from "../../logging/logger.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { PortWarnings } from "./port-warnings.ts";
import { RefusedPorts } from "./refused-ports.ts";
import type { Parts, WantedParts } from "./wanted-parts.ts";

/** The work of one sync for a target. */
export interface Work<Kinds, Known> {
  readonly input: SyncInput;
  readonly known: Known;
  readonly wanted: WantedParts<Kinds>;
  /** Whether everything is compared, or only what changed and what is in doubt. */
  readonly isWhole: boolean;
  readonly notes: SyncNotes;
}

/** One kernel interface. Its methods never run concurrently. */
export interface Target<Kinds, Known> {
  /** Makes an empty wanted state. */
  newWanted(): WantedParts<Kinds>;
  /** Reads everything. Rejects if nothing can be programmed. */
  look(input: SyncInput, signal: AbortSignal): Promise<Known>;
  /** Called before a sync of changes. @returns the service ports to plan; undefined if a full sync is needed. */
  refresh(known: Known, input: SyncInput, signal: AbortSignal): Promise<Iterable<string> | undefined>;
  plan(key: string, port: ServicePort, input: SyncInput, known: Known): Parts<Kinds>;
  /** Writes. Records the refusal of a part in the notes, and goes on; rejects with errors that stop everything. */
  apply(work: Work<Kinds, Known>, signal: AbortSignal): Promise<void>;
}

/** What one sync wrote and what the kernel rejected, for health, log and journal. */
export class SyncNotes {
  readonly #services: ReadonlyMap<string, ServicePort>;
  readonly #failures = new Map<string, SyncFailure>();
  readonly #counts: Record<string, number> = {};

  constructor(services: ReadonlyMap<string, ServicePort> = new Map()) {
    this.#services = services;
  }

  get failures(): ReadonlyMap<string, SyncFailure> {
    return this.#failures;
  }

  get counts(): Readonly<Record<string, number>> {
    return { ...this.#counts };
  }

  /** `namespace/name:port` of a service port. */
  nameOf(owner: string): string {
    return this.#services.get(owner)?.name.text ?? owner;
  }

  /** Counts operations of the kernel. @param what the mode's name of the operation. */
  count(what: string, times = 1): void {
    if (times > 0) this.#counts[what] = (this.#counts[what] ?? 0) + times;
  }

  /** Records the first refusal of each subject. @param owner key of the service port. @param what names what has no owner. */
  refuse(owner: string | undefined, what: string, reason: string): void {
    this.#note({ subject: owner === undefined ? what : this.nameOf(owner), reason });
  }

  /** Records the refusal of something that every Service needs. */
  refuseAll(subject: string, reason: string): void {
    this.#note({ subject, reason, concernsAll: true });
  }

  #note(failure: SyncFailure): void {
    if (!this.#failures.has(failure.subject)) this.#failures.set(failure.subject, failure);
  }
}

interface ReconcilerOptions<Kinds, Known> {
  readonly target: Target<Kinds, Known>;
  /** The name of the kernel interface in messages. */
  readonly place: string;
  readonly waits: KernelWaits;
  /** The longest pause between two attempts. */
  readonly longestRetryMs: number;
  readonly clock: Clock;
  readonly log: Logger;
}

/** The delay of the first retry; each further delay is twice as long, up to the longest. */
const FIRST_RETRY_MS = 1_000;

export class Reconciler<Kinds, Known> {
  /** Held by syncs, and by everything else that uses the kernel interface. */
  readonly turns = new Mutex();
  /** The target's warnings from planning service ports; those of deleted ports are forgotten. */
  readonly warnings: PortWarnings;
  readonly #options: ReconcilerOptions<Kinds, Known>;
  readonly #refused: RefusedPorts;
  #wanted: WantedParts<Kinds>;
  #known: Known | undefined;
  #retryMs = FIRST_RETRY_MS;
  #retry: Timer | undefined;
  #requestSync: (() => void) | undefined;
  #isStopped = false;

  constructor(options: ReconcilerOptions<Kinds, Known>) {
    const { target, place, log } = options;
    this.#options = options;
    this.#wanted = target.newWanted();
    this.warnings = new PortWarnings(log);
    const failed = `A part failed to reach ${place}; the rest is there, and a retry follows`;
    this.#refused = new RefusedPorts(
      ({ subject, reason }) => log.error(failed, new Error(reason), { subject }),
      ({ subject }) => log.info(`A part that failed is in ${place}, or gone`, { subject, solves: failed }),
    );
  }

  get wanted(): WantedParts<Kinds> {
    return this.#wanted;
  }

  /** The state after the last sync; undefined if the kernel is not known to match it. */
  get known(): Known | undefined {
    return this.#known;
  }

  get hasRefused(): boolean {
    return this.#refused.size > 0;
  }

  /** Makes the next sync a full one. */
  forget(): void {
    this.#known = undefined;
  }

  /** Lets retries request syncs until the signal aborts. */
  retryBy(requestSync: () => void, signal: AbortSignal): void {
    this.#requestSync = requestSync;
    signal.addEventListener("abort", () => this.stop(), { once: true });
  }

  /** Requests a retry at once, and resets the backoff. */
  hurry(): void {
    this.#retryMs = FIRST_RETRY_MS;
    this.#requestSync?.();
  }

  /** Stops all retries. */
  stop(): void {
    this.#isStopped = true;
    this.#requestSync = undefined;
    this.#retry?.cancel();
  }

  sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    return this.turns.run(async () => {
      const notes = new SyncNotes(input.services);
      const { waits } = this.#options;
      waits.begin();
      const known = input.isFullSync ? undefined : this.#known;
      // After an error from here on, nothing is known of the kernel until a full sync has read it.
      this.#known = undefined;
      try {
        const isDone = known !== undefined && (await this.#partialSync(known, input, notes, signal));
        this.#known = isDone ? known : await this.#fullSync(input, notes, signal);
      } catch (error) {
        if (!signal.aborted) this.#afterSync(true);
        throw error;
      }
      this.#refused.replace(notes.failures);
      this.#afterSync(this.hasRefused);
      return {
        failures: [...this.#refused.values()],
        written: { counts: notes.counts, kernelMs: waits.ms },
        wasFull: this.#known !== known,
      };
    }, signal);
  }

  async #fullSync(input: SyncInput, notes: SyncNotes, signal: AbortSignal): Promise<Known> {
    const { target } = this.#options;
    const known = await target.look(input, signal);
    const wanted = target.newWanted();
    for (const [key, port] of input.services) {
      wanted.put(key, target.plan(key, port, input, known));
      if (isTurnDue()) await giveTurn(signal);
    }
    this.#wanted = wanted;
    this.warnings.keepOnly(input.services);
    await target.apply({ input, known, wanted, isWhole: true, notes }, signal);
    return known;
  }

  /** @returns false if a full sync is needed after all. */
  async #partialSync(known: Known, input: SyncInput, notes: SyncNotes, signal: AbortSignal): Promise<boolean> {
    const { target } = this.#options;
    const ports = await target.refresh(known, input, signal);
    if (ports === undefined) return false;
    const wanted = this.#wanted;
    wanted.track();
    for (const key of ports) {
      const port = input.services.get(key);
      if (port === undefined) this.warnings.note(key, []);
      wanted.put(key, port && target.plan(key, port, input, known));
      if (isTurnDue()) await giveTurn(signal);
    }
    await target.apply({ input, known, wanted, isWhole: false, notes }, signal);
    return true;
  }

  /** Schedules a retry of what failed after 1, 2, 4 … seconds. */
  #afterSync(hasFailed: boolean): void {
    const { clock, longestRetryMs } = this.#options;
    this.#retry?.cancel();
    if (!hasFailed) {
      this.#retryMs = FIRST_RETRY_MS;
      return;
    }
    if (this.#isStopped) return;
    this.#retry = clock.setTimer(this.#retryMs, () => this.#requestSync?.());
    this.#retryMs = Math.min(this.#retryMs * 2, longestRetryMs);
  }
}
