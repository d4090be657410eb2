/**
 * Ends TCP connections to endpoints that are gone: otherwise their clients would wait for an answer for up to a quarter of an hour.
 * Enabled by `connections.endTCP` or a Service's annotation. A terminating endpoint is still in the slices, so it is not gone.
 *
 * Other programs redirect connections too, also at a Service's address. An endpoint is gone only if this service port is known to
 * have had it: connections to any other destination are left alone.
 */
import type { Timer } from "../../async/clock.ts";
import type { FormerEndpoint, LedConnections } from "../../contract/backend.ts";
import type { SyncMetrics } from "../../contract/observers.ts";
import type { LedFlow } from "../../kernel/conntrack/conntrack.ts";
import { frontendKey } from "../../model/frontend.ts";
import type { ProxyState } from "../../model/proxy-state.ts";
import type { EndTcp, Flow } from "../../net/flow.ts";
import { type IpAddress, joinHostPort } from "../../net/ip.ts";
import type { LookOptions } from "./stale-flows.ts";

/** Which connections to end, and how. */
export interface ConnectionEnding {
  /** For Services without the annotation. */
  readonly endTCP: EndTcp;
  /** How long an endpoint must have been gone. */
  readonly afterMs: number;
  /** Ends the clients' sockets on this machine. @returns the connections whose sockets it ended. */
  readonly endSockets: (flows: readonly Flow[]) => Promise<ReadonlySet<Flow>>;
}

interface GoneConnectionsOptions extends LookOptions<Pick<ProxyState, "services" | "endpoints" | "ownerOf">> {
  readonly ending: ConnectionEnding;
  readonly metrics: Pick<SyncMetrics, "countEndedConnections">;
  /** The mode's connections besides conntrack's. @default none */
  readonly led?: LedConnections | undefined;
}

/** A service port whose connections may be ended. */
interface Noted {
  /** When ending was first requested: an endpoint that went at an unknown time counts as gone since then. */
  readonly sinceMs: number;
  /** `ip:port` */
  readonly endpoints: ReadonlySet<string>;
  /** When endpoints left, by `ip:port`, the first to leave first: the last {@link MOST_LEFT} of a day. */
  readonly left: Map<string, number>;
}

/** How many of a service port's former endpoints are remembered, and for how long. */
const [MOST_LEFT, REMEMBERED_MS] = [1000, 86_400_000];

/** Delay after an error, or a table that changed while it was read; doubled after each error, up to the latter. */
const [RETRY_MS, LONGEST_RETRY_MS] = [1000, 60_000];
/** A look that takes longer hangs, or its machine does: a warning says so. */
const LONG_MS = 30_000;

export class GoneConnections {
  readonly #options: GoneConnectionsOptions;
  /** By service port key. */
  readonly #noted = new Map<string, Noted>();
  /** When endpoints went that are not gone for long enough yet, by service port key and `ip:port`. */
  readonly #goneMs = new Map<string, number>();
  /** Endpoints of an earlier process's rules, and when they were learned, by service port key. */
  readonly #former = new Map<string, Map<string, number>>();
  /** Endpoints, by key and `ip:port`, whose pod another Service had at the last look; also those that went since then. */
  readonly #spared = new Set<string>();
  #timer: Timer | undefined;

