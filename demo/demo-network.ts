/** The demo's network of namespaces: pods and their servers as in the manifests, and a client at each position. */
import { hostCidr, type IpAddress, type IpFamily } from "../src/net/ip.ts";
import { ClientCgroup } from "../testkit/net/client-cgroup.ts";
import type { ListenSpec } from "../testkit/net/messages.ts";
import { type Prober, startProber } from "../testkit/net/namespace-prober.ts";
import type { NetworkNamespace } from "../testkit/net/network-namespace.ts";
import { type Backend, startBackend } from "../testkit/net/pod-backend.ts";
import { Topology } from "../testkit/net/topology.ts";
import { bareAddress, client, clientPod, defaultTopology, nodeA } from "../testkit/net/topology-spec.ts";
import { isProbeable } from "./cell-probe.ts";
import type { ClusterView, DemoSocket } from "./cluster-view.ts";
import { addressOf, homeOf, type PlayedNode, placeOf } from "./played-node.ts";
import { StandIns } from "./stand-ins.ts";
import type { Position } from "./targets.ts";

const namespaceOf: Readonly<Record<Position, string>> = { pod: clientPod.name, node: nodeA.name, client: client.name };

/** Addresses of the node and the clients, in one family. */
export interface NetworkFacts {
  readonly nodeName: string;
  /** The address of each client; for the node, its uplink address. */
  readonly sources: Readonly<Record<Position, IpAddress>>;
  /** The source address that masquerading gives to packets to this endpoint. */
  masqueradeAddress(endpoint: IpAddress): IpAddress;
  /** Whether the endpoint is the node itself: the source address of such packets depends on their path. */
  isOnNode(endpoint: IpAddress): boolean;
}

/** The facts that the expectations need, for each family. */
export function networkFacts(
  node: PlayedNode,
  sockets: readonly DemoSocket[],
): Readonly<Record<IpFamily, NetworkFacts>> {
  const places = new Map(sockets.map(({ address, nodeName }) => [address, placeOf(address, nodeName, node)]));
  const placeAt = (address: IpAddress) => places.get(address) ?? placeOf(address, "", node);
  const factsOf = (family: "ipv4" | "ipv6"): NetworkFacts => ({
    nodeName: node.name,
    sources: {
      pod: addressOf(clientPod[family]),
      node: node.addresses[family === "ipv4" ? "IPv4" : "IPv6"],
      client: addressOf(client.lan[family]),
    },
    // MASQUERADE uses the address of the outgoing interface.
    masqueradeAddress: (to) => addressOf((placeAt(to) === "here" ? nodeA.bridge : nodeA.lan)[family]),
    isOnNode: (address) => placeAt(address) === "node",
  });
  return { IPv4: factsOf("ipv4"), IPv6: factsOf("ipv6") };
}

interface WantedPod {
  readonly node: string;
  readonly addresses: Set<IpAddress>;
  readonly listen: Map<string, ListenSpec>;
}

/** Groups sockets by pod. @returns the pods, and the sockets at addresses outside the demo's pod networks. */
export function wantedPods(sockets: readonly DemoSocket[]): {
  readonly pods: ReadonlyMap<string, WantedPod>;
  readonly foreign: readonly DemoSocket[];
} {
  const pods = new Map<string, WantedPod>();
  const foreign: DemoSocket[] = [];
  for (const socket of sockets) {
    const { pod, address, protocol, port } = socket;
    const home = homeOf(address);
    if (home === undefined) {
      foreign.push(socket);
      continue;
    }
    if (!isProbeable(protocol)) continue;
    const wanted = pods.get(pod) ?? { node: home.name, addresses: new Set(), listen: new Map() };
    wanted.addresses.add(address);
    wanted.listen.set(`${protocol} ${port}`, { protocol, port });
    pods.set(pod, wanted);
  }
  return { pods, foreign };
}

interface RunningPod {
  readonly backend: Backend;
  readonly addresses: ReadonlySet<IpAddress>;
}

