/** Who talks to which Service through this node now, and counts: one dump of connection tracking for each request of the page. */

import { type LiveDaemon, ledFlows } from "../../agent/daemon/inspect-report.ts";
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import type { FlowReader } from "../../contract/tracked-connections.ts";
import { addTo, type CountedPort, countedPortsOf, unknownCount } from "../../contract/traffic.ts";
import type { TrackedFlow } from "../../kernel/conntrack/conntrack.ts";
import { modeNamed } from "../../modes/registry.ts";
import type { IpAddress } from "../../net/ip.ts";
import { FLOW_HEAD, FlowNamer, flowCells } from "../explain/flows.ts";
import { hostAddresses } from "../explain/host-addresses.ts";
import { countText, turnedAwayText } from "../explain/text.ts";
import { readOwnFlows, readTraffic } from "../explain/traffic.ts";
import type { ConnectionsAnswer } from "./answers.ts";
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
  const pods = new Map<IpAddress, string>();
  for (const { family, state } of daemon.families) {
    for (const port of countedPortsOf(state, family)) {
      ports.push(port);
      if (isTurnDue()) await giveTurn(signal);
    }
  }
  for (const { name, addresses } of (await podsIn(daemon.families, signal)).values())
    for (const one of addresses) pods.set(one, name);
  const own = await Promise.all(daemon.families.map(({ family }) => hostAddresses(family).catch(() => [])));
  const counters = await (await modeNamed(daemon.config.mode).loadInspection()).loadCounters(daemon.config);
  const { isEndpointTracked } = counters;
  const namer = new FlowNamer({ ports, pods, own: new Set(own.flat()), isEndpointTracked }, ALL);
  const lists = new Map<string, { total: number; matching: number; rows: (readonly string[])[] }>();
  const listFor = (source: string) => {
    // A repeated dump starts from zero.
    const list = { total: 0, matching: 0, rows: [] as (readonly string[])[] };
    lists.set(source, list);
    return (flow: TrackedFlow) => {
      const named = namer.name(flow, { nowMs: Date.now() });
      if (named === undefined) return;
      list.total += 1;
      const isShown = list.rows.length < MAX_FLOWS;
      const cells = isShown || words.length > 0 ? flowCells(named) : [];
      const text = cells.join(" ").toLowerCase();
      if (!words.every((word) => text.includes(word))) return;
      list.matching += 1;
      if (isShown) list.rows.push(cells);
    };
  };
  namer.takeLed(await ledFlows(daemon)).forEach(listFor("led"));
  const read = readFlows ?? readOwnFlows(counters);
  const notes = await readTraffic(counters, ports, (families, begin) =>
    read(families, (family) => {
      const [count, list] = [begin(family), listFor(family)];
      return (flow) => {
        count(flow);
        list(flow);
      };
    }),
  );
  const found = [...lists.values()];
  const sum = (what: "total" | "matching") => found.reduce((total, list) => total + list[what], 0);
  return {
    ...{ total: sum("total"), matching: sum("matching"), notes },
    // A large table takes a while, so reading it takes at most a fifth of the time.
    pauseMs: Math.max(LEAST_PAUSE_MS, 4 * Math.round(performance.now() - beganMs)),
    flows: { head: FLOW_HEAD, rows: found.flatMap(({ rows }) => rows).slice(0, MAX_FLOWS) },
    counts: { head: ["SERVICE PORT", "OPEN", "COUNTED"], rows: countRows(ports) },
  };
}

/** The service ports with the most connections. */
function countRows(ports: readonly CountedPort[]): readonly (readonly string[])[] {
  const sums = ports.map(({ name, family, frontends }) => {
    const sum = unknownCount();
    for (const { count } of frontends) {
      for (const what of ["open", "counted", "refused", "dropped"] as const) {
        const number = count[what] ?? null;
        if (number !== null) addTo(sum, what, number);
      }
    }
    return { text: `${name.text} ${name.protocol} ${family}`, sum, most: Math.max(0, ...Object.values(sum)) };
  });
  return sums
    .filter(({ most }) => most > 0)
    .sort((one, other) => other.most - one.most)
    .slice(0, MAX_COUNTED)
    .map(({ text, sum: { open, counted, refused, dropped } }) => {
      return [text, countText(open), `${countText(counted)}${turnedAwayText(refused, dropped)}`];
    });
}
