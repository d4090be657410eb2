/**
 * Mirrors one resource of the API server: a list, then a watch from its version, repeated through all failures of the
 * network and the server (reference operation.md §8.2). Only the server's own data becomes events: an outage, garbage
 * or an expired version changes nothing that was delivered.
 */

import type { Clock, Timer } from "../../../../async/clock.ts";
import type { Logger } from "../../../../logging/logger.ts";
import type { ObjectKind, ObjectKinds, ObjectSink } from "../../../../model/object-source.ts";
import { ApiError, type ApiErrorCode, isApiError } from "../connection/api-error.ts";
import type { ApiTransport } from "../connection/transport.ts";
import { accepting, type BodyFormat, JSON_FORMAT } from "../formats/body-format.ts";
import { Backoff } from "./backoff.ts";
import { FailureLog, type SharedCauses } from "./failure-log.ts";
import { failing, readListPage } from "./list-reader.ts";
import { ObjectCache } from "./object-cache.ts";
import type { Recovery } from "./recovery.ts";
import { REFLECTOR_TIMES, type ReflectorTimes } from "./reflector-times.ts";
import type { WatchedResource } from "./resources.ts";
import { followWatch } from "./watch-reader.ts";

const PAGE_SIZE = "500";
/** Relists after an expired version start within this time: the version expires for all nodes at the same moment. */
const LIST_SPREAD_MS = 1_000;
/** How often the version may expire without a working watch in between before it counts as a failure. */
const MAX_FRESH_STARTS = 2;
/** The most consecutive retries that the server may ask for (Retry-After); upstream's value. */
const MAX_ASKED = 10;
const SHORTEST_ASKED_MS = 500;
/** The widest jitter, as a multiple of the wait that the server asked for: it asks all nodes for the same wait. */
const WIDEST_ASKED = 8;

// Reasons for ending a watch on this side.
const OVERDUE = "overdue";
const STUCK = "stuck";

/** After these a watch cannot resume. */
const LIST_AGAIN: readonly ApiErrorCode[] = ["expired", "version_too_large", "refused", "not_found", "garbage"];
/** The server works but does not know this version: there is nothing to wait for. */
const OTHER_HISTORY: readonly ApiErrorCode[] = ["expired", "version_too_large"];
/** There was no response. */
const NO_ANSWER: readonly ApiErrorCode[] = ["unreachable", "timeout"];
/** Changed credential files may help. */
const CREDENTIALS: readonly ApiErrorCode[] = ["unauthorized", "credentials", "tls"];
/** Where no watch is open, these mean that the server is away, as do the statuses of a proxy without a server. */
const OUTAGES: readonly ApiErrorCode[] = ["unauthorized", "tls"];
const GATEWAY_STATUSES: readonly unknown[] = [502, 503, 504];
/** After these failures of a streaming list, pages may still work. */
const TRY_PAGES: readonly ApiErrorCode[] = [...LIST_AGAIN, "server_error", "timeout"];
/** Failures that every watch has now and then. */
const ORDINARY_ENDS: readonly ApiErrorCode[] = ["unreachable", "timeout", "expired", "too_many_requests"];
/** After these a watch that worked is reopened without a wait: nothing suggests that the server is overloaded. */
const CUTS: readonly ApiErrorCode[] = ["unreachable", "timeout"];

/** Settings shared by all reflectors of a server. */
export interface WatchSettings {
  readonly transport: ApiTransport;
  readonly clock: Clock;
  readonly log: Logger;
  /** How often everything is delivered again as updates (`configSyncPeriod`); 0: never. */
  readonly resyncPeriodMs: number;
  /** Requests streaming lists (gate WatchListClient) until the server refuses one. @default true */
  readonly streamsLists?: boolean;
  /** Accepts protobuf until a response in it cannot be read. @default true */
  readonly takesProtobuf?: boolean;
  /** Called if a resource (plural name) cannot be watched, and with `undefined` when it can again. */
  readonly onProblem?: (resource: string, problem: string | undefined) => void;
  readonly onHeard?: OnHeard;
  /** For tests. */
  readonly times?: Partial<ReflectorTimes>;
  /** Returns numbers in [0, 1). @default Math.random */
  readonly random?: () => number;
}

/** Called each time the API server has sent something about a resource (plural name). */
export type OnHeard = (resource: string) => void;

