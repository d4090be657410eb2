/** This host's kernel counts for service ports: the mode's own counters, and connections from conntrack. */

import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { ModeInspection } from "../../contract/inspection.ts";
import {
  countFlows,
  type FlowReader,
  ledFlows,
  silenceText,
  silentEndpoints,
} from "../../contract/tracked-connections.ts";
import { type CountedPort, type ModeCounters, unknownCount } from "../../contract/traffic.ts";
import { openConntrack } from "../../kernel/conntrack/netlink-conntrack.ts";
import { statisticsNotes } from "../../kernel/conntrack/statistics.ts";
import { messageOf } from "../../logging/message-of.ts";
import { placeText } from "../../model/frontend.ts";
import { servicePortName } from "../../model/service-port-name.ts";
import { type IpAddress, parseIpAddress, toPort } from "../../net/ip.ts";
import { PROTOCOLS } from "../../net/protocol.ts";
import type { PortExplanation } from "./explanation.ts";

/** Adds this host's kernel counts to explanations. @param listen also gets each connection that is read. */
export async function withTraffic(
  inspection: Pick<ModeInspection, "loadCounters">,
  explanations: readonly PortExplanation[],
  config: KubeProxyConfig,
  listen?: FlowListener,
): Promise<PortExplanation[]> {
  const ports = explanations.map((own) =>
    countedPort({ ...own, frontends: own.frontends.map((one) => ({ at: placeText(one) })) }),
  );
  const trafficNotes = await readTraffic(
    await inspection.loadCounters(config),
    ports.filter((port) => port !== undefined),
    undefined,
    listen,
  );
  return explanations.map((own, index) => ({
    ...own,
    // A frontend of another service port, which also has its connections, gets no counts.
    frontends: own.frontends.map((one, at) =>
      one.owner === null ? { ...one, ...ports[index]?.frontends[at]?.count } : one,
    ),
    endpoints: own.endpoints.map((one, at) => ({ ...one, ...ports[index]?.endpoints[at]?.count })),
    trafficNotes,
  }));
}

/** Begins a dump of a family. @returns what gets each connection; a repeated dump begins again. */
type FlowListener = Parameters<FlowReader>[1];

/** Reads the flows of this process's network namespace that the mode handles. */
export const readOwnFlows =
  (marking: Pick<ModeCounters, "isMarked">): FlowReader =>
  async (families, begin) => {
    await using table = openConntrack();
    return await ledFlows(table, marking)(families, begin);
  };

/**
 * Fills in the counts of these service ports. Those that cannot be read stay null.
 *
 * @returns sentences about what is not known and why, and what the numbers mean.
 */
export async function readTraffic(
  counters: ModeCounters,
  ports: readonly CountedPort[],
  readFlows?: FlowReader,
  listen: FlowListener = () => () => {},
): Promise<readonly string[]> {
  if (ports.length === 0) return [];
  const notes: string[] = [];
  try {
    notes.push(...(await counters.fill(ports)));
  } catch (error) {
    notes.push(`The counts are not known: ${reasonOf(error)}.`);
  }
  try {
    if (readFlows === undefined) notes.push(...(await tableNotes()));
    const read = readFlows ?? readOwnFlows(counters);
    const { answers, isComplete } = await countFlows(ports, counters, (families, begin) =>
      read(families, (family) => {
        const [count, hear] = [begin(family), listen(family)];
        return (flow) => {
          count(flow);
          hear(flow);
        };
      }),
    );
    notes.push(...silentEndpoints(ports, answers).map(silenceText));
    if (!isComplete) notes.push("Connections changed while they were counted: some may be missing.");
  } catch (error) {
    notes.push(`Open connections are not known: conntrack: ${reasonOf(error)}.`);
  }
  return notes;
}

async function tableNotes(): Promise<readonly string[]> {
  await using table = openConntrack();
  return statisticsNotes(await table.statistics());
}

function reasonOf(error: unknown): string {
  const text = messageOf(error);
  return process.getuid?.() === 0 ? text : `${text} (it needs root)`;
}

/** A service port as text: a line of a daemon's service table, or of an explanation. */
interface StatedPort {
  /** `namespace/name:port` */
  readonly servicePort: string;
  readonly protocol: string;
  readonly family: string;
  /** `10.96.0.10:80`, `[fd00::1]:80`, `*:30080` for a node port. */
  readonly frontends: readonly { readonly at: string }[];
  readonly endpoints: readonly { readonly address: string }[];
}

/**
 * @returns one entry for each frontend and endpoint, in their order; undefined for a service port that cannot be parsed, for example
 * from another version of the program.
 */
export function countedPort({ servicePort, protocol, family, ...stated }: StatedPort): CountedPort | undefined {
  const [, namespace = "", name = "", port = ""] = /^([^/:]+)\/([^/:]+)(?::([^/:]+))?$/.exec(servicePort) ?? [];
  const known = PROTOCOLS.find((one) => one === protocol);
  if (name === "" || known === undefined || (family !== "IPv4" && family !== "IPv6")) return undefined;
  const frontends = stated.frontends.flatMap(({ at }) => socketOf(at) ?? []);
  const endpoints = stated.endpoints.flatMap(({ address: text }) => {
    const { address: ip, port } = socketOf(text) ?? {};
    return ip === undefined || port === undefined ? [] : [{ ip, port, text, count: unknownCount() }];
  });
  const isWhole = frontends.length === stated.frontends.length && endpoints.length === stated.endpoints.length;
  if (!isWhole) return undefined;
  return {
    name: servicePortName(namespace, name, port, known),
    family,
    frontends: frontends.map((one) => ({ ...one, count: unknownCount() })),
    endpoints,
  };
}

function socketOf(text: string): { readonly address: IpAddress | undefined; readonly port: number } | undefined {
  const [, bracketed, bare = "", number] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(text) ?? [];
  const port = toPort(Number(number));
  if (number === undefined || port === undefined) return undefined;
  if (bare === "*") return { address: undefined, port };
  const address = parseIpAddress(bracketed ?? bare);
  return address && { address, port };
}
