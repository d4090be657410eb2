/** A userspace backend on in-memory sockets, rules and connection tracking, and a cluster that tests change. */

import { TestCluster } from "../../../../testkit/dataplane/test-cluster.ts";
import { memoryConntrack } from "../../../../testkit/fakes/conntrack/memory-conntrack.ts";
import { MemoryIptables } from "../../../../testkit/fakes/iptables/memory-iptables.ts";
import { MemoryRelays } from "../../../../testkit/fakes/relay/memory-relays.ts";
import "../../../async/testing/test-yielder.ts";
import { FakeClock } from "../../../agent/sync/testing/fake-clock.ts";
import type { SyncOutcome } from "../../../contract/backend.ts";
import { type Logger, silentLogger } from "../../../logging/logger.ts";
import type { Endpoint } from "../../../model/endpoint.ts";
import { nodePortAddresses } from "../../../model/node-port-addresses.ts";
import type { ServicePort } from "../../../model/service-port.ts";
import { servicePortName } from "../../../model/service-port-name.ts";
import { ip, makeEndpoint, makeServicePort } from "../../../model/testing/records.ts";
import type { Cidr, IpAddress } from "../../../net/ip.ts";
import { parsePortRange } from "../../../net/port-range.ts";
import { UserspaceBackend } from "../backend.ts";
import { Balancer } from "../balancer.ts";
import type { Listeners } from "../host.ts";
import { HostListeners } from "../host-listeners.ts";
import type { AddressAssigner } from "../netsh-assigner.ts";
import { PortAllocator } from "../port-allocator.ts";
import { PortalRules } from "../portal-rules.ts";
import { RedirectListeners } from "../redirect-listeners.ts";
import { observeClients } from "../runtime.ts";
import { ServiceRelays } from "../service-relays.ts";
import { staleFlowsOf } from "../stale-flows.ts";

export interface RigOptions {
  readonly rules?: "iptables" | "none";
  readonly portRange?: string;
  readonly nodePortAddresses?: readonly string[];
  readonly listenAddress?: string;
  readonly assigner?: AddressAssigner;
  readonly iptables?: MemoryIptables;
  /** @default 0 */
  readonly random?: number;
}

const PODS = { kind: "cidr", cidr: "10.1.0.0/16" as Cidr } as const;
export const HOST = ["127.0.0.1", "192.168.1.5"];

export class BackendRig {
  readonly relays = new MemoryRelays();
  readonly iptables: MemoryIptables;
  readonly conntrack = memoryConntrack();
  readonly clock = new FakeClock();
  readonly balancer: Balancer;
  readonly sockets: ServiceRelays;
  readonly rules: PortalRules;
  readonly listeners: Listeners;
  readonly backend: UserspaceBackend;
  /** The cluster that the backend serves. */
  readonly cluster = new TestCluster();
  readonly errors: string[] = [];
  readonly counts: Record<string, number> = {};
  readonly totals = { filter: 0, nat: 0 };
  hostAddresses: readonly string[] = HOST;
  /** To be called by a test after it changed the host's addresses. */
  tellHostChanged: () => void = () => {};

  constructor(options: RigOptions = {}) {
    this.iptables = options.iptables ?? new MemoryIptables("IPv4");
    const log: Logger = {
      ...silentLogger,
      error: (message, error) => void this.errors.push(`${message}: ${error instanceof Error ? error.message : ""}`),
    };
    this.balancer = new Balancer({ random: () => options.random ?? 0, nowMs: () => this.clock.monotonicMs() });
    const { balancer, relays } = this;
    const count = (name: string) => (protocol: string) => {
      this.counts[`${name} ${protocol}`] = (this.counts[`${name} ${protocol}`] ?? 0) + 1;
    };
    const metrics = {
      opened: count("opened"),
      closed: count("closed"),
      bytes: count("bytes"),
      dialFailed: count("dialFailed"),
      refused: count("refused"),
    };
    const monotonicMs = () => this.clock.monotonicMs();
    this.sockets = new ServiceRelays({
      relays,
      balancer,
      udpIdleTimeoutMs: 250,
      observe: (name) => observeClients(name, { metrics, monotonicMs, log }),
    });
    this.rules = new PortalRules({
      iptables: this.iptables,
      metrics: {
        restoreFailures: { inc: () => count("restoreFailure")("-") },
        setTotal: (table, rules) => {
          this.totals[table] = rules;
        },
      },
      log,
    });
    this.listeners = this.#served(options, log);
    this.backend = new UserspaceBackend({
      family: "IPv4",
      nodeName: "node-a",
      balancer,
      sockets: this.sockets,
      listeners: this.listeners,
      nodePortAddresses: nodePortAddresses("IPv4", options.nodePortAddresses ?? []),
      hashSeed: 7,
      hostAddresses: async () => this.hostAddresses.map(ip),
      watchHostAddresses: (onChange, signal) => {
        this.tellHostChanged = onChange;
        return new Promise((resolve) => signal.addEventListener("abort", () => resolve()));
      },
      checkIntervalMs: 30_000,
      drainTimeoutMs: 10_000,
      clock: this.clock,
      log,
    });
  }