interface ReflectorOptions<K extends ObjectKind> extends WatchSettings {
  readonly resource: WatchedResource<K>;
  readonly sink: ObjectSink;
  /** Shared by all reflectors of the server, as `causes` are. */
  readonly recovery: Recovery;
  readonly causes: SharedCauses;
}

export class Reflector<K extends ObjectKind> {
  readonly #options: ReflectorOptions<K>;
  readonly #times: ReflectorTimes;
  readonly #random: () => number;
  readonly #cache: ObjectCache<K>;
  readonly #failures: FailureLog;
  /** Backoff after refusals, reset by a success. */
  readonly #refusals: Backoff;
  /** Backoff after responses that started well but were unusable. */
  readonly #letdowns: Backoff;
  /** Everything up to this version was delivered; empty before the first list. */
  #version = "";
  /** The server does not know that version (any more): request the newest state. */
  #isVersionLost = false;
  #mustList = true;
  #isSynced = false;
  #streamsLists: boolean;
  #takesProtobuf: boolean;
  /** The format of the current response, once its type is accepted. */
  #format: BodyFormat | undefined;
  /** The server has accepted the running watch. */
  #isOpen = false;
  /** The watch has also sent an event, or lasted for a while. */
  #isSteady = false;
  /** The last request was accepted, even if its response turned out unusable. */
  #isAnswered = false;
  /** The last request was preceded by a random wait. */
  #isSpread = false;
  /** How often the version expired since the last working watch. */
  #freshStarts = 0;
  /** How often the server sent Retry-After since it last served a request. */
  #asked = 0;

  constructor(options: ReflectorOptions<K>) {
    const { resource, sink, clock, random = Math.random, causes } = options;
    const { plural } = resource;
    const log = options.log.with({ resource: plural });
    this.#options = { ...options, log };
    this.#times = { ...REFLECTOR_TIMES, ...options.times };
    this.#random = random;
    this.#streamsLists = options.streamsLists ?? true;
    this.#takesProtobuf = options.takesProtobuf ?? true;
    this.#cache = new ObjectCache(resource, sink, log);
    this.#failures = new FailureLog(log, clock, (problem) => options.onProblem?.(plural, problem), causes);
    this.#refusals = new Backoff(clock, random);
    this.#letdowns = new Backoff(clock, random);
  }

