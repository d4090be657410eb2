/** What the kernel knows of connections, as metrics and events, where that is asked for: docs/connections.md. */
import type { Clock } from "../async/clock.ts";
import { countFlows, ledFlows, silenceText, silentEndpoints } from "../dataplane/tracked-connections.ts";
import { type CountedPort, countedPortsOf, type ModeCounters } from "../dataplane/traffic.ts";
import type { ConntrackTable } from "../kernel/conntrack/conntrack.ts";
import type { Logger } from "../logging/logger.ts";
import { messageOf } from "../logging/message-of.ts";
import type { MetricFamilies } from "../metrics/metric-families.ts";
import type { ProxyState } from "../model/proxy-state.ts";
import type { IpFamily } from "../net/ip.ts";
import type { Daemon } from "./daemon.ts";
import { silentEndpoint } from "./node-events.ts";

interface CountedFamily {
  readonly family: IpFamily;
  readonly state: Pick<ProxyState, "services" | "endpoints">;
}

/** Does what the configuration asks for, until the end. */
export async function count(
  { options, mode, nodeName, metrics: { families: metrics }, events, clock, log, ended }: Daemon,
  proxiers: readonly { readonly proxier: CountedFamily }[],
  conntrack: ConntrackTable,
): Promise<void> {
  const { countedServices, answerCheckPeriodMs: periodMs } = options.config.connections;
  const counters = await (await mode.loadInspection()).loadCounters();
  const families = proxiers.map(({ proxier }) => proxier);
  if (countedServices > 0) defineServiceCounters(metrics, countedServices, families, counters);
  if (periodMs === 0) return;
  const silent = defineSilentEndpoints(metrics);
  const tell = (service: string, text: string) => events.record(silentEndpoint(nodeName, service, text));
  const setCount = (count: number) => silent.set(count);
  await watchAnswers(families, { periodMs, conntrack, counters, tell, setCount, clock, log }, ended);
}

export function defineSilentEndpoints(metrics: MetricFamilies) {
  const help = "Endpoints that have answered none of their connections from this node, while others have";
  return metrics.gauge({ name: "kubeproxy_silent_endpoints", help });
}

const portsOf = (families: readonly CountedFamily[]): CountedPort[] =>
  families.flatMap(({ family, state }) => [...countedPortsOf(state, family)]);

/** What of a Service has been counted since this process began. */
interface Totals {
  counted: number;
  refused: number;
  dropped: number;
}

const COUNTS = ["counted", "refused", "dropped"] as const;
const NONE: Readonly<Totals> = { counted: 0, refused: 0, dropped: 0 };

/** One look serves a scrape. */
const SAME_SCRAPE_MS = 100;

/**
 * Sums up what the kernel has counted at frontends by Service. Its counters begin at zero when a rule is written: what is added up is
 * what each has gained since the last look.
 */
export class ServiceTotals {
  /** By service port and frontend; those that are gone do not stay. */
  #last: ReadonlyMap<string, Totals> = new Map();
  readonly #totals = new Map<string, Totals>();
  /** Of Services that were not among the most used. */
  readonly #rest: Totals = { ...NONE };
  readonly #most: number;

  /** @param most Services that are named. */
  constructor(most: number) {
    this.#most = most;
  }

