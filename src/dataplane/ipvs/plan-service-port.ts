/**
 * All that one service port wants of the kernel: virtual servers with their real servers, entries of the IP sets, addresses
 * on kube-ipvs0, and load-balancer addresses that the node itself may not use. Reference ipvs.md §3–7.
 * Pure: the same input gives the same plan, in the same order.
 */
import type { IpsetEntry } from "../../kernel/ipset/ipset.ts";
import { IPVS_SERVICE_PERSISTENT, IPVS_SERVICE_SCHEDULER_FLAG_2, type VirtualServer } from "../../kernel/ipvs/ipvs.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import type { EndpointCategories } from "../../model/endpoint-categories.ts";
import { type FrontendKind, frontendsOf } from "../../model/frontend.ts";
import type { NodePlanConfig } from "../../model/node-plan-config.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { routeServicePort } from "../../model/service-port-routing.ts";
import { cidrContains, type IpAddress } from "../../net/ip.ts";
import { type ProtocolName, protocolName } from "../../net/protocol.ts";
import type { SetId } from "./names.ts";

/** A virtual server, and the endpoints that are its real servers: masquerading, weight 1. */
export interface PlannedVirtualServer {
  readonly virtualServer: VirtualServer;
  /** The kind of frontend: decides when a node port has the same address and port. */
  readonly kind: FrontendKind;
  /** Sorted by text, which is also how a real server is named: `ip:port`. */
  readonly endpoints: readonly Endpoint[];
}

interface PlannedEntry {
  readonly set: SetId;
  readonly entry: IpsetEntry;
}

/** A load-balancer address with source ranges that leave the node out: its answers to itself are dropped. */
export interface DeniedVip {
  readonly address: IpAddress;
  readonly protocol: ProtocolName;
  readonly port: number;
}

/** What one service port needs in the kernel. */
export interface ServicePortPlan {
  /** Of several with one address and port, the last counts: an external address that is also the cluster IP. */
  readonly virtualServers: readonly PlannedVirtualServer[];
  readonly entries: readonly PlannedEntry[];
  /** To be on kube-ipvs0; each is in `entries` for KUBE-IPVS-IPS, too. */
  readonly addresses: readonly IpAddress[];
  readonly deniedVips: readonly DeniedVip[];
  /** A Local policy with endpoints somewhere and none here. */
  readonly lacksLocal: { readonly internal: boolean; readonly external: boolean };
}

const NO_ENDPOINTS: readonly Endpoint[] = Object.freeze([]);

/** Plans one service port. @param endpoints all its endpoints, sorted by text; empty when it has none. Pure. */
export function planServicePort(
  port: ServicePort,
  endpoints: readonly Endpoint[],
  config: PlanConfig,
  facts: PlanFacts,
): ServicePortPlan {
  const routing = routeServicePort(port, endpoints, { nodeName: config.nodeName, zone: facts.zone });
  const draft = new Draft(port, routing.categories, config, facts);
  draft.loopBack(endpoints);
  for (const { kind, address } of frontendsOf(port, routing)) {
    if (address === undefined) draft.nodePort();
    else if (kind === "cluster-ip") draft.clusterIP();
    else if (kind === "external-ip") draft.externalIP(address);
    else draft.loadBalancer(address);
  }
  draft.healthCheckNodePort();
  const { virtualServers, entries, addresses, deniedVips, lacksLocal } = draft;
  return { virtualServers, entries, addresses, deniedVips, lacksLocal };
}

const NODE_PORT_SETS = {
  tcp: { all: "nodePortTCP", local: "nodePortLocalTCP" },
  udp: { all: "nodePortUDP", local: "nodePortLocalUDP" },
  sctp: { all: "nodePortSCTP", local: "nodePortLocalSCTP" },
} as const satisfies Record<ProtocolName, Record<"all" | "local", SetId>>;

/** A plan while it is being made. */
class Draft implements ServicePortPlan {
  readonly virtualServers: PlannedVirtualServer[] = [];
  readonly entries: PlannedEntry[] = [];
  readonly addresses: IpAddress[] = [];
  readonly deniedVips: DeniedVip[] = [];
  readonly #port: ServicePort;
  readonly #protocol: ProtocolName;
  readonly #categories: EndpointCategories;
  readonly #config: PlanConfig;
  readonly #facts: PlanFacts;
  /** A frontend with a Local policy has no local endpoint. */
  #hasFallenBack = false;

  constructor(port: ServicePort, categories: EndpointCategories, config: PlanConfig, facts: PlanFacts) {
    this.#port = port;
    this.#protocol = protocolName(port.protocol);
    this.#categories = categories;
    this.#config = config;
    this.#facts = facts;
  }

  get lacksLocal(): ServicePortPlan["lacksLocal"] {
    const lacks = this.#hasFallenBack && this.#categories.hasAny;
    return {
      internal: lacks && this.#port.internalPolicyLocal,
      external: lacks && this.#port.externalPolicyLocal,
    };
  }

