/** An API server as thousands of clients meet it: away, back without its history, or busy. Counts their requests. */
import { ApiError } from "../src/agent/cluster/apiserver/connection/api-error.ts";
import { connectionError } from "../src/agent/cluster/apiserver/connection/connection-errors.ts";
import { httpError } from "../src/agent/cluster/apiserver/connection/status.ts";
import type { ApiRequest, ApiResponse, ApiTransport } from "../src/agent/cluster/apiserver/connection/transport.ts";
import type { SimulatedClock } from "./api-storm-clock.ts";

/** How an attempt ends while the server is away, and its cost there: processor time, in milliseconds. */
interface AwayForm {
  readonly costMs: number;
  readonly error: (request: string) => ApiError;
}

const broken = (costMs: number, code: string): AwayForm => ({
  costMs,
  error: (request) => connectionError(request, "simulated", Object.assign(new Error(code), { code })),
});
/** The connection is kept. */
const answered = (status: number): AwayForm => ({
  costMs: 0.2,
  error: (request) => httpError(request, status, Buffer.alloc(0), {}),
});

/** The costs are those of a server in Node.js, with a key of RSA; a RST and an empty accept are hardly seen. */
export const AWAY_FORMS = {
  refused: broken(0.005, "ECONNREFUSED"),
  cut: broken(0.02, "ECONNRESET"),
  tls: broken(2, "CERT_HAS_EXPIRED"),
  "401": answered(401),
  "503": answered(503),
} as const;

/** Counts for one second. */
export interface StormSecond {
  /** Attempts that nothing answered. */
  knocks: number;
  requests: number;
  lists: number;
  /** Answered with 429. */
  refused: number;
  /** Bytes of the lists. */
  bytes: number;
}

const RETRY_AFTER_MS = 1_000;
const ANSWER_MS = 10;

export class StormServer {
  readonly #clock: SimulatedClock;
  readonly #form: AwayForm;
  readonly #listBytes: Readonly<Record<string, number>>;
  readonly #listsPerSecond: number;
  readonly #seconds = new Map<number, StormSecond>();
  #version = 1_000;
  #up: { readonly ended: Promise<void>; end(): void } | undefined;
  /** When a client last got a list, by client and resource. */
  readonly listedMs = new Map<string, number>();
  /** When a client first asked since this was cleared, by client and resource. */
  readonly askedMs = new Map<string, number>();

  /** @param listsPerSecond further ones are refused, with the advice to retry after a second. */
  constructor(
    clock: SimulatedClock,
    form: AwayForm,
    listBytes: Readonly<Record<string, number>>,
    listsPerSecond: number,
  ) {
    this.#clock = clock;
    this.#form = form;
    this.#listBytes = listBytes;
    this.#listsPerSecond = listsPerSecond;
  }

  /** The requests since the last call, by second. */
  take(): readonly StormSecond[] {
    const seconds = [...this.#seconds.values()];
    this.#seconds.clear();
    return seconds;
  }

  goAway(): void {
    this.#up?.end();
    this.#up = undefined;
  }

  /** Comes back without its history. */
  comeBack(): void {
    this.#version += 1_000;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#up = { ended: promise, end: resolve };
  }

  transportOf(client: string): ApiTransport {
    return {
      host: "simulated",
      send: (request, signal) => this.#send(client, request, signal),
      checkFiles: async () => {},
      credentialsChanged: (signal) =>
        new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true })),
      close() {},
    };
  }

  #now(): StormSecond {
    const at = Math.floor(this.#clock.monotonicMs() / 1000);
    const second = this.#seconds.get(at) ?? { knocks: 0, requests: 0, lists: 0, refused: 0, bytes: 0 };
    this.#seconds.set(at, second);
    return second;
  }

  async #send(client: string, { resource, path }: ApiRequest, signal: AbortSignal): Promise<ApiResponse> {
    await this.#clock.sleep(ANSWER_MS, signal);
    const second = this.#now();
    const request = `watch ${resource}`;
    const up = this.#up;
    if (up === undefined) {
      second.knocks++;
      throw this.#form.error(request);
    }
    second.requests++;
    const key = `${client}/${resource}`;
    if (!this.askedMs.has(key)) this.askedMs.set(key, this.#clock.monotonicMs());
    const query = new URLSearchParams(path.slice(path.indexOf("?")));
    if (query.get("sendInitialEvents") !== "true") {
      const isKnown = query.get("resourceVersion") === String(this.#version);
      return answer(isKnown ? this.#open("", up.ended, signal) : once(line("ERROR", { code: 410, reason: "Expired" })));
    }
    if (second.lists >= this.#listsPerSecond) {
      second.refused++;
      throw new ApiError("too_many_requests", { request, detail: "429", status: 429, retryAfterMs: RETRY_AFTER_MS });
    }
    second.lists++;
    second.bytes += this.#listBytes[resource] ?? 0;
    this.listedMs.set(key, this.#clock.monotonicMs());
    const annotations = { "k8s.io/initial-events-end": "true" };
    const end = line("BOOKMARK", { metadata: { resourceVersion: String(this.#version), annotations } });
    return answer(this.#open(end, up.ended, signal));
  }

  async *#open(first: string, ended: Promise<void>, signal: AbortSignal): AsyncGenerator<Buffer> {
    if (first !== "") yield Buffer.from(first);
    await Promise.race([ended, new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }))]);
    throw new ApiError("unreachable", { request: "watch", detail: "the connection was cut" });
  }
}

function answer(body: AsyncIterable<Buffer>): ApiResponse {
  return { contentType: "application/json", body };
}

async function* once(text: string): AsyncGenerator<Buffer> {
  yield Buffer.from(text);
}

function line(type: string, object: object): string {
  return `${JSON.stringify({ type, object })}\n`;
}
