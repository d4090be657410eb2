/** Who talks to which Service through this node now, and counts: one dump of connection tracking for each request of the page. */

import { type LiveDaemon, ledFlows } from "../../agent/daemon/inspect-report.ts";
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import { podNames } from "../../contract/inspect/known-pods.ts";
import type { FlowReader } from "../../contract/tracked-connections.ts";
import { addTo, type CountedPort, countedPortsOf, type ModeCounters, unknownCount } from "../../contract/traffic.ts";
import type { TrackedFlow } from "../../kernel/conntrack/conntrack.ts";
import { modeNamed } from "../../modes/registry.ts";
import { FLOW_HEAD, FlowNamer, flowCells } from "../explain/flows.ts";
import { hostAddresses } from "../explain/host-addresses.ts";
import { countText, turnedAwayText } from "../explain/text.ts";
import { readOwnFlows, readTraffic } from "../explain/traffic.ts";
import type { ConnectionsAnswer } from "./answers.ts";
import type { NameKind } from "./named-words.ts";
import { podsIn } from "./service-table.ts";

const MAX_FLOWS = 200;
const MAX_COUNTED = 50;
const LEAST_PAUSE_MS = 2_000;
const ALL = { service: undefined, from: undefined, to: undefined, state: undefined, isStale: false };

/** @param words that a connection's line must all have. @param readFlows @default this host's connection tracking */
export async function connectionsAnswer(
  daemon: LiveDaemon,
  words: readonly string[],
  signal: AbortSignal,
  readFlows?: FlowReader,
): Promise<ConnectionsAnswer> {
  const beganMs = performance.now();
  const ports: CountedPort[] = [];
  for (const { family, state } of daemon.families) {
    for (const port of countedPortsOf(state, family)) {
      ports.push(port);
      if (isTurnDue()) await giveTurn(signal);
    }
  }
  const counters = await (await modeNamed(daemon.config.mode).loadInspection()).loadCounters(daemon.config);
  const { namer, carried } = await namerOf(daemon, ports, counters, signal);
  const lists = new Map<string, FlowList>();
  const names = new Map<string, NameKind>();
  const listFor = (source: string) => {
    // A repeated dump starts from zero.
    const list: FlowList = { total: 0, matching: 0, rows: [], outcomes: new Map() };
    lists.set(source, list);
    return (flow: TrackedFlow) => {
      const named = namer.name(flow, { nowMs: Date.now() });
      if (named === undefined) return;
      list.total += 1;
      const [port, outcome] = [namer.portOf(flow)?.port, outcomeOf(flow)];
      if (port !== undefined && outcome !== undefined) {
        const counts = list.outcomes.get(port) ?? [0, 0, 0];
        counts[outcome] += 1;
        list.outcomes.set(port, counts);
      }
      const isShown = list.rows.length < MAX_FLOWS;
      const cells = isShown || words.length > 0 ? flowCells(named) : [];
      const text = cells.join(" ").toLowerCase();
      if (!words.every((word) => text.includes(word))) return;
      list.matching += 1;
      if (!isShown) return;
      list.rows.push(cells);
      for (const pod of [named.clientPod, named.endpointPod]) if (pod !== null) names.set(pod, "pod");
      names.set(named.servicePort, "service");
    };
  };
  carried.forEach(listFor("led"));
  const notes = await readTraffic(counters, ports, readFlows ?? readOwnFlows(counters), listFor);
  const found = [...lists.values()];
  const outcomesOf = (port: CountedPort) =>
    ([0, 1, 2] as const).map((at) => found.reduce((total, { outcomes }) => total + (outcomes.get(port)?.[at] ?? 0), 0));
  const sum = (what: "total" | "matching") => found.reduce((total, list) => total + list[what], 0);
  return {
    ...{ total: sum("total"), matching: sum("matching"), notes },
    // A large table takes a while, so reading it takes at most a fifth of the time.
    pauseMs: Math.max(LEAST_PAUSE_MS, 4 * Math.round(performance.now() - beganMs)),
    flows: { head: FLOW_HEAD, rows: found.flatMap(({ rows }) => rows).slice(0, MAX_FLOWS) },
    counts: { head: ["SERVICE PORT", "OPEN", ...OUTCOMES, "COUNTED"], rows: countRows(ports, outcomesOf) },
    names: [...names],
  };
}

/** Names connections of these service ports. @returns also those that connection tracking does not have. */
export async function namerOf(
  daemon: LiveDaemon,
  ports: readonly CountedPort[],
  { isEndpointTracked }: Pick<ModeCounters, "isEndpointTracked">,
  signal?: AbortSignal,
) {
  const pods = podNames(await podsIn(daemon.families, signal));
  const all = await Promise.all(daemon.families.map(({ family }) => hostAddresses(family).catch(() => [])));
  const own = new Set(all.flat());
  const leftOut = daemon.families.flatMap(({ state }) => [...state.leftOut]);
  const namer = new FlowNamer({ ports, pods, own, isEndpointTracked, leftOut }, ALL);
  return { namer, own, carried: namer.takeLed(await ledFlows(daemon)) };
}

/** What one reading of connection tracking has. */
interface FlowList {
  total: number;
  matching: number;
  readonly rows: (readonly string[])[];
  /** How many of each of {@link OUTCOMES}. */
  readonly outcomes: Map<CountedPort, [number, number, number]>;
}

const OUTCOMES = ["ANSWERED", "NOT ANSWERED", "REFUSED"];

/** The place among {@link OUTCOMES} for an open connection; undefined: not known. A reset closes one that was never established. */
function outcomeOf({ protocol, state, isAnswered, isAssured }: TrackedFlow): 0 | 1 | 2 | undefined {
  if (isAnswered === undefined) return undefined;
  if (!isAnswered) return 1;
  return protocol === "TCP" && state === "CLOSE" && isAssured === false ? 2 : 0;
}

/** The service ports with the most connections. */
function countRows(
  ports: readonly CountedPort[],
  outcomesOf: (port: CountedPort) => readonly number[],
): readonly (readonly string[])[] {
  const sums = ports.map((port) => {
    const { name, family, frontends } = port;
    const sum = unknownCount();
    for (const { count } of frontends) {
      for (const what of ["open", "counted", "refused", "dropped"] as const) {
        const number = count[what] ?? null;
        if (number !== null) addTo(sum, what, number);
      }
    }
    return { text: `${name.text} ${name.protocol} ${family}`, port, sum, most: Math.max(0, ...Object.values(sum)) };
  });
  return sums
    .filter(({ most }) => most > 0)
    .sort((one, other) => other.most - one.most)
    .slice(0, MAX_COUNTED)
    .map(({ text, port, sum: { open, counted, refused, dropped } }) => {
      const outcomes = outcomesOf(port).map((number) => (number === 0 ? "" : String(number)));
      return [text, countText(open), ...outcomes, `${countText(counted)}${turnedAwayText(refused, dropped)}`];
    });
}
