/** Connections with names: which Service each goes to, from which pod, to which, and how it ended. Pure. */
import type { ServiceRecord } from "../cluster/objects.ts";
import { type CountedPort, countedPortsOf } from "../dataplane/traffic.ts";
import { knownPods, type PodSources } from "../inspect/known-pods.ts";
import { offlineState } from "../inspect/offline-state.ts";
import type { LedFlow, TrackedFlow } from "../kernel/conntrack/conntrack.ts";
import { silentLogger } from "../logging/logger.ts";
import type { Flow } from "../net/flow.ts";
import { IP_FAMILIES, type IpAddress, joinHostPort } from "../net/ip.ts";
import { PROTOCOL_NUMBERS, type Protocol } from "../net/protocol.ts";

/** Packets and bytes; null: the kernel does not count them. */
interface Volume {
  readonly packets: number;
  readonly bytes: number;
}

/** How a connection ended, as its client met it; `closed`: whether there were answers is not known. */
export type FlowEnd = "answered" | "refused" | "never answered" | "closed";

/** One connection; -o json. */
export interface NamedFlow {
  /** `namespace/name:port` */
  readonly servicePort: string;
  readonly protocol: Protocol;
  /** `10.96.0.10:80`: what was asked for. */
  readonly frontend: string;
  readonly client: string;
  /** `namespace/name`; null: not known. */
  readonly clientPod: string | null;
  /** Null: not known, of one that a process carries, or has carried. */
  readonly endpoint: string | null;
  readonly endpointPod: string | null;
  /** Conntrack's word, or the socket's; null for UDP and for what has ended. */
  readonly state: string | null;
  /** No slice of the Service has the endpoint. */
  readonly isStale: boolean;
  /** Seconds since it began; null: it is older than the look, and the kernel keeps no times. */
  readonly ageSeconds: number | null;
  readonly sent: Volume | null;
  readonly received: Volume | null;
  /** Of those that were led at the socket; null for others. */
  readonly rttMs: number | null;
  readonly retransmits: number | null;
  /** Null while it lives. */
  readonly ended: FlowEnd | null;
}

/** Which connections are asked for. */
export interface FlowChoice {
  /** `namespace/name`, `namespace/name:port`; undefined: all. */
  readonly service: string | undefined;
  /** A pod (`namespace/name`) or an address. */
  readonly from: string | undefined;
  readonly to: string | undefined;
  /** As {@link NamedFlow.state}, or `ended`'s words. */
  readonly state: string | undefined;
  readonly isStale: boolean;
}

/** What is known of the cluster. */
export interface FlowNames {
  readonly ports: readonly CountedPort[];
  readonly pods: ReadonlyMap<IpAddress, string>;
  /** Of the node, where node ports answer. */
  readonly own: ReadonlySet<IpAddress>;
  /** Whether conntrack tells the endpoint; else who carries the connection there. */
  readonly isEndpointTracked: boolean;
}

/** Who answers. */
export interface AnsweringPlace {
  readonly ip: IpAddress;
  /** `ip:port` */
  readonly text: string;
}

export interface NamedPort {
  readonly port: CountedPort;
  readonly endpoints: ReadonlySet<string>;
}

export class FlowNamer {
  readonly #names: FlowNames;
  readonly #choice: FlowChoice;
  /** By address (`*`: of the node), protocol and port. */
  readonly #byFrontend = new Map<string, Map<number, NamedPort>>();
  /** Frontends and endpoints that connections had. */
  readonly #places = new Map<IpAddress, Map<number, AnsweringPlace>>();
  /** Where a process carries what, by protocol, client, and the port of its socket. */
  #carried: ReadonlyMap<string, AnsweringPlace> = new Map();

  constructor(names: FlowNames, choice: FlowChoice) {
    this.#names = names;
    this.#choice = choice;
    for (const port of names.ports) {
      const named = { port, endpoints: new Set(port.endpoints.map(({ text }) => text)) };
      if (!isAsked(port, choice.service)) continue;
      for (const { address, port: number } of port.frontends) {
        const at = this.#byFrontend.get(address ?? "*") ?? new Map<number, NamedPort>();
        this.#byFrontend.set(address ?? "*", at.set(portKey(port.name.protocol, number), named));
      }
    }
  }