  /** @param ports as the mode has filled them in. @returns the Services that are named, and what all others have had. */
  add(ports: readonly CountedPort[]): { readonly named: ReadonlyMap<string, Totals>; readonly rest: Totals } {
    const last = new Map<string, Totals>();
    const gains = new Map<string, Totals>();
    for (const { name, family, frontends } of ports) {
      const gain = gains.get(name.service) ?? { ...NONE };
      gains.set(name.service, gain);
      for (const { address, port, count } of frontends) {
        const key = `${name.key} ${family} ${address ?? "*"} ${port}`;
        const now = { counted: count.counted ?? 0, refused: count.refused ?? 0, dropped: count.dropped ?? 0 };
        const before = this.#last.get(key) ?? NONE;
        for (const what of COUNTS) gain[what] += now[what] < before[what] ? now[what] : now[what] - before[what];
        last.set(key, now);
      }
    }
    this.#last = last;
    for (const [service, gain] of gains) addTotals(this.#totals, service, gain);
    for (const service of this.#totals.keys()) if (!gains.has(service)) this.#totals.delete(service);
    const byUse = [...this.#totals].sort(([a, one], [b, other]) => other.counted - one.counted || (a < b ? -1 : 1));
    const named = new Map(byUse.slice(0, this.#most));
    for (const [service, gain] of gains) {
      if (!named.has(service)) for (const what of COUNTS) this.#rest[what] += gain[what];
    }
    return { named, rest: this.#rest };
  }
}

function addTotals(totals: Map<string, Totals>, service: string, gain: Totals): void {
  const before = totals.get(service);
  if (before === undefined) totals.set(service, gain);
  else for (const what of COUNTS) before[what] += gain[what];
}

/** Defines the families; the kernel is read at each scrape, and what cannot be read is left out of it. @param most Services named. */
export function defineServiceCounters(
  metrics: MetricFamilies,
  most: number,
  families: readonly CountedFamily[],
  counters: ModeCounters,
): void {
  const totals = new ServiceTotals(most);
  let last: { readonly atMs: number; readonly reading: Promise<ReturnType<typeof totals.add> | undefined> } | undefined;
  const look = async () => {
    const ports = portsOf(families);
    await counters.fill(ports);
    // Where nothing counts there is nothing to be said.
    const isCounted = ports.some(({ frontends }) => frontends.some(({ count }) => count.counted !== null));
    return isCounted ? totals.add(ports) : undefined;
  };
  const define = (name: string, help: string, labels: readonly string[], fields: readonly (keyof Totals)[]): void =>
    metrics.scrapedSamples({ name: `kubeproxy_service_${name}_total`, help, labels }, async () => {
      const nowMs = performance.now();
      if (last === undefined || nowMs - last.atMs > SAME_SCRAPE_MS) {
        last = { atMs: nowMs, reading: look().catch(() => undefined) };
      }
      const found = await last.reading;
      if (found === undefined) return [];
      const samples = [...found.named, ["/", found.rest] as const];
      return samples.flatMap(([service, own]) => {
        const [namespace = "", name = ""] = service.split("/");
        return fields.map((reason) => ({
          labels: { namespace, service: name, ...(fields.length > 1 && { reason }) },
          value: own[reason],
        }));
      });
    });
  define(
    "connections",
    "Cumulative connections to the most used Services; those of all others without a name",
    ["namespace", "service"],
    ["counted"],
  );
  define(
    "turned_away_packets",
    "Cumulative first packets to the most used Services that were refused or dropped; those of all others without a name",
    ["namespace", "service", "reason"],
    ["refused", "dropped"],
  );
}

/** More are told in the next rounds. */
const TOLD_AT_ONCE = 5;

/**
 * Looks at tracked connections every so often until the signal aborts, and tells of each endpoint that never answers: once, until it
 * answers or is gone. Never rejects.
 */
export async function watchAnswers(
  families: readonly CountedFamily[],
  {
    periodMs,
    conntrack,
    counters,
    tell,
    setCount,
    clock,
    log,
  }: {
    readonly periodMs: number;
    readonly counters: Pick<ModeCounters, "isEndpointTracked" | "isMarked">;
    readonly conntrack: ConntrackTable;
    /** @param service `namespace/name`. @param text a sentence. */
    readonly tell: (service: string, text: string) => void;
    /** How many there are. */
    readonly setCount: (count: number) => void;
    readonly clock: Clock;
    readonly log: Logger;
  },
  signal: AbortSignal,
): Promise<void> {
  let told = new Set<string>();
  while (!signal.aborted) {
    await clock.sleep(periodMs, signal);
    if (signal.aborted) return;
    try {
      const ports = portsOf(families);
      const { answers } = await countFlows(ports, counters, ledFlows(conntrack, counters));
      const still = new Set<string>();
      for (const { name, endpoints } of ports) {
        for (const { text, count } of endpoints) {
          const key = `${name.key} ${text}`;
          if (told.has(key) && (answers.get(count)?.answered ?? 0) === 0) still.add(key);
        }
      }
      told = still;
      const silent = silentEndpoints(ports, answers).filter(
        ({ port, endpoint }) => !told.has(`${port.name.key} ${endpoint}`),
      );
      for (const one of silent.slice(0, TOLD_AT_ONCE)) {
        told.add(`${one.port.name.key} ${one.endpoint}`);
        tell(one.port.name.service, silenceText(one));
      }
      setCount(told.size);
    } catch (error) {
      log.v(2, "Cannot look for endpoints that never answer", { reason: messageOf(error) });
    }
  }
}
