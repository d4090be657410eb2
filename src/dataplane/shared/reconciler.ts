/**
 * Brings a kernel that takes single parts to what all service ports want of it: what is wanted, what is known to be there, what was
 * refused and keeps its last good value, and when to try again. A mode plans a service port into parts, and has a target that reads and
 * writes them. A full sync, the first one included, looks at everything and writes only what differs; any other sync writes what has
 * changed, and what is in doubt. What is in doubt the target remembers: it alone knows how to look at it.
 */
import type { Clock, Timer } from "../../async/clock.ts";
import { Mutex } from "../../async/mutex.ts";
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import type { KernelWaits } from "../../kernel/kernel-waits.ts";
import type { Logger } from "../../logging/logger.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { SyncFailure, SyncInput, SyncOutcome } from "../../sync/backend.ts";
import { PortWarnings } from "./port-warnings.ts";
import { RefusedPorts } from "./refused-ports.ts";
import type { LocalKinds, Parts, WantedParts } from "./wanted-parts.ts";

/** What a target is given to do. */
export interface Work<Kinds extends LocalKinds, Known> {
  readonly input: SyncInput;
  readonly known: Known;
  readonly wanted: WantedParts<Kinds>;
  /** Everything is compared; otherwise what was touched and what is in doubt. */
  readonly isWhole: boolean;
  readonly notes: SyncNotes;
}

/** One kernel interface. Of two methods never both are under way. */
export interface Target<Kinds extends LocalKinds, Known> {
  /** Nothing is wanted yet. */
  newWanted(): WantedParts<Kinds>;
  /** Looks at everything. Rejects when nothing can be programmed. */
  look(input: SyncInput, signal: AbortSignal): Promise<Known>;
  /** Before a sync of changes. @returns the service ports to be planned; undefined: all must be looked at again. */
  refresh(known: Known, input: SyncInput, signal: AbortSignal): Promise<Iterable<string> | undefined>;
  plan(key: string, port: ServicePort, input: SyncInput, known: Known): Parts<Kinds>;
  /** Writes. What the kernel refuses of one part goes to the notes and stops nothing else; rejects with what stops everything. */
  apply(work: Work<Kinds, Known>, signal: AbortSignal): Promise<void>;
}

/** What one sync has written and what was refused: names for health, log and journal. */
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

  /** The kernel has done it so many times. @param what in the words of the mode. */
  count(what: string, times = 1): void {
    if (times > 0) this.#counts[what] = (this.#counts[what] ?? 0) + times;
  }

  /** The first refusal of each service port counts. @param owner key of the port. @param what names it when it is for none. */
  refuse(owner: string | undefined, what: string, reason: string): void {
    this.#note({ subject: owner === undefined ? what : this.nameOf(owner), reason });
  }

  /** What every service depends on was refused. */
  refuseAll(subject: string, reason: string): void {
    this.#note({ subject, reason, concernsAll: true });
  }

  #note(failure: SyncFailure): void {
    if (!this.#failures.has(failure.subject)) this.#failures.set(failure.subject, failure);
  }
}

interface ReconcilerOptions<Kinds extends LocalKinds, Known> {
  readonly target: Target<Kinds, Known>;
  /** As messages name the kernel. */
  readonly place: string;
  readonly waits: KernelWaits;
  /** The longest pause between two attempts. */
  readonly longestRetryMs: number;
  readonly clock: Clock;
  readonly log: Logger;
}

/** The first retry comes so soon; each further one after twice the time, up to the longest. */
const FIRST_RETRY_MS = 1_000;

export class Reconciler<Kinds extends LocalKinds, Known> {
  /** Held by syncs, and by all else that asks the kernel. */
  readonly turns = new Mutex();
  /** What the target says of service ports while it plans them; those that are gone are forgotten. */
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
    this.#refused = new RefusedPorts({
      onNews: ({ subject, reason }) =>
        log.error(`Not everything is in ${place}; all else is, and this will be tried again`, new Error(reason), {
          subject,
        }),
    });
  }

  get wanted(): WantedParts<Kinds> {
    return this.#wanted;
  }

  /** As the last sync left it; undefined when the kernel is not known to match memory. */
  get known(): Known | undefined {
    return this.#known;
  }

  get hasRefused(): boolean {
    return this.#refused.size > 0;
  }

  /** The next sync looks at everything. */
  forget(): void {
    this.#known = undefined;
  }

  /** Retries ask for a sync, until the signal aborts. */
  retryBy(requestSync: () => void, signal: AbortSignal): void {
    this.#requestSync = requestSync;
    signal.addEventListener("abort", () => this.stop(), { once: true });
  }

  /** What failed need not wait for its turn. */
  hurry(): void {
    this.#retryMs = FIRST_RETRY_MS;
    this.#requestSync?.();
  }

  /** No more retries. */
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
      // If anything is thrown from here on, nothing is known of the kernel until a full sync has looked.
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
      const { lacksInternal, lacksExternal } = this.#wanted.of;
      return {
        failures: this.#refused.failures,
        noLocalEndpoints: { internal: lacksInternal.size, external: lacksExternal.size },
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

  /** @returns false when everything must be looked at after all. */
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

  /** What failed is tried again after 1, 2, 4 … seconds. */
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