/** Gives the node the addresses of the Node it plays, and makes them its source addresses, as on a real node. */
export function nodeLines({ addresses, extra }: PlayedNode): string[] {
  const routers = { IPv4: defaultTopology.lan.ipv4, IPv6: defaultTopology.lan.ipv6 } as const;
  const routes = (["IPv4", "IPv6"] as const)
    .filter((family) => extra.includes(addresses[family]))
    .map((family) => {
      const router = bareAddress(routers[family]);
      return `route replace default via ${router} dev eth0 onlink src ${addresses[family]}`;
    });
  // Without `nodad` an IPv6 address cannot be the source of a route for a moment, and the route is refused.
  const added = extra.map((address) => `addr add ${hostCidr(address)} dev lo${address.includes(":") ? " nodad" : ""}`);
  return [...added, ...routes];
}

/** A running network; always end it with {@link DemoNetwork.destroy}. */
export class DemoNetwork {
  readonly topology: Topology;
  readonly probers: Readonly<Record<Position, Prober>>;
  readonly #pods = new Map<string, RunningPod>();

  readonly #standIns: StandIns;

  readonly #cgroup: ClientCgroup | undefined;

  private constructor(topology: Topology, node: PlayedNode, cgroup: ClientCgroup | undefined) {
    this.topology = topology;
    this.#cgroup = cgroup;
    this.#standIns = new StandIns(topology, node);
    const start = (position: Position): Prober =>
      startProber(topology.namespace(namespaceOf[position]), position === "client" ? undefined : cgroup?.path);
    this.probers = { pod: start("pod"), node: start("node"), client: start("client") };
  }

  /** The cgroup of the clients on the node. */
  get cgroup(): string | undefined {
    return this.#cgroup?.path;
  }

  /**
   * Builds the namespaces and starts the clients; {@link DemoNetwork.follow} starts the pods.
   *
   * @param needsCgroup whether the clients on the node get a cgroup of their own.
   */
  static async create(node: PlayedNode, needsCgroup = false): Promise<DemoNetwork> {
    const topology = await Topology.create("demo");
    let cgroup: ClientCgroup | undefined;
    try {
      cgroup = needsCgroup ? ClientCgroup.create("kpts-demo") : undefined;
      await topology.namespace(nodeA.name).configure(nodeLines(node));
      return new DemoNetwork(topology, node, cgroup);
    } catch (error) {
      await topology.destroy();
      await cgroup?.remove();
      throw error;
    }
  }

  /** The namespace for the proxy. */
  get nodeNamespace(): NetworkNamespace {
    return this.topology.namespace(nodeA.name);
  }

  /** The namespace of the outside client, in which people can try things. */
  get clientNamespace(): NetworkNamespace {
    return this.topology.namespace(namespaceOf.client);
  }

  /**
   * Starts the pods of the manifests that do not run yet, and makes every pod listen where its slices say. Pods that no
   * slice names any more keep running. @returns what could not be done, one line each.
   */
  async follow(view: ClusterView): Promise<readonly string[]> {
    const { pods, foreign } = wantedPods(view.sockets);
    const problems = await this.#standIns.follow(foreign);
    const failures = await Promise.all([...pods].map(([name, wanted]) => this.#followPod(name, wanted)));
    return [...problems, ...failures.filter((failure) => failure !== undefined)];
  }

  async #followPod(name: string, wanted: WantedPod): Promise<string | undefined> {
    try {
      const running = this.#pods.get(name) ?? (await this.#startPod(name, wanted));
      const unknown = [...wanted.addresses].filter((address) => !running.addresses.has(address));
      if (unknown.length > 0)
        return `pod ${name} is already running without the address ${unknown.join(", ")}: restart the demo`;
      await running.backend.listen([...wanted.listen.values()]);
      return undefined;
    } catch (error) {
      return `pod ${name}: ${error instanceof Error ? error.message : String(error)}`;
    }
  }

  async #startPod(name: string, wanted: WantedPod): Promise<RunningPod> {
    const ipv4 = [...wanted.addresses].find((address) => !address.includes(":"));
    const ipv6 = [...wanted.addresses].find((address) => address.includes(":"));
    const namespace = await this.topology.addPod({ name, node: wanted.node, ipv4, ipv6 });
    const addresses = new Set([ipv4, ipv6].filter((address) => address !== undefined));
    const pod = { backend: startBackend(namespace, name), addresses };
    this.#pods.set(name, pod);
    return pod;
  }

  /** Ends every process and removes every namespace. Safe to call twice. */
  async destroy(): Promise<void> {
    await this.topology.destroy();
    await this.#cgroup?.remove();
  }
}
