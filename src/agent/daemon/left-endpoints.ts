/** Leaves out endpoints that do not answer, of Services that ask for that: docs/which-endpoint.md. Loaded when the first one asks. */
import type { Clock } from "../../async/clock.ts";
import { Mutex } from "../../async/mutex.ts";
import type { DraftConfig } from "../../contract/config/config.ts";
import type { ConntrackTable } from "../../kernel/conntrack/conntrack.ts";
import { openUnansweredObserver, type UnansweredObserver } from "../../kernel/nftables/unanswered-table.ts";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import type { MetricFamilies } from "../../metrics/metric-families.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import { type LeaveChange, LeavePolicy, type ProbeOutcome, type WatchedPort } from "../../model/left-endpoints.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { serviceOfKey } from "../../model/service-port-name.ts";
import { categorizeEndpoints } from "../../model/service-port-routing.ts";
import type { Proxier } from "../sync/proxier.ts";
import { forgetUnanswered } from "../sync/waiting-connections.ts";
import type { Daemon } from "./daemon.ts";
import { leftEndpoint } from "./node-events.ts";
import { probeEndpoint } from "./service-probe.ts";

const BLIND = "Cannot look for endpoints that do not answer";

const PERIOD_MS = 500;

/** What one family of the proxier is needed for. */
type LeavingFamily = Pick<Proxier, "family" | "state" | "zone" | "leaveOut">;

interface LeavingOptions {
  readonly connections: DraftConfig["connections"];
  readonly nodeName: string;
  readonly observer: UnansweredObserver;
  readonly probe: (endpoint: string) => Promise<ProbeOutcome>;
  /** Deletes what conntrack knows of connections that still wait for the endpoint's first answer. */
  readonly forget: (endpoint: string) => Promise<unknown>;
  /** @param service `namespace/name`. @param text a sentence. */
  readonly tell: (service: string, text: string) => void;
  readonly count: (change: "left" | "back" | "wrong") => void;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Runs until the program ends, then puts all endpoints back. Never rejects. */
export async function leaveUnanswered(
  { options, mode, nodeName, metrics, events, clock, log, ended }: Daemon,
  proxiers: readonly { readonly proxier: LeavingFamily }[],
  conntrack: ConntrackTable,
): Promise<void> {
  const families = proxiers.map(({ proxier }) => proxier);
  const parts = {
    ...{ connections: options.config.connections, nodeName, probe: probeEndpoint, clock },
    forget: (endpoint: string) => forgetUnanswered(conntrack, endpoint),
    tell: (service: string, text: string) => events.record(leftEndpoint(nodeName, service, text)),
    count: defineLeftEndpoints(metrics.families, families),
  };
  const leave = async (proxier: LeavingFamily): Promise<void> => {
    const { family } = proxier;
    const own = log.with({ ipFamily: family });
    try {
      const observer = await openUnansweredObserver(family, mode.leavesUnanswered === "translated");
      await new Leaving(proxier, { ...parts, observer, log: own }).run(ended);
    } catch (error) {
      own.error("Endpoints that do not answer stay in use: nf_tables cannot say which these are", error);
    }
  };
  await Promise.all(families.map(leave));
}

export function defineLeftEndpoints(
  metrics: MetricFamilies,
  families: readonly LeavingFamily[],
): LeavingOptions["count"] {
  const now = "Endpoints that this node leaves out because they do not answer";
  metrics.scraped("gauge", { name: "kubeproxy_left_endpoints", help: now }, () =>
    families.flatMap(({ state }) => [...state.leftOut.values()]).reduce((sum, { size }) => sum + size, 0),
  );
  const help = "Cumulative endpoints left out, put back, and put back because they answered within a second";
  const changes = metrics.counter({ name: "kubeproxy_left_endpoint_changes_total", help, labels: ["change"] });
  return (change) => changes.inc({ change });
}

/** The endpoints that one family leaves out. */
export class Leaving {
  readonly #family: LeavingFamily;
  readonly #options: LeavingOptions;
  readonly #policy: LeavePolicy;
  readonly #turns = new Mutex();
  #watchedState = "";
  #ports: readonly WatchedPort[] = [];
  #suspects: ReadonlySet<string> = new Set();
  /** By key and endpoint: why it is left out. */
  readonly #left = new Map<string, Map<string, string>>();
  /** Own connections that have not ended. */
  #probing = 0;
  #held: readonly string[] = [];
  #problem = "";

