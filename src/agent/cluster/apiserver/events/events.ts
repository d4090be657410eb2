/**
 * Sends events to the API server, aggregated and rate-limited, without blocking anything (reference operation.md §8.4).
 * Equal events become one object with a count; events that do not fit into the queue are dropped.
 */

import { randomUUID } from "node:crypto";
import type { Clock } from "../../../../async/clock.ts";
import type { Logger } from "../../../../logging/logger.ts";
import { isDnsSubdomain } from "../../../../model/projection/names.ts";
import { ApiError } from "../connection/api-error.ts";
import type { ApiRequest, Transport } from "../connection/transport.ts";
import {
  type EventFacts,
  type EventState,
  type EventSubject,
  eventNamespace,
  eventObject,
  seriesObject,
} from "./event-object.ts";

const QUEUE_LENGTH = 1_000;
const MAX_ATTEMPTS = 12;
const RETRY_MS = 10_000;
/** The jitter: lengthens a wait by up to this share. */
const RETRY_JITTER = 0.25;
/** How often a continuing series is written. */
const REFRESH_MS = 1_800_000;
/** After this long without a repetition a series ends; the next event is a new object. */
const FINISH_MS = 360_000;
const IDLE_MS = 30_000;
const JSON_TYPE = "application/json";
const PATCH_TYPE = "application/strategic-merge-patch+json";

interface EventRecorderOptions {
  readonly transport: Pick<Transport, "send">;
  /** The host's own name, not `hostnameOverride`. */
  readonly hostname: string;
  /** The UID of an event's subject, by which `kubectl describe` finds events. @default unknown */
  readonly uidOf?: (subject: EventSubject) => string | undefined;
  readonly clock: Clock;
  readonly log: Logger;
  /** Returns numbers in [0, 1). @default Math.random */
  readonly random?: () => number;
}

interface Recorded extends EventState {
  series: EventState["series"];
  /** Monotonic time, so that setting the clock does not end a series. */
  seenAtMs: number;
}

/** What the program uses of a recorder. */
export type Events = Pick<EventRecorder, "record" | "run" | "idle">;

/** Events recorded before `run` are sent once it runs. */
export class EventRecorder {
  readonly #options: EventRecorderOptions;
  /** By content. */
  readonly #recorded = new Map<string, Recorded>();
  #queue: Recorded[] = [];
  #wake: (() => void) | undefined;
  #isDelivering = false;
  #waiting: (() => void)[] = [];
  #nameCount = 0;
  #refreshedAtMs: number;
  #tidiedAtMs: number;

  constructor(options: EventRecorderOptions) {
    this.#options = options;
    this.#refreshedAtMs = options.clock.monotonicMs();
    this.#tidiedAtMs = this.#refreshedAtMs;
  }

