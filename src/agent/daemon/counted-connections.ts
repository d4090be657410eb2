/** Metrics and events about the kernel's connections, where they are enabled: docs/connections.md. */
import type { Clock } from "../../async/clock.ts";
import { countFlows, ledFlows, silenceText, silentEndpoints } from "../../contract/tracked-connections.ts";
import { type Count, type CountedPort, countedPortsOf, type ModeCounters } from "../../contract/traffic.ts";
import type { ConntrackTable } from "../../kernel/conntrack/conntrack.ts";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import type { MetricFamilies } from "../../metrics/metric-families.ts";
import type { ProxyState } from "../../model/proxy-state.ts";
import type { IpFamily } from "../../net/ip.ts";
import type { Daemon } from "./daemon.ts";
import { silentEndpoint } from "./node-events.ts";

interface CountedFamily {
  readonly family: IpFamily;
  readonly state: Pick<ProxyState, "services" | "endpoints">;
}

/** Does what the configuration asks for, until the program ends. */
export async function count(
  { options, mode, nodeName, metrics: { families: metrics }, events, clock, log, ended }: Daemon,
  proxiers: readonly { readonly proxier: CountedFamily }[],
  conntrack: ConntrackTable,
): Promise<void> {
  const { countedServices, answerCheckPeriodMs: periodMs } = options.config.connections;
  const counters = await (await mode.loadInspection()).loadCounters(options.config);
  const families = proxiers.map(({ proxier }) => proxier);
  if (countedServices > 0) defineServiceCounters(metrics, countedServices, families, counters);
  if (periodMs === 0) return;
  const silent = defineSilentEndpoints(metrics);
  const tell = (service: string, text: string) => events.record(silentEndpoint(nodeName, service, text));
  const setCount = (count: number) => silent.set(count);
  await watchAnswers(families, { periodMs, conntrack, counters, tell, setCount, clock, log }, ended);
}

export function defineSilentEndpoints(metrics: MetricFamilies): { set(count: number): void } {
  const help = "Endpoints that have answered none of their connections from this node, while others have";
  return metrics.gauge({ name: "kubeproxy_silent_endpoints", help });
}

const portsOf = (families: readonly CountedFamily[]): CountedPort[] =>
  families.flatMap(({ family, state }) => [...countedPortsOf(state, family)]);

const OUTCOMES = { led: "counted", refused: "refused", dropped: "dropped" } as const;
type Outcome = keyof typeof OUTCOMES;
type Totals = Readonly<Record<Outcome, number>>;

const NONE: Totals = { led: 0, refused: 0, dropped: 0 };
const plus = (a: Totals, b: Totals): Totals => {
  return { led: a.led + b.led, refused: a.refused + b.refused, dropped: a.dropped + b.dropped };
};

/**
 * Adds up by Service what the kernel counts at frontends. Its counters start at zero when a rule is written, so the
 * totals sum up the increases since the previous look. What is unknown now has not increased.
 */
export class ServiceTotals {
  /** By service port, frontend, outcome and part; entries that are gone are dropped. */
  #last: ReadonlyMap<string, number> = new Map();
  #totals: ReadonlyMap<string, Totals> = new Map();
  /** Of Services that were not among the most used. */
  #rest = NONE;
  readonly #most: number;

  /** @param most number of Services to name. */
  constructor(most: number) {
    this.#most = most;
  }

