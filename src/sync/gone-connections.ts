/**
 * Ends connections of TCP to endpoints that are gone: their clients would wait for an answer for up to a quarter of an hour. Asked for by
 * `connections.endTCP` or a Service's annotation. An endpoint that terminates is in the slices, and not gone.
 */
import type { Timer } from "../async/clock.ts";
import type { LedFlow } from "../kernel/conntrack/conntrack.ts";
import { frontendKey } from "../model/frontend.ts";
import type { ProxyState } from "../model/proxy-state.ts";
import type { EndTcp, Flow } from "../net/flow.ts";
import { type IpAddress, joinHostPort } from "../net/ip.ts";
import type { LedConnections } from "./backend.ts";
import type { SyncMetrics } from "./observers.ts";
import type { LookOptions } from "./stale-flows.ts";

/** What is to be ended, and how. */
export interface ConnectionEnding {
  /** For Services that do not say. */
  readonly endTCP: EndTcp;
  /** How long an endpoint must be gone. */
  readonly afterMs: number;
  /** Ends the clients' sockets on this machine. @returns of which connections it did. */
  readonly endSockets: (flows: readonly Flow[]) => Promise<ReadonlySet<Flow>>;
}

interface GoneConnectionsOptions extends LookOptions<Pick<ProxyState, "services" | "endpoints" | "ownerOf">> {
  readonly ending: ConnectionEnding;
  readonly metrics: Pick<SyncMetrics, "countEndedConnections">;
  /** Connections of the mode beside conntrack's. @default none */
  readonly led?: LedConnections | undefined;
}

/** A service port whose connections are ended. */
interface Noted {
  /** Since when this is asked for: what is not in its endpoints has been gone for no longer, as far as is known. */
  readonly sinceMs: number;
  /** `ip:port` */
  readonly endpoints: ReadonlySet<string>;
}

/** After an error, or a table that changed while it was read; twice as long after each error, up to the latter. */
const [RETRY_MS, LONGEST_RETRY_MS] = [1000, 60_000];
/** What takes longer hangs, or its machine does: that is said. */
const LONG_MS = 30_000;

export class GoneConnections {
  readonly #options: GoneConnectionsOptions;
  /** By key. */
  readonly #noted = new Map<string, Noted>();
  /** When endpoints went, by key and `ip:port`. */
  readonly #goneMs = new Map<string, number>();
  /** By key and `ip:port`: another Service may have the pod. It had it at the last look, or there was none since the endpoint went. */
  readonly #spared = new Set<string>();
  #timer: Timer | undefined;

  constructor(options: GoneConnectionsOptions) {
    this.#options = options;
    options.signal.addEventListener("abort", () => this.#timer?.cancel(), { once: true });
  }

  /** To be called when the rules of these service ports are in the kernel. */
  note(changed: Iterable<string>): void {
    const { clock, ending, state } = this.#options;
    const nowMs = clock.monotonicMs();
    let isDue = this.#spared.size > 0;
    // Any change may be the one with which that Service loses the pod, too.
    for (const id of this.#spared) this.#goneMs.set(id, nowMs);
    for (const key of changed) {
      const before = this.#noted.get(key);
      if (!this.#isAsked(key)) {
        this.#noted.delete(key);
        continue;
      }
      const endpoints = new Set(state.endpoints.get(key)?.map(({ text }) => text));
      this.#noted.set(key, { sinceMs: before?.sinceMs ?? nowMs, endpoints });
      isDue ||= before === undefined;
      for (const text of endpoints) {
        this.#goneMs.delete(`${key} ${text}`);
        this.#spared.delete(`${key} ${text}`);
      }
      for (const text of before?.endpoints ?? []) {
        if (endpoints.has(text)) continue;
        this.#goneMs.set(`${key} ${text}`, nowMs);
        this.#spared.add(`${key} ${text}`);
        isDue = true;
      }
    }
    if (isDue) this.#schedule(ending.afterMs);
  }

  #isAsked(key: string | undefined): boolean {
    const port = key === undefined ? undefined : this.#options.state.services.get(key);
    if (port?.protocol !== "TCP") return false;
    return (port.endTCP ?? this.#options.ending.endTCP) === "Gone";
  }

  /** One look serves all that went before it; what goes later has one of its own. */
  #schedule(delayMs: number, retryMs = RETRY_MS): void {
    const { clock, log, signal } = this.#options;
    if (this.#timer !== undefined || signal.aborted) return;
    this.#timer = clock.setTimer(delayMs, () => {
      this.#timer = undefined;
      const tell = (): void => log.warn("Looking for connections to endpoints that are gone takes long");
      const late = clock.setTimer(LONG_MS, tell);
      this.#look()
        .catch((error: unknown) => {
          log.error("Connections to endpoints that are gone were not looked for", error);
          // It may never work: the next look that does finds them again.
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
    // What a part of the table does not have may be in the rest.
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

  /** Forgets when endpoints went that are gone for long enough: so count all of which nothing is known. @returns how long others have left. */
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

  /** Those whose endpoint is gone for long enough; how long the others have left is added. */
  #judged<T extends Flow>(suspects: readonly T[], own: ReadonlySet<IpAddress>, waitingMs: number[]): readonly T[] {
    this.#spared.clear();
    if (suspects.length === 0) return [];
    const { endpoints } = this.#options.state;
    // A pod that any slice still has is not gone: it has only left this Service.
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

  /** How long its endpoint has been gone, by key and `ip:port`; undefined where it is not, or nothing is asked for. */
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
    return { id, forMs: clock.monotonicMs() - (this.#goneMs.get(id) ?? noted.sinceMs) };
  }
}