  constructor(family: LeavingFamily, options: LeavingOptions) {
    const { leaveAtMost, leaveAtMostNodes, leaveForMs, leaveForAtMostMs } = options.connections;
    this.#family = family;
    this.#options = options;
    this.#policy = new LeavePolicy({
      mostLeft: leaveAtMost / 100,
      mostSilentNodes: leaveAtMostNodes / 100,
      backOffMs: leaveForMs,
      longestBackOffMs: leaveForAtMostMs,
    });
  }

  /** Runs until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, observer } = this.#options;
    while (!signal.aborted) {
      await clock.sleep(PERIOD_MS, signal);
      if (!signal.aborted) await this.#inTurn(() => this.#look(signal));
    }
    await this.#inTurn(async () => {
      if (this.#family.state.leftOut.size > 0) await this.#family.leaveOut(new Map());
      await observer.close();
    });
  }

  /** A problem that lasts is logged once: there are two looks a second. */
  async #inTurn(work: () => Promise<void>): Promise<void> {
    try {
      await this.#turns.run(work);
    } catch (error) {
      const problem = messageOf(error);
      if (problem !== this.#problem) this.#options.log.error(BLIND, error);
      this.#problem = problem;
    }
  }

  async #look(signal: AbortSignal): Promise<void> {
    const { observer, clock } = this.#options;
    if (this.#watch()) await this.#observe();
    this.#policy.see(await observer.read(), clock.monotonicMs());
    await this.#act(signal);
    if (this.#problem !== "")
      this.#options.log.info("Looking for endpoints that do not answer again", { solves: BLIND });
    this.#problem = "";
  }

  async #observe(): Promise<void> {
    const watched = new Set(this.#ports.flatMap(({ members }) => members.map(({ endpoint }) => endpoint)));
    await this.#options.observer.observe({ watched, suspects: this.#suspects });
  }

  /** Hands the policy the service ports that ask. @returns whether any may have changed since the last call. */
  #watch(): boolean {
    const { state, zone } = this.#family;
    const watchedState = `${state.changeCount} ${zone}`;
    if (watchedState === this.#watchedState) return false;
    this.#watchedState = watchedState;
    const asking = Array.from(state.services).filter(([, port]) => this.#isAsked(port));
    this.#ports = asking.map(([key, port]) => this.#watchedPort(key, port));
    // A change of the slices has put all back, even if the endpoints are the same.
    const sizeIn = (left: typeof state.leftOut, key: string) => left.get(key)?.size ?? 0;
    this.#policy.watch(this.#ports.filter(({ key }) => sizeIn(this.#left, key) === sizeIn(state.leftOut, key)));
    this.#policy.watch(this.#ports);
    return true;
  }

  #isAsked({ protocol, leaveUnanswered }: ServicePort): boolean {
    return protocol === "TCP" && (leaveUnanswered ?? this.#options.connections.leaveUnanswered);
  }

  #watchedPort(key: string, port: ServicePort): WatchedPort {
    const { state, zone } = this.#family;
    // As if none were left out.
    const all = (state.endpoints.get(key) ?? []).map(({ leftOut: _leftOut, ...endpoint }): Endpoint => endpoint);
    const { reachable } = categorizeEndpoints(all, port, { nodeName: this.#options.nodeName, zone });
    const stated = state.slicesOf(port.name.service).flatMap(({ endpoints }) => endpoints);
    const nodes = new Map(stated.map(({ address, nodeName }) => [address, nodeName === "" ? undefined : nodeName]));
    const members = reachable.map(({ text, ip, isLocal }) => ({ endpoint: text, nodeName: nodes.get(ip), isLocal }));
    return { key, members };
  }

  /** Puts the policy's decision into force. */
  async #act(signal: AbortSignal): Promise<void> {
    const { clock, log, probe, forget } = this.#options;
    const { changes, probes, suspects, held } = this.#policy.decide(clock.monotonicMs());
    for (const change of changes) this.#note(change);
    if (changes.length > 0) await this.#family.leaveOut(this.#left);
    // Those that wait would give up; with their next SYN they choose again.
    for (const { kind, endpoint } of changes) if (kind === "left") await forget(endpoint);
    for (const change of changes) this.#tell(change);
    for (const why of held)
      if (!this.#held.includes(why)) log.warn("Endpoints that do not answer stay in use", { why });
    this.#held = held;
    const isSame = suspects.symmetricDifference(this.#suspects).size === 0;
    this.#suspects = suspects;
    if (!isSame) await this.#observe();
    for (const endpoint of probes) {
      this.#probing += 1;
      void probe(endpoint).then(async (outcome) => {
        this.#policy.probed(endpoint, outcome, clock.monotonicMs());
        this.#probing -= 1;
        // At once: the next look would be up to half a second later.
        if (this.#probing === 0 && !signal.aborted) await this.#inTurn(() => this.#look(signal));
      });
    }
  }

  #note({ kind, key, endpoint, reason }: LeaveChange): void {
    const left = this.#left.get(key) ?? new Map<string, string>();
    const since = new Date(this.#options.clock.now()).toISOString().replace(/\.\d+/, "");
    if (kind === "left") left.set(endpoint, `since ${since}: ${reason}`);
    else left.delete(endpoint);
    if (left.size > 0) this.#left.set(key, left);
    else this.#left.delete(key);
  }

  #tell({ kind, key, endpoint, reason }: LeaveChange): void {
    const { log, count, tell } = this.#options;
    const servicePort = key.slice(0, key.lastIndexOf("/"));
    log.info(WORDS[kind], { servicePort, endpoint, reason });
    if (kind !== "forgotten") count(kind);
    // Always the same words for an endpoint, so that a relapse adds to its event.
    if (kind === "left") tell(serviceOfKey(key), `${endpoint} of ${servicePort} does not answer: it is left out`);
  }
}

const WORDS = {
  left: "An endpoint does not answer, and is left out",
  back: "An endpoint is back",
  wrong: "An endpoint is back: it had only been slow",
  forgotten: "An endpoint is no longer left out",
} as const;