  /**
   * @param ports as the mode has filled them in.
   * @param ofRules the part of a count that comes from rules, where other counters, which do not restart with the rules, are added to it.
   * @returns the most used Services, and the total of all others under `/`.
   */
  add(ports: readonly CountedPort[], ofRules: ReadonlyMap<Count, Count> = new Map()): ReadonlyMap<string, Totals> {
    const last = new Map<string, number>();
    const gains = new Map<string, Totals>();
    for (const { name, family, frontends } of ports) {
      for (const { address, port, count } of frontends) {
        const gainedIn = (part: "rules" | "rest", outcome: Outcome, found: number | null): number => {
          const key = `${name.key} ${family} ${address ?? "*"} ${port} ${outcome} ${part}`;
          const before = this.#last.get(key) ?? 0;
          const now = Math.max(0, found ?? before);
          last.set(key, now);
          if (now >= before) return now - before;
          // Some modes derive it from two counters that are not read at the same time: a decrease does not mean a restart at zero.
          return outcome === "dropped" ? 0 : now;
        };
        const gained = (outcome: Outcome): number => {
          const numberIn = (one: Count | undefined): number | null => one?.[OUTCOMES[outcome]] ?? null;
          const [all, rules] = [numberIn(count), numberIn(ofRules.get(count))];
          const rest = gainedIn("rest", outcome, all === null ? null : all - (rules ?? 0));
          return ofRules.size === 0 ? rest : rest + gainedIn("rules", outcome, rules);
        };
        const gain = { led: gained("led"), refused: gained("refused"), dropped: gained("dropped") };
        gains.set(name.service, plus(gains.get(name.service) ?? NONE, gain));
      }
    }
    this.#last = last;
    const totals = Array.from(gains, ([key, gain]) => [key, plus(this.#totals.get(key) ?? NONE, gain)] as const);
    this.#totals = new Map(totals);
    totals.sort(([a, one], [b, other]) => other.led - one.led || (a < b ? -1 : 1));
    const named = new Map(totals.slice(0, this.#most));
    for (const [service, gain] of gains) if (!named.has(service)) this.#rest = plus(this.#rest, gain);
    return named.set("/", this.#rest);
  }
}

/** Defines the family; each scrape reads the kernel and leaves out what cannot be read. @param most number of Services to name. */
export function defineServiceCounters(
  metrics: MetricFamilies,
  most: number,
  families: readonly CountedFamily[],
  counters: ModeCounters,
): void {
  const totals = new ServiceTotals(most);
  const help = "Cumulative connections to the most used Services by outcome; those to all others without a name";
  const labels = ["namespace", "service", "outcome"];
  metrics.scrapedSamples({ name: "kubeproxy_service_connections_total", help, labels }, async () => {
    const ports = portsOf(families);
    const ofRules = new Map<Count, Count>();
    const onPart = (): void => {
      for (const { frontends } of ports) for (const { count } of frontends) ofRules.set(count, { ...count });
    };
    const isRead = await counters.fill(ports, onPart).then(
      () => true,
      () => false,
    );
    // Nothing is counted, so there is nothing to report.
    if (!isRead || ports.every(({ frontends }) => frontends.every(({ count }) => count.counted === null))) return [];
    return [...totals.add(ports, ofRules)].flatMap(([key, own]) => {
      const [namespace = "", service = ""] = key.split("/");
      return Object.entries(own).map(([outcome, value]) => ({ labels: { namespace, service, outcome }, value }));
    });
  });
}

interface AnswersOptions {
  readonly periodMs: number;
  readonly counters: Pick<ModeCounters, "isEndpointTracked" | "isMarked">;
  readonly conntrack: ConntrackTable;
  /** @param service `namespace/name`. @param text a sentence. */
  readonly tell: (service: string, text: string) => void;
  readonly setCount: (count: number) => void;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Further ones are reported in the next rounds. */
const TOLD_AT_ONCE = 5;

/**
 * Checks tracked connections periodically until the signal aborts, and reports each endpoint that never answers: once,
 * until it answers or is gone. Never rejects.
 */
export async function watchAnswers(
  families: readonly CountedFamily[],
  options: AnswersOptions,
  signal: AbortSignal,
): Promise<void> {
  const { periodMs, conntrack, counters, tell, setCount, clock, log } = options;
  let told = new Set<string>();
  while (!signal.aborted) {
    await clock.sleep(periodMs, signal);
    if (signal.aborted) return;
    try {
      const ports = portsOf(families);
      const { answers } = await countFlows(ports, counters, ledFlows(conntrack, counters));
      const keyOf = ({ name }: CountedPort, endpoint: string) => `${name.key} ${endpoint}`;
      const isQuiet = (count: Count) => (answers.get(count)?.answered ?? 0) === 0;
      const quiet = ports.flatMap((port) =>
        port.endpoints.filter(({ count }) => isQuiet(count)).map(({ text }) => keyOf(port, text)),
      );
      told = told.intersection(new Set(quiet));
      const news = silentEndpoints(ports, answers).filter(({ port, endpoint }) => !told.has(keyOf(port, endpoint)));
      for (const one of news.slice(0, TOLD_AT_ONCE)) {
        told.add(keyOf(one.port, one.endpoint));
        tell(one.port.name.service, silenceText(one));
      }
      setCount(told.size);
    } catch (error) {
      log.v(2, "Cannot look for endpoints that never answer", { reason: messageOf(error) });
    }
  }
}