  /** Any local endpoint, ready or not: an endpoint that reaches itself must be masqueraded. */
  loopBack(endpoints: readonly Endpoint[]): void {
    for (const { ip, port, isLocal } of endpoints) {
      if (!isLocal) continue;
      const entry: IpsetEntry = { kind: "ip-port-ip", address: ip, protocol: this.#protocol, port, second: ip };
      this.#enter("loopBack", entry);
    }
  }

  clusterIP(): void {
    const { clusterIP, internalPolicyLocal } = this.#port;
    this.#enter("clusterIP", this.#setEntry(clusterIP));
    this.#serve("cluster-ip", clusterIP, this.#port.port, internalPolicyLocal);
    this.#bind(clusterIP);
  }

  externalIP(ip: IpAddress): void {
    const isLocal = this.#port.externalPolicyLocal;
    this.#enter(isLocal ? "externalIPLocal" : "externalIP", this.#setEntry(ip));
    this.#serveExternally("external-ip", ip);
  }

  loadBalancer(ip: IpAddress): void {
    this.#enter("loadBalancer", this.#setEntry(ip));
    if (this.#port.externalPolicyLocal) this.#enter("loadBalancerLocal", this.#setEntry(ip));
    if (this.#port.loadBalancerSourceRanges.length > 0) this.#restrict(ip);
    this.#serveExternally("load-balancer", ip);
  }

  nodePort(): void {
    const { nodePort } = this.#port;
    const { all, local } = NODE_PORT_SETS[this.#protocol];
    const ips = this.#facts.nodePortIPs;
    if (ips.length === 0) return;
    const entries = this.#protocol === "sctp" ? ips.map((ip) => this.#setEntry(ip, nodePort)) : [portEntry(nodePort)];
    for (const entry of entries) {
      this.#enter(all, entry);
      if (this.#port.externalPolicyLocal) this.#enter(local, entry);
    }
    for (const ip of ips) this.#serve("node-port", ip, nodePort, this.#port.externalPolicyLocal);
  }

  healthCheckNodePort(): void {
    const { healthCheckNodePort } = this.#port;
    if (healthCheckNodePort !== 0) this.#enter("healthCheckNodePort", portEntry(healthCheckNodePort));
  }

  #restrict(vip: IpAddress): void {
    const { loadBalancerSourceRanges, port } = this.#port;
    const protocol = this.#protocol;
    for (const network of loadBalancerSourceRanges) {
      this.#enter("loadBalancerSourceCIDR", { kind: "ip-port-net", address: vip, protocol, port, network });
    }
    this.#enter("loadBalancerFirewall", this.#setEntry(vip));
    // What the node sends to the address comes from the address, which is one of its own.
    if (loadBalancerSourceRanges.some((range) => cidrContains(range, this.#config.nodeIP))) {
      this.#enter("loadBalancerSourceIP", { kind: "ip-port-ip", address: vip, protocol, port, second: vip });
    } else {
      this.deniedVips.push({ address: vip, protocol, port });
    }
  }

  #serveExternally(kind: FrontendKind, ip: IpAddress): void {
    this.#serve(kind, ip, this.#port.port, this.#port.externalPolicyLocal);
    if (!this.#facts.nodeAddresses.has(ip)) this.#bind(ip);
  }

  #serve(kind: FrontendKind, address: IpAddress, port: number, onlyLocal: boolean): void {
    const { scheduler } = this.#config;
    const { protocol, sessionAffinity, stickyMaxAgeSeconds } = this.#port;
    const isPersistent = sessionAffinity === "ClientIP";
    const flags =
      (isPersistent ? IPVS_SERVICE_PERSISTENT : 0) | (scheduler === "mh" ? IPVS_SERVICE_SCHEDULER_FLAG_2 : 0);
    const timeoutSeconds = isPersistent ? stickyMaxAgeSeconds : 0;
    this.virtualServers.push({
      virtualServer: { address, protocol, port, scheduler, flags, timeoutSeconds },
      kind,
      endpoints: this.#endpointsFor(onlyLocal),
    });
  }

  /** Without local endpoints, local clients still get an answer from others: ipvs.md §4. */
  #endpointsFor(onlyLocal: boolean): readonly Endpoint[] {
    const { cluster = NO_ENDPOINTS, local = NO_ENDPOINTS } = this.#categories;
    if (!onlyLocal) return cluster;
    if (local.length > 0) return local;
    this.#hasFallenBack = true;
    return cluster;
  }

  #bind(address: IpAddress): void {
    this.addresses.push(address);
    this.#enter("ipvsIPs", { kind: "ip", address });
  }

  #setEntry(address: IpAddress, port: number = this.#port.port): IpsetEntry {
    return { kind: "ip-port", address, protocol: this.#protocol, port };
  }

  #enter(set: SetId, entry: IpsetEntry): void {
    this.entries.push({ set, entry });
  }
}

function portEntry(port: number): IpsetEntry {
  return { kind: "port", port };
}

/** Constant for the life of the process. */
export interface PlanConfig extends NodePlanConfig {
  /** A scheduler's name in the kernel: `rr`, `mh`, … */
  readonly scheduler: string;
}

/** May differ from sync to sync; a difference makes the sync full. */
export interface PlanFacts {
  readonly zone: string | undefined;
  /** Addresses of devices other than kube-ipvs0, without loopback and link-local ones: never bound to kube-ipvs0. */
  readonly nodeAddresses: ReadonlySet<IpAddress>;
  /** Addresses that node ports answer on, sorted. */
  readonly nodePortIPs: readonly IpAddress[];
}
