/** Names connections: the Service each goes to, the pods at its ends, and how it ended. */

import { knownPods, type PodSources, podNames } from "../../contract/inspect/known-pods.ts";
import { offlineState } from "../../contract/inspect/offline-state.ts";
import { type CountedPort, countedPortsOf } from "../../contract/traffic.ts";
import type { LedFlow, TrackedFlow } from "../../kernel/conntrack/conntrack.ts";
import { silentLogger } from "../../logging/logger.ts";
import type { ServiceRecord } from "../../model/objects.ts";
import { type Flow, isTranslated } from "../../net/flow.ts";
import { familyOf, IP_FAMILIES, type IpAddress, type IpFamily, joinHostPort } from "../../net/ip.ts";
import { PROTOCOL_NUMBERS, type Protocol } from "../../net/protocol.ts";

/** Packets and bytes; null if the kernel does not count them. */
interface Volume {
  readonly packets: number;
  readonly bytes: number;
}

/** How a connection ended for its client; `closed`: not known whether it was answered. */
export type FlowEnd = "answered" | "refused" | "never answered" | "closed";

/** One connection; -o json. */
export interface NamedFlow {
  /** `namespace/name:port` */
  readonly servicePort: string;
  readonly protocol: Protocol;
  /** The original destination: `10.96.0.10:80`. */
  readonly frontend: string;
  readonly client: string;
  /** `namespace/name`; null: not known. */
  readonly clientPod: string | null;
  /** Null if there is none (refused, or not translated), or if it is not known: a process relays the connection, or did. */
  readonly endpoint: string | null;
  readonly endpointPod: string | null;
  /** The state in conntrack, or of the socket; null for UDP and for ended connections. */
  readonly state: string | null;
  /** Whether it goes to an endpoint that no slice of the Service has. */
  readonly isStale: boolean;
  /** Whether it goes to an endpoint that gets no new connections, as it does not answer. */
  readonly isLeftOut: boolean;
  /** Seconds since it started; null if it is older than the observation and the kernel keeps no timestamps. */
  readonly ageSeconds: number | null;
  readonly sent: Volume | null;
  readonly received: Volume | null;
  /** Only for connections redirected at the socket; null for others. */
  readonly rttMs: number | null;
  readonly retransmits: number | null;
  /** Null while it is open. */
  readonly ended: FlowEnd | null;
}

/** Which connections to show. */
export interface FlowChoice {
  /** `namespace/name`, `namespace/name:port`; undefined: all. */
  readonly service: string | undefined;
  /** A pod (`namespace/name`) or an address. */
  readonly from: string | undefined;
  readonly to: string | undefined;
  /** A value of {@link NamedFlow.state} or {@link NamedFlow.ended}. */
  readonly state: string | undefined;
  readonly isStale: boolean;
}

/** The names of the cluster. */
export interface FlowNames {
  readonly ports: readonly CountedPort[];
  readonly pods: ReadonlyMap<IpAddress, string>;
  /** The node's addresses, at which node ports answer. */
  readonly own: ReadonlySet<IpAddress>;
  /** Whether conntrack has the endpoint; otherwise it has the process that relays the connection. Undefined: not known. */
  readonly isEndpointTracked: boolean | undefined;
  /** By key of a service port: the endpoints that the daemon leaves out. A key may come once for each family. */
  readonly leftOut?: Iterable<readonly [key: string, endpoints: ReadonlyMap<string, unknown>]> | undefined;
}

/** The endpoint that answers. */
export interface AnsweringPlace {
  readonly ip: IpAddress;
  /** `ip:port` */
  readonly text: string;
}

export interface NamedPort {
  readonly port: CountedPort;
  readonly endpoints: ReadonlySet<string>;
  readonly leftOut: ReadonlySet<string>;
}

export class FlowNamer {
  readonly #names: FlowNames;
  readonly #choice: FlowChoice;
  /** By address (or family: any of the node's addresses), protocol and port. */
  readonly #byFrontend = new Map<IpAddress | IpFamily, Map<number, NamedPort>>();
  /** Frontends and endpoints seen in connections. */
  readonly #places = new Map<IpAddress, Map<number, AnsweringPlace>>();
  /** Endpoints of connections that a process relays, by protocol, client, and the port of the process's socket. */
  #carried: ReadonlyMap<string, AnsweringPlace> = new Map();

  constructor(names: FlowNames, choice: FlowChoice) {
    this.#names = names;
    this.#choice = choice;
    const left = Map.groupBy(names.leftOut ?? [], ([key]) => key);
    for (const port of names.ports) {
      const leftOut = new Set(left.get(port.name.key)?.flatMap(([, own]) => [...own.keys()]));
      const named = { port, endpoints: new Set(port.endpoints.map(({ text }) => text)), leftOut };
      if (!isAsked(port, choice.service)) continue;
      for (const { address, port: number } of port.frontends) {
        const place = address ?? port.family;
        const at = this.#byFrontend.get(place) ?? new Map<number, NamedPort>();
        this.#byFrontend.set(place, at.set(portKey(port.name.protocol, number), named));
      }
    }
  }

