/** Who talks to whom: the open connections of a service port, by client and endpoint, from one dump of connection tracking. */
import type { LiveDaemon } from "../../agent/daemon/inspect-report.ts";
import { countedPortsOf } from "../../contract/traffic.ts";
import type { TrackedFlow } from "../../kernel/conntrack/conntrack.ts";
import { modeNamed } from "../../modes/registry.ts";
import { familyOf } from "../../net/ip.ts";
import { OTHERS, type Talk } from "./answers.ts";
import { namerOf } from "./connections-answer.ts";

/** More on a side are summed up: a picture with more is less clear than a list. */
const SHOWN = 12;

/** @param key of the service port. */
export async function talksOf(daemon: LiveDaemon, key: string) {
  const ports = daemon.families.flatMap(({ family, state: { services, endpoints } }) => {
    const port = services.get(key);
    return port === undefined ? [] : [...countedPortsOf({ services: new Map([[key, port]]), endpoints }, family)];
  });
  const counters = await (await modeNamed(daemon.config.mode).loadInspection()).loadCounters(daemon.config);
  const { namer, own, carried } = await namerOf(daemon, ports, counters);
  const found = new Map<string, Map<string, Talk>>();
  return {
    /** Begins a dump of a family: a repeated one starts from zero. */
    listen(family: string): (flow: TrackedFlow) => void {
      const open = new Map<string, Talk>();
      found.set(family, open);
      const hear = (flow: TrackedFlow) => {
        const named = namer.name(flow, { nowMs: Date.now() });
        if (named === undefined) return;
        const client = named.clientPod ?? (own.has(flow.sourceIP) ? "this node" : flow.sourceIP);
        addTo(open, [client, named.endpoint ?? "", 1]);
      };
      for (const flow of carried) if (familyOf(flow.sourceIP) === family) hear(flow);
      return hear;
    },
    /** Of a family; undefined: they could not be read. */
    rows: (family: string) => busiest(found.get(family)),
  };
}

function addTo(sums: Map<string, Talk>, [client, endpoint, open]: Talk): void {
  const key = `${client} ${endpoint}`;
  sums.set(key, [client, endpoint, open + (sums.get(key)?.[2] ?? 0)]);
}

/** Names the busiest of each side; the rest are one. Most connections first. */
function busiest(found: ReadonlyMap<string, Talk> | undefined): readonly Talk[] | undefined {
  if (found === undefined) return undefined;
  const all = [...found.values()];
  const [clients, endpoints] = ([0, 1] as const).map((side) => {
    const sums = Array.from(
      Map.groupBy(all, (talk) => talk[side]),
      ([name, own]) => ({ name, open: sumOf(own) }),
    );
    return new Set(
      sums
        .sort((one, other) => other.open - one.open)
        .slice(0, SHOWN)
        .map(({ name }) => name),
    );
  });
  const summed = new Map<string, Talk>();
  for (const [client, endpoint, open] of all)
    addTo(summed, [clients?.has(client) ? client : OTHERS, endpoints?.has(endpoint) ? endpoint : OTHERS, open]);
  return [...summed.values()].sort((one, other) => other[2] - one[2]);
}

const sumOf = (talks: readonly Talk[]) => talks.reduce((sum, [, , open]) => sum + open, 0);