  /** Queues an event; never waits or throws. */
  record(event: EventFacts): void {
    const { clock } = this.#options;
    const facts = { ...event, regarding: this.#identified(event.regarding) };
    const nowMs = clock.now();
    const seenAtMs = clock.monotonicMs();
    const key = JSON.stringify(facts);
    const known = this.#recorded.get(key);
    if (known !== undefined) known.seenAtMs = seenAtMs;
    if (known?.series !== undefined) {
      known.series = { count: known.series.count + 1, lastObservedMs: nowMs };
      return;
    }
    if (this.#queue.length >= QUEUE_LENGTH) {
      this.#options.log.v(2, "Dropped an event, too many are waiting", { reason: facts.reason });
      return;
    }
    if (known === undefined) {
      const recorded = { facts, name: this.#newName(facts, nowMs), timeMs: nowMs, series: undefined, seenAtMs };
      this.#recorded.set(key, recorded);
      this.#enqueue(recorded);
    } else {
      known.series = { count: 2, lastObservedMs: nowMs };
      this.#enqueue(known);
    }
    this.#wake?.();
  }

  /** An event that is already queued includes later repetitions. */
  #enqueue(recorded: Recorded): void {
    if (!this.#queue.includes(recorded)) this.#queue.push(recorded);
  }

  /** Sends recorded events until the signal aborts. Call once. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      // Also if there is always something to send.
      if (this.#options.clock.monotonicMs() - this.#tidiedAtMs >= IDLE_MS) this.#tidy();
      const next = this.#queue.shift();
      if (next !== undefined) {
        this.#isDelivering = true;
        await this.#deliver(next, signal);
        this.#isDelivering = false;
        continue;
      }
      for (const resolve of this.#waiting.splice(0)) resolve();
      await this.#sleep(signal);
    }
  }

  /** Resolves when every event recorded so far was sent or dropped. */
  idle(): Promise<void> {
    if (this.#queue.length === 0 && !this.#isDelivering) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Adds the UID: for a Node that is not known yet its name, as in kubelet's events. kubectl looks for both. */
  #identified(subject: EventSubject): EventSubject {
    const uid = this.#options.uidOf?.(subject) ?? (subject.kind === "Node" ? subject.name : undefined);
    return uid === undefined ? subject : { ...subject, uid };
  }

  #newName({ regarding }: EventFacts, nowMs: number): string {
    this.#nameCount = (this.#nameCount + 1) % 1_000_000;
    const nanoseconds = BigInt(Math.trunc(nowMs)) * 1_000_000n + BigInt(this.#nameCount);
    const name = `${regarding.name}.${nanoseconds.toString(16)}`;
    // As upstream: a Node's name may be too long to append the rest.
    return isDnsSubdomain(name) ? name : randomUUID();
  }

  async #sleep(signal: AbortSignal): Promise<void> {
    const woken = new AbortController();
    this.#wake = () => woken.abort();
    await this.#options.clock.sleep(IDLE_MS, AbortSignal.any([signal, woken.signal]));
    this.#wake = undefined;
  }

  /** Writes continuing series now and then, and forgets ended ones. */
  #tidy(): void {
    const { clock } = this.#options;
    const nowMs = clock.monotonicMs();
    this.#tidiedAtMs = nowMs;
    const isRefresh = nowMs - this.#refreshedAtMs >= REFRESH_MS;
    if (isRefresh) this.#refreshedAtMs = nowMs;
    for (const [key, recorded] of this.#recorded) {
      const { series } = recorded;
      const isOver = nowMs - recorded.seenAtMs >= FINISH_MS;
      if (isOver) this.#recorded.delete(key);
      if (series !== undefined && (isOver || isRefresh)) this.#enqueue(recorded);
    }
  }

  async #deliver(recorded: Recorded, signal: AbortSignal): Promise<void> {
    const { clock, log, random = Math.random } = this.#options;
    const event = recorded.name;
    for (let attempt = 1; attempt <= MAX_ATTEMPTS && !signal.aborted; attempt++) {
      try {
        return await this.#write(recorded, signal);
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        const { status, retryAfterMs } = error.facts;
        // An earlier attempt succeeded but its response was lost.
        if (status === 409 && attempt > 1) return;
        const isPutOff = retryAfterMs !== undefined && status !== undefined && (status === 429 || status >= 500);
        if (status !== undefined && !isPutOff) {
          log.error("Server rejected event (will not retry!)", error, { event });
          return;
        }
        log.v(2, "Unable to write event, trying again", { event, reason: error.message });
        if (attempt < MAX_ATTEMPTS)
          await clock.sleep((retryAfterMs ?? RETRY_MS) * (1 + RETRY_JITTER * random()), signal);
      }
    }
    if (!signal.aborted) log.error("Unable to write event (retry limit exceeded!)", undefined, { event });
  }

  async #write(recorded: Recorded, signal: AbortSignal): Promise<void> {
    const { facts, name, series } = recorded;
    const path = `/apis/events.k8s.io/v1/namespaces/${eventNamespace(facts)}/events`;
    const create = (): Promise<void> => {
      const text = JSON.stringify(eventObject(recorded, this.#options.hostname));
      return this.#send({ verb: "create", method: "POST", path, body: { contentType: JSON_TYPE, text } }, signal);
    };
    if (series === undefined) return await create();
    const patch = { contentType: PATCH_TYPE, text: JSON.stringify({ series: seriesObject(series) }) };
    try {
      await this.#send({ verb: "patch", method: "PATCH", path: `${path}/${name}`, body: patch }, signal);
    } catch (error) {
      if (!(error instanceof ApiError) || error.code !== "not_found") throw error;
      await create();
    }
  }

  async #send(request: Omit<ApiRequest, "resource">, signal: AbortSignal): Promise<void> {
    const { body } = await this.#options.transport.send({ ...request, resource: "events", idleMs: IDLE_MS }, signal);
    for await (const chunk of body) void chunk;
  }
}