  /** `namespace/name` of all that have connections, asked for or not. */
  get services(): readonly string[] {
    return [...new Set(this.#names.ports.map(({ name }) => name.service))];
  }

  /** Those of the service ports that are asked for. */
  get frontends(): readonly {
    readonly protocol: Protocol;
    readonly address: IpAddress | undefined;
    readonly port: number;
  }[] {
    const asked = this.#names.ports.filter((port) => isAsked(port, this.#choice.service));
    const all = asked.flatMap(({ name: { protocol }, frontends }) =>
      frontends.map(
        ({ address, port }) => [`${protocol} ${address ?? "*"} ${port}`, { protocol, address, port }] as const,
      ),
    );
    // A node port is one for both families.
    return [...new Map(all).values()];
  }

  /** The service port, or undefined for connections that no Service led. Cheap: asked of every one. */
  portOf({ protocol, destinationIP, destinationPort }: Flow): NamedPort | undefined {
    const key = portKey(protocol, destinationPort);
    const atAddress = this.#byFrontend.get(destinationIP)?.get(key);
    if (atAddress !== undefined || !this.#names.own.has(destinationIP)) return atAddress;
    return this.#byFrontend.get("*")?.get(key);
  }

  get isEndpointTracked(): boolean {
    return this.#names.isEndpointTracked;
  }

  /** Notes where the daemon carries what. @returns the others, which conntrack does not know. */
  takeLed(flows: readonly LedFlow[]): readonly LedFlow[] {
    this.#carried = new Map(
      flows.flatMap(({ carriedFor, protocol, sourceIP, sourcePort, destinationPort, replySourceIP: ip, ...flow }) => {
        if (carriedFor === undefined) return [];
        const text = joinHostPort(ip, flow.replySourcePort);
        return [[`${protocol} ${sourceIP} ${sourcePort} ${destinationPort}`, { ip, text }] as const];
      }),
    );
    return flows.filter(({ carriedFor }) => carriedFor === undefined);
  }

  /** One text for all connections to a place. */
  #place(ip: IpAddress, port: number): AnsweringPlace {
    const ports = this.#places.get(ip) ?? new Map<number, AnsweringPlace>();
    let place = ports.get(port);
    if (place === undefined) {
      if (ports.size === 0) this.#places.set(ip, ports);
      place = { ip, text: joinHostPort(ip, port) };
      ports.set(port, place);
    }
    return place;
  }

  /** Undefined where a process carries it, and does not say. */
  answering(flow: Flow): AnsweringPlace | undefined {
    const { protocol, replySourceIP: ip, replySourcePort, replyDestinationIP, replyDestinationPort } = flow;
    if (this.isEndpointTracked) return this.#place(ip, replySourcePort);
    return this.#carried.get(`${protocol} ${replyDestinationIP} ${replyDestinationPort} ${replySourcePort}`);
  }

  /** @param seen what was known when it began. @returns undefined for what is not asked for. */
  name(
    flow: TrackedFlow,
    seen: {
      readonly nowMs: number;
      readonly startMs?: number | undefined;
      readonly port?: NamedPort | undefined;
      readonly answering?: AnsweringPlace | undefined;
      readonly hasEnded?: boolean;
    },
  ): NamedFlow | undefined {
    const found = this.portOf(flow) ?? seen.port;
    if (found === undefined) return undefined;
    const { pods } = this.#names;
    const { from, to, state: wanted, isStale: wantsStale } = this.#choice;
    const { nowMs, startMs = flow.startMs, answering = this.answering(flow), hasEnded = false } = seen;
    const clientPod = pods.get(flow.sourceIP) ?? null;
    const endpointPod = (answering && pods.get(answering.ip)) ?? null;
    const isStale = answering !== undefined && !found.endpoints.has(answering.text);
    const ended = hasEnded ? endOf(flow) : null;
    const state = hasEnded ? null : (flow.state ?? null);
    if (from !== undefined && from !== flow.sourceIP && from !== clientPod) return undefined;
    if (to !== undefined && to !== answering?.ip && to !== endpointPod) return undefined;
    if (wanted !== undefined && wanted !== (ended ?? state)) return undefined;
    if (wantsStale && !isStale) return undefined;
    return {
      servicePort: found.port.name.text,
      protocol: flow.protocol,
      frontend: this.#place(flow.destinationIP, flow.destinationPort).text,
      client: joinHostPort(flow.sourceIP, flow.sourcePort),
      clientPod,
      endpoint: answering?.text ?? null,
      endpointPod,
      state,
      isStale,
      ageSeconds: startMs === undefined ? null : Math.max(0, Math.round((nowMs - startMs) / 1000)),
      sent: flow.sent ?? null,
      received: flow.received ?? null,
      rttMs: flow.rttMs ?? null,
      retransmits: flow.retransmits ?? null,
      ended,
    };
  }
}

/** One number for both. */
function portKey(protocol: Protocol, port: number): number {
  return PROTOCOL_NUMBERS[protocol] * 65_536 + port;
}

/** A Service that is named without its namespace is asked for in all of them. */
function isAsked({ name, frontends }: CountedPort, service: string | undefined): boolean {
  if (service === undefined) return true;
  // A port by its number, which a node port is not.
  const byNumber = frontends.flatMap(({ address, port }) => (address === undefined ? [] : `${name.service}:${port}`));
  return [name.service, name.text, ...byNumber].some(
    (own) => (service.includes("/") ? own : own.replace(/.*\//, "")) === service,
  );
}

/** TCP that was answered and never established was answered with a reset. */
function endOf({ protocol, isAnswered, isAssured }: TrackedFlow): FlowEnd {
  if (isAnswered === undefined) return "closed";
  if (isAnswered !== true) return "never answered";
  return protocol === "TCP" && isAssured === false ? "refused" : "answered";
}

/** The names that objects give. */
export function namesOfObjects(
  objects: PodSources & { readonly services: readonly ServiceRecord[] },
): Pick<FlowNames, "ports" | "pods"> {
  const ports = IP_FAMILIES.flatMap((family) => {
    const { state } = offlineState(objects, { family, nodeName: "", allowExternalIPs: true, log: silentLogger });
    return [...countedPortsOf(state, family)];
  });
  const pods = new Map<IpAddress, string>();
  for (const { name, addresses } of knownPods(objects).values()) for (const one of addresses) pods.set(one, name);
  return { ports, pods };
}

/** The columns of {@link flowCells}; the last is empty but for sockets. */
export const FLOW_HEAD = ["SERVICE PORT", "CLIENT", "ASKED FOR", "ENDPOINT", "STATE", "AGE", "SENT", "RECEIVED", "RTT"];

/** A line of the table. */
export function flowCells(flow: NamedFlow): readonly string[] {
  const { servicePort, protocol, frontend, state, ended, isStale, ageSeconds, rttMs, retransmits } = flow;
  const said = ended ?? state ?? "-";
  return [
    `${servicePort} ${protocol}`,
    placeText(flow.client, flow.clientPod),
    frontend,
    placeText(flow.endpoint, flow.endpointPod),
    isStale ? `${said}, stale` : said,
    ageSeconds === null ? "?" : ageText(ageSeconds),
    volumeText(flow.sent),
    volumeText(flow.received),
    rttMs === null ? "" : `${rttMs.toFixed(2)} ms${retransmits === 0 ? "" : `, ${retransmits} sent again`}`,
  ];
}

function placeText(place: string | null, pod: string | null): string {
  if (place === null) return "?";
  return pod === null ? place : `${place} (${pod})`;
}

function ageText(seconds: number): string {
  if (seconds < 120) return `${seconds} s`;
  return seconds < 7200 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`;
}

function volumeText(volume: Volume | null): string {
  return volume === null ? "?" : `${volume.bytes} B in ${volume.packets}`;
}