  #heard(): void {
    this.#options.onHeard?.(this.#options.resource.plural);
  }

  /** The object as last delivered. @param key `namespace/name`, or the name. */
  record(key: string): ObjectKinds[K] | undefined {
    return this.#cache.record(key);
  }

  /** Runs until the signal aborts; rejects only if a sink throws. */
  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#mirror(signal), this.#resync(signal)]);
  }

  async #mirror(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        await this.#turn(signal);
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        if (signal.aborted) break;
        await this.#recover(error, signal);
      }
    }
  }

  async #turn(signal: AbortSignal): Promise<void> {
    this.#isOpen = false;
    this.#isSteady = false;
    this.#isAnswered = false;
    this.#format = undefined;
    if (!this.#mustList) return await this.#watch({ resourceVersion: this.#version }, signal);
    if (this.#streamsLists && (await this.#streamList(signal))) return;
    await this.#listPages(signal);
  }

  /** Lists, then watches, with one streaming request. @returns whether that worked; if not, the caller tries pages. */
  async #streamList(signal: AbortSignal): Promise<boolean> {
    this.#cache.beginList();
    const query = {
      sendInitialEvents: "true",
      resourceVersionMatch: "NotOlderThan",
      resourceVersion: this.#isVersionLost ? "" : this.#version,
    };
    try {
      await this.#watch(query, signal, true);
      if (!this.#mustList) return true;
    } catch (error) {
      if (!this.#mustList || !isApiError(error, ...TRY_PAGES) || signal.aborted) throw error;
      if (error.code === "version_too_large") this.#isVersionLost = true;
      if (error.code === "refused") this.#streamsLists = false;
      this.#judgeFormat(error);
      this.#options.log.v(2, "No streaming list, reading pages", { reason: error.message });
    }
    return false;
  }

  async #listPages(signal: AbortSignal): Promise<void> {
    const { resource, transport } = this.#options;
    const common = {
      resource,
      transport,
      cache: this.#cache,
      accept: accepting(this.#takesProtobuf),
      idleMs: this.#times.listIdleMs,
      onOpen: (format: BodyFormat) => this.#opened(format),
      onProgress: () => this.#heard(),
    };
    const read = (query: Readonly<Record<string, string>>) => readListPage({ ...common, query }, signal);
    this.#cache.beginList();
    const first = await read(this.#firstPage());
    let token = first.continueToken;
    while (token !== "" && !signal.aborted) {
      try {
        token = (await read({ limit: PAGE_SIZE, continue: token })).continueToken;
      } catch (error) {
        if (!isApiError(error, "expired")) throw error;
        // The server has forgotten the version of these pages. A list without pages cannot expire halfway.
        this.#cache.beginList();
        this.#version = (await read({ resourceVersion: "" })).resourceVersion;
        return this.#listed();
      }
    }
    if (signal.aborted) return;
    this.#version = first.resourceVersion;
    this.#listed();
  }

  /** At first any state will do; later none older than the last version seen; the newest if that version is lost. */
  #firstPage(): Readonly<Record<string, string>> {
    if (this.#isVersionLost) return { limit: PAGE_SIZE, resourceVersion: "" };
    if (this.#version === "") return { limit: PAGE_SIZE, resourceVersion: "0" };
    // With a limit, the API server could not serve this from its cache.
    return { resourceVersion: this.#version };
  }

  #listed(): void {
    this.#heard();
    const { sink, resource, log } = this.#options;
    this.#cache.endList();
    this.#mustList = false;
    this.#isVersionLost = false;
    this.#failures.succeeded();
    log.v(2, "Caches populated", { objects: this.#cache.size });
    if (this.#isSynced) return;
    this.#isSynced = true;
    sink.onSynced(resource.kind);
  }

  /** @param isList the watch starts with every existing object. */
  async #watch(query: Readonly<Record<string, string>>, signal: AbortSignal, isList = false): Promise<void> {
    const { clock, resource, transport, recovery } = this.#options;
    const { watchAnswerMs, watchTimeoutMs, watchGraceMs, streamIdleMs, shortWatchMs } = this.#times;
    const timeoutSeconds = Math.max(1, Math.floor((watchTimeoutMs * (1 + this.#random())) / 1000));
    const end = new AbortController();
    const overdue = clock.setTimer(timeoutSeconds * 1000 + watchGraceMs, () => end.abort(OVERDUE));
    const stuck = (): Timer => clock.setTimer(streamIdleMs, () => end.abort(STUCK));
    let initial = isList ? stuck() : undefined;
    let steady: Timer | undefined;
    const startMs = clock.monotonicMs();
    const failure = failing(`watch ${resource.plural}`, transport);
    const onInitialEnd = (): void => {
      initial?.cancel();
      initial = undefined;
      this.#listed();
    };
    try {
      const events = await followWatch(
        {
          resource,
          transport,
          cache: this.#cache,
          query: { ...query, timeoutSeconds: String(timeoutSeconds) },
          accept: accepting(this.#takesProtobuf),
          answerMs: watchAnswerMs,
          onProgress: () => {
            initial?.cancel();
            initial &&= stuck();
            this.#heard();
          },
          onInitialEnd: isList ? onInitialEnd : undefined,
          onVersion: (version) => {
            this.#version = version;
            this.#works();
          },
          onOpen: (format) => {
            this.#heard();
            recovery.watching++;
            this.#isOpen = true;
            this.#opened(format);
            steady = clock.setTimer(shortWatchMs, () => this.#works());
          },
        },
        AbortSignal.any([signal, end.signal]),
      );
      if (events > 0 || clock.monotonicMs() - startMs >= shortWatchMs) return;
      throw failure("unreachable", "the watch ended at once and had no events");
    } catch (error) {
      if (end.signal.reason === OVERDUE && isApiError(error)) return;
      if (end.signal.reason === STUCK) throw failure("timeout", "the streamed list stalled");
      throw error;
    } finally {
      if (this.#isOpen) recovery.watching--;
      overdue.cancel();
      initial?.cancel();
      steady?.cancel();
      // A response of which nothing was read, such as a web page, would hold its connection.
      end.abort();
    }
  }

  /** Notes a working watch after a complete list. */
  #works(): void {
    if (this.#mustList) return;
    this.#isSteady = true;
    this.#isSpread = false;
    this.#freshStarts = 0;
    this.#failures.succeeded();
  }

  #opened(format: BodyFormat): void {
    this.#format = format;
    this.#answered();
  }

  /** Notes that the server serves requests. */
  #answered(): void {
    this.#isAnswered = true;
    this.#asked = 0;
    this.#refusals.reset();
    this.#options.recovery.answered();
  }

  /** Stops requesting protobuf after a response in it could not be read. */
  #judgeFormat(error: ApiError): void {
    const isProtobuf = this.#format !== undefined && this.#format !== JSON_FORMAT;
    if (error.code !== "garbage" || !isProtobuf || !this.#takesProtobuf) return;
    this.#takesProtobuf = false;
    const message = "Cannot read a protobuf response, requesting JSON from now on";
    this.#options.log.warn(message, { reason: error.message });
  }

  async #recover(error: ApiError, signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    this.#judgeFormat(error);
    // A proxy may hold a response back until part of the body arrives. A list has a body at once, so relist.
    const isHeldBack = !this.#mustList && error.facts.reached === "unanswered";
    const isOrdinary = isHeldBack || (this.#isOpen && isApiError(error, ...ORDINARY_ENDS));
    // For a watch, `expired` means that the changes since its version are gone; for a list, the version itself.
    const isVersionExpired = this.#mustList && error.code === "expired";
    if (isVersionExpired || isApiError(error, "version_too_large", "refused")) this.#isVersionLost = true;
    // As upstream: the server may never be able to resume from this version, but a list may work.
    const isEvent = this.#isOpen && error.code === "server_error";
    if (isHeldBack || isEvent || isApiError(error, ...LIST_AGAIN)) this.#mustList = true;
    if (isApiError(error, ...OTHER_HISTORY) && this.#freshStarts < MAX_FRESH_STARTS) {
      this.#freshStarts++;
      this.#failures.expected(error);
      this.#answered();
      const spreadMs = Math.max(this.#isSpread ? 0 : LIST_SPREAD_MS, this.#times.putOffMs(this.#cache.size));
      if (spreadMs > 0) await clock.sleep(spreadMs * this.#random(), signal);
    } else {
      this.#failures.failed(error, isOrdinary);
      if (this.#isSteady && isApiError(error, ...CUTS)) return;
      await this.#wait(error, signal);
    }
    this.#isSpread = true;
  }

  async #wait(error: ApiError, signal: AbortSignal): Promise<void> {
    const { clock, recovery, transport } = this.#options;
    const { reached, retryAfterMs, status } = error.facts;
    if (this.#isAnswered) return await recovery.rest(this.#letdowns.next(), signal);
    if (isApiError(error, ...NO_ANSWER)) return await recovery.turn(reached === "absent", signal);
    if (retryAfterMs !== undefined) {
      const isHeeded = ++this.#asked <= MAX_ASKED;
      const atLeastMs = isHeeded ? SHORTEST_ASKED_MS : this.#refusals.next();
      const spread = 1 + Math.min(WIDEST_ASKED, 2 ** (this.#asked - 1)) * this.#random();
      return await clock.sleep(Math.max(atLeastMs, retryAfterMs) * spread, signal);
    }
    const isOutage = isApiError(error, ...OUTAGES) || GATEWAY_STATUSES.includes(status);
    if (isOutage && recovery.watching === 0) return await recovery.turn(true, signal);
    if (!isApiError(error, ...CREDENTIALS)) return await recovery.rest(this.#refusals.next(), signal);
    const mended = new AbortController();
    const over = new AbortController();
    const looking = transport.credentialsChanged(AbortSignal.any([signal, over.signal])).then(() => mended.abort());
    await recovery.rest(this.#refusals.next(), signal, mended.signal);
    over.abort();
    await looking;
  }

  async #resync(signal: AbortSignal): Promise<void> {
    const { clock, resyncPeriodMs } = this.#options;
    if (resyncPeriodMs <= 0) return;
    for (;;) {
      await clock.sleep(resyncPeriodMs, signal);
      if (signal.aborted) return;
      if (this.#isSynced) await this.#cache.redeliver(signal);
    }
  }
}