  /** All Services as `namespace/name`, shown or not. */
  get services(): readonly string[] {
    return [...new Set(this.#names.ports.map(({ name }) => name.service))];
  }

  /** The frontends of the service ports to show. */
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
    // A filter without an address is for both families.
    return [...new Map(all).values()];
  }

  /** The service port; undefined if the connection is not to a Service. Cheap, as it runs for every connection. */
  portOf({ protocol, destinationIP, destinationPort }: Flow): NamedPort | undefined {
    const key = portKey(protocol, destinationPort);
    const atAddress = this.#byFrontend.get(destinationIP)?.get(key);
    if (atAddress !== undefined || !this.#names.own.has(destinationIP)) return atAddress;
    return this.#byFrontend.get(familyOf(destinationIP))?.get(key);
  }

  get isEndpointTracked(): boolean {
    return this.#names.isEndpointTracked !== false;
  }

  /** Notes the endpoints of connections that the daemon relays. @returns the others, which conntrack does not have. */
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

  /** One shared object, with its text, for all connections to a place. */
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

  /**
   * Undefined if there is none: the node itself refuses what rules did not translate. Also if a process relays it and does not say
   * where.
   */
  answering(flow: Flow): AnsweringPlace | undefined {
    const { protocol, replySourceIP: ip, replySourcePort, replyDestinationIP, replyDestinationPort } = flow;
    if (this.isEndpointTracked) {
      const place = this.#place(ip, replySourcePort);
      // Where the mode is not known, an address of the node's own may be that of a process that relays.
      const mayBeRelay = this.#names.isEndpointTracked === undefined && this.#names.own.has(ip);
      if (isTranslated(flow) && !mayBeRelay) return place;
      if (this.portOf(flow)?.endpoints.has(place.text) === true) return place;
    }
    return this.#carried.get(`${protocol} ${replyDestinationIP} ${replyDestinationPort} ${replySourcePort}`);
  }

  /** @param seen what was known when it started. @returns undefined for connections not to show. */
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
      isLeftOut: answering !== undefined && found.leftOut.has(answering.text),
      ageSeconds: startMs === undefined ? null : Math.max(0, Math.round((nowMs - startMs) / 1000)),
      sent: flow.sent ?? null,
      received: flow.received ?? null,
      rttMs: flow.rttMs ?? null,
      retransmits: flow.retransmits ?? null,
      ended,
    };
  }
}

/** One number for protocol and port. */
function portKey(protocol: Protocol, port: number): number {
  return PROTOCOL_NUMBERS[protocol] * 65_536 + port;
}

/** A Service without a namespace is meant in all namespaces. */
function isAsked({ name, frontends }: CountedPort, service: string | undefined): boolean {
  if (service === undefined) return true;
  // Service ports may be given by number, but not node ports.
  const byNumber = frontends.flatMap(({ address, port }) => (address === undefined ? [] : `${name.service}:${port}`));
  return [name.service, name.text, ...byNumber].some(
    (own) => (service.includes("/") ? own : own.replace(/.*\//, "")) === service,
  );
}

/** A TCP connection that was answered but never established was answered with a reset. */
function endOf({ protocol, isAnswered, isAssured }: TrackedFlow): FlowEnd {
  if (isAnswered === undefined) return "closed";
  if (isAnswered !== true) return "never answered";
  return protocol === "TCP" && isAssured === false ? "refused" : "answered";
}

/** The names from objects. */
export function namesOfObjects(
  objects: PodSources & { readonly services: readonly ServiceRecord[] },
): Pick<FlowNames, "ports" | "pods"> {
  const ports = IP_FAMILIES.flatMap((family) => {
    const { state } = offlineState(objects, { family, nodeName: "", allowExternalIPs: true, log: silentLogger });
    return [...countedPortsOf(state, family)];
  });
  return { ports, pods: podNames(knownPods(objects)) };
}

/** The columns of {@link flowCells}; the last one is empty except for connections redirected at sockets. */
export const FLOW_HEAD = ["SERVICE PORT", "CLIENT", "ASKED FOR", "ENDPOINT", "STATE", "AGE", "SENT", "RECEIVED", "RTT"];

/** One line of the table. */
export function flowCells(flow: NamedFlow): readonly string[] {
  const { servicePort, protocol, frontend, state, ended, isStale, isLeftOut, ageSeconds, rttMs, retransmits } = flow;
  const said = ended ?? state ?? "-";
  return [
    `${servicePort} ${protocol}`,
    placeText(flow.client, flow.clientPod),
    frontend,
    placeText(flow.endpoint, flow.endpointPod),
    `${said}${isStale ? ", stale" : ""}${isLeftOut ? ", left out" : ""}`,
    ageSeconds === null ? "?" : ageText(ageSeconds),
    volumeText(flow.sent),
    volumeText(flow.received),
    rttMs === null ? "" : `${rttMs.toFixed(2)} ms${retransmits === 0 ? "" : `, ${retransmits} sent again`}`,
  ];
}

function placeText(place: string | null, pod: string | null): string {
  if (place === null) return "-";
  return pod === null ? place : `${place} (${pod})`;
}

function ageText(seconds: number): string {
  if (seconds < 120) return `${seconds} s`;
  return seconds < 7200 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`;
}

function volumeText(volume: Volume | null): string {
  return volume === null ? "?" : `${volume.bytes} B in ${volume.packets}`;
}