  constructor(options: GoneConnectionsOptions) {
    this.#options = options;
    options.signal.addEventListener("abort", () => this.#timer?.cancel(), { once: true });
  }

  /** Call when the rules of these service ports are in the kernel. @param former endpoints of an earlier process's rules */
  note(changed: Iterable<string>, former: Iterable<FormerEndpoint> = []): void {
    const { clock, ending, led, state } = this.#options;
    const nowMs = clock.monotonicMs();
    for (const one of former) this.#learn(one, nowMs);
    let isDue = this.#spared.size > 0;
    // Any change may be the one that takes the pod from that other Service, too.
    for (const id of this.#spared) this.#goneMs.set(id, nowMs);
    for (const key of changed) {
      const before = this.#noted.get(key);
      if (!this.#isAsked(key)) {
        this.#noted.delete(key);
        continue;
      }
      const endpoints = new Set(state.endpoints.get(key)?.map(({ text }) => text));
      const left = before?.left ?? new Map(this.#former.get(key));
      this.#noted.set(key, { sinceMs: before?.sinceMs ?? nowMs, endpoints, left });
      isDue ||= before === undefined && (left.size > 0 || led !== undefined);
      for (const text of endpoints) {
        left.delete(text);
        this.#goneMs.delete(`${key} ${text}`);
        this.#spared.delete(`${key} ${text}`);
      }
      for (const text of before?.endpoints ?? []) {
        if (endpoints.has(text)) continue;
        left.set(text, nowMs);
        this.#goneMs.set(`${key} ${text}`, nowMs);
        this.#spared.add(`${key} ${text}`);
        isDue = true;
      }
      for (const [text, atMs] of left) {
        if (left.size <= MOST_LEFT && nowMs - atMs < REMEMBERED_MS) break;
        left.delete(text);
      }
    }
    if (isDue) this.#schedule(ending.afterMs);
  }

  #learn({ owner, endpoint }: FormerEndpoint, nowMs: number): void {
    const { state } = this.#options;
    const asNodePort = { address: undefined, port: typeof owner === "string" ? 0 : owner.port };
    const key =
      typeof owner === "string"
        ? owner
        : (state.ownerOf(frontendKey("TCP", owner)) ?? state.ownerOf(frontendKey("TCP", asNodePort)));
    if (key === undefined || state.endpoints.get(key)?.some(({ text }) => text === endpoint) === true) return;
    const known = this.#former.get(key) ?? new Map<string, number>();
    known.set(endpoint, nowMs);
    this.#former.set(key, known);
  }

  /** Whether the connections of any service port may be ended. */
  isAskedForAny(): boolean {
    const { ending, state } = this.#options;
    return ending.endTCP === "Gone" || [...state.services.keys()].some((key) => this.#isAsked(key));
  }

  #isAsked(key: string | undefined): boolean {
    const port = key === undefined ? undefined : this.#options.state.services.get(key);
    if (port?.protocol !== "TCP") return false;
    return (port.endTCP ?? this.#options.ending.endTCP) === "Gone";
  }

  /** One look covers all that went before it; what goes later gets a look of its own. */
  #schedule(delayMs: number, retryMs = RETRY_MS): void {
    const { clock, log, signal } = this.#options;
    if (this.#timer !== undefined || signal.aborted) return;
    this.#timer = clock.setTimer(delayMs, () => {
      this.#timer = undefined;
      const tell = (): void => log.warn("Looking for connections to endpoints that are gone is taking long");
      const late = clock.setTimer(LONG_MS, tell);
      this.#look()
        .catch((error: unknown) => {
          log.error("Failed to look for connections to endpoints that are gone", error);
          // Looking may never work; the next look that does finds them again.
          this.#spared.clear();
          this.#forgetOld();
          this.#schedule(retryMs, Math.min(retryMs * 2, LONGEST_RETRY_MS));
        })
        .finally(() => late.cancel());
    });
  }

  async #look(): Promise<void> {
    const { conntrack, led, family, turns, ending, metrics, signal, log } = this.#options;
    const own = new Set(await this.#options.localAddresses?.(family, signal));
    const suspects: (Flow & Partial<LedFlow>)[] = [];
    const filter = { protocol: "TCP", isTranslated: led?.isMarked ?? true } as const;
    const isWhole = await conntrack.readFlows(family, filter, () => {
      suspects.length = 0;
      return (flow) => {
        if (this.#goneOf(flow, own) !== undefined) suspects.push(flow);
      };
    });
    await led?.read((flow) => {
      if (flow.protocol === "TCP" && this.#goneOf(flow, own) !== undefined) suspects.push(flow);
    });
    const waitingMs: number[] = [];
    const gone = await turns.run(async () => {
      const judged = this.#judged(suspects, own, waitingMs);
      if (judged.length > 0) await led?.release?.(judged);
      return judged;
    });
    for (const leftMs of this.#forgetOld()) waitingMs.push(leftMs);
    // Flows missing from a partial read may be in the rest of the table.
    if (!isWhole) waitingMs.push(RETRY_MS);
    if (waitingMs.length > 0) this.#schedule(waitingMs.reduce((least, leftMs) => Math.min(least, leftMs)));
    if (gone.length === 0 || signal.aborted) return;
    const sockets = await (led?.end ?? ending.endSockets)(gone);
    const errors: unknown[] = [];
    for (const flow of gone) {
      if (flow.socket !== undefined) continue;
      await conntrack.deleteFlow(family, flow).catch((error: unknown) => errors.push(error));
    }
    const connections = gone.length - errors.length;
    if (connections > 0) {
      metrics.countEndedConnections(connections);
      log.info("Ended connections to endpoints that are gone", { connections, ofThisNode: sockets.size });
    }
    if (errors.length > 0) throw errors[0];
  }

  /** Forgets times that are long enough ago: they need no further look. @returns the time left for the others. */
  #forgetOld(): number[] {
    const { clock, ending } = this.#options;
    const nowMs = clock.monotonicMs();
    const left: number[] = [];
    for (const [id, atMs] of this.#goneMs) {
      const leftMs = atMs + ending.afterMs - nowMs;
      if (leftMs > 0) left.push(leftMs);
      else this.#goneMs.delete(id);
    }
    return left;
  }

  /** The suspects whose endpoint has been gone for long enough; adds the time left for the others to `waitingMs`. */
  #judged<T extends Flow>(suspects: readonly T[], own: ReadonlySet<IpAddress>, waitingMs: number[]): readonly T[] {
    this.#spared.clear();
    if (suspects.length === 0) return [];
    const { endpoints } = this.#options.state;
    // A pod that is still in any slice is not gone: it has only left this Service.
    const listed = new Set<IpAddress>();
    for (const list of endpoints.values()) for (const { ip } of list) listed.add(ip);
    return suspects.filter((flow) => {
      const gone = this.#goneOf(flow, own);
      if (gone === undefined) return false;
      if (listed.has(flow.replySourceIP)) {
        this.#spared.add(gone.id);
        return false;
      }
      const leftMs = this.#options.ending.afterMs - gone.forMs;
      if (leftMs > 0) waitingMs.push(leftMs);
      return leftMs <= 0;
    });
  }

  /** How long the flow's endpoint has been gone, with its id; undefined if it is not, or ending is not requested. */
  #goneOf(
    flow: Flow & Partial<LedFlow>,
    own: ReadonlySet<IpAddress>,
  ): { readonly id: string; readonly forMs: number } | undefined {
    const { state, clock } = this.#options;
    const { destinationIP: address, destinationPort: port } = flow;
    const key =
      flow.carriedFor ??
      state.ownerOf(frontendKey("TCP", { address, port })) ??
      (own.has(address) ? state.ownerOf(frontendKey("TCP", { address: undefined, port })) : undefined);
    const noted = key === undefined ? undefined : this.#noted.get(key);
    if (key === undefined || noted === undefined || !this.#isAsked(key)) return undefined;
    const text = joinHostPort(flow.replySourceIP, flow.replySourcePort);
    // The rules may be behind the model.
    if (noted.endpoints.has(text)) return undefined;
    if (state.endpoints.get(key)?.some((endpoint) => endpoint.text === text) === true) return undefined;
    const id = `${key} ${text}`;
    const nowMs = clock.monotonicMs();
    const leftMs = noted.left.get(text);
    // The mode knows of a socket only because it redirected it for this service port.
    const isOurs = flow.socket !== undefined || (leftMs !== undefined && nowMs - leftMs < REMEMBERED_MS);
    return isOurs ? { id, forMs: nowMs - (this.#goneMs.get(id) ?? leftMs ?? noted.sinceMs) } : undefined;
  }
}