  #served(options: RigOptions, log: Logger): Listeners {
    const { sockets, relays, rules, conntrack } = this;
    if (options.rules === "none") {
      const { assigner } = options;
      return new HostListeners({
        family: "IPv4",
        sockets,
        detector: PODS,
        log,
        ...(assigner !== undefined && { assigner }),
      });
    }
    const range = parsePortRange(options.portRange ?? "");
    if (!range.ok) throw new RangeError(range.error);
    const addresses = { listenAddress: ip(options.listenAddress ?? "0.0.0.0"), hostAddress: ip("192.168.1.5") };
    return new RedirectListeners({
      family: "IPv4",
      plan: { ...addresses, knowsBridgePorts: true, detector: PODS },
      addressesAmong: () => addresses,
      rules,
      sockets,
      relays,
      ports: new PortAllocator({ range: range.range, random: () => 0, onPortFree: () => this.backend.retry() }),
      deleteStaleFlows: staleFlowsOf(conntrack, "IPv4", this.clock, log),
      log,
    });
  }

  /** Adds or changes `ns1/NAME:p`, with one endpoint unless told otherwise. @returns its key. */
  set(name: string, port: Partial<ServicePort> = {}, endpoints: readonly (string | Endpoint)[] = ["10.0.0.1"]): string {
    const protocol = port.protocol ?? "TCP";
    const portName = servicePortName("ns1", name, "p", protocol);
    const list = endpoints.map((one) => (typeof one === "string" ? makeEndpoint(one, 8080) : one));
    this.cluster.set(makeServicePort({ ...port, name: portName }), list);
    return portName.key;
  }

  remove(key: string): void {
    const port = this.cluster.declared.get(key);
    if (port !== undefined) this.cluster.delete(port);
  }

  sync(options: { readonly full?: boolean } = {}): Promise<SyncOutcome> {
    return this.cluster.driver.sync(this.backend, options);
  }

  /** The sockets as text: `listening TCP 0.0.0.0:40001`. */
  get openSockets(): string[] {
    return this.relays.sockets
      .map(({ use, protocol, address, port }) => `${use} ${protocol} ${address}:${port}`)
      .sort();
  }

  /** The rules of the portal chains, sorted, without comments and match names. */
  get portalRules(): string[] {
    const lines = `${this.iptables.dump("filter")}${this.iptables.dump("nat")}`.split("\n");
    return lines
      .filter((line) => /^-A KUBE-/.test(line))
      .map((line) => line.slice(3).replace(/ -m comment --comment (?:"[^"]*"|\S+)| -m (?:tcp|udp)(?= )/g, ""))
      .sort();
  }

  /** The endpoint that a new client gets at a local socket. */
  connect(
    protocol: "TCP" | "UDP",
    address: string,
    port: number,
    client = "172.16.9.9",
    from = 1234,
  ): string | undefined {
    const relay = this.relays.relayAt(protocol, ip(address), port);
    return relay?.connect({ address: ip(client), port: from })?.address;
  }
}

/** The proxy port that rules lead an address to. */
export function proxyPortOf(rig: BackendRig, address: IpAddress | string, port: number): number | undefined {
  const wanted = `KUBE-PORTALS-CONTAINER -d ${address}/32 -p `;
  const line = rig.portalRules.find((rule) => rule.startsWith(wanted) && rule.includes(` --dport ${port} `));
  return line === undefined ? undefined : Number(/--to-ports (\d+)/.exec(line)?.[1]);
}
