/** The demo's cluster of namespaces: follows the manifests with pods and their servers, and has a client everywhere. */
import { cidrContains, type IpAddress, type IpFamily, parseIpAddress } from "../net/ip.ts";
import { type Backend, startBackend } from "./backend-process.ts";
import { isProbeable } from "./cell-probe.ts";
import type { ClusterView, DemoSocket } from "./cluster-view.ts";
import type { NetworkFacts, Position } from "./expectations.ts";
import type { ListenSpec } from "./messages.ts";
import type { NetworkNamespace } from "./network-namespace.ts";
import { type Prober, startProber } from "./prober-process.ts";
import { Topology } from "./topology.ts";
import { bareAddress, client, clientPod, defaultTopology, type NodeSpec, networkOf, nodeA } from "./topology-spec.ts";

const namespaceOf: Readonly<Record<Position, string>> = { pod: clientPod.name, node: nodeA.name, client: client.name };

/** Addresses of the node under test, for node ports. */
export const nodeAddresses: Readonly<Record<IpFamily, IpAddress>> = {
  IPv4: addressOf(nodeA.lan.ipv4),
  IPv6: addressOf(nodeA.lan.ipv6),
};

function addressOf(text: string): IpAddress {
  const address = parseIpAddress(bareAddress(text));
  if (address === undefined) throw new TypeError(`not an address: ${text}`);
  return address;
}

function isInPodNetwork({ bridge }: NodeSpec, address: IpAddress): boolean {
  return cidrContains(networkOf(bridge.ipv4), address) || cidrContains(networkOf(bridge.ipv6), address);
}

/** The node whose pod network has the address. */
function nodeOf(address: IpAddress): NodeSpec | undefined {
  return defaultTopology.nodes.find((candidate) => isInPodNetwork(candidate, address));
}

/** What the expectations need to know, for one family. */
export const networkFacts: Readonly<Record<IpFamily, NetworkFacts>> = {
  IPv4: factsOf("ipv4"),
  IPv6: factsOf("ipv6"),
};

function factsOf(family: "ipv4" | "ipv6"): NetworkFacts {
  return {
    nodeName: nodeA.name,
    sources: {
      pod: addressOf(clientPod[family]),
      node: addressOf(nodeA.lan[family]),
      client: addressOf(client.lan[family]),
    },
    // MASQUERADE takes the address of the interface that the packet leaves by.
    masqueradeAddress: (to) => addressOf((isInPodNetwork(nodeA, to) ? nodeA.bridge : nodeA.lan)[family]),
  };
}

interface WantedPod {
  readonly node: string;
  readonly addresses: Set<IpAddress>;
  readonly listen: Map<string, ListenSpec>;
}

/** Groups sockets by pod. Pure. @returns the pods, and one line for each that cannot be. */
export function wantedPods(sockets: readonly DemoSocket[]): {
  readonly pods: ReadonlyMap<string, WantedPod>;
  readonly problems: readonly string[];
} {
  const pods = new Map<string, WantedPod>();
  const problems = new Set<string>();
  for (const { pod, address, protocol, port } of sockets) {
    const home = nodeOf(address);
    if (home === undefined) {
      problems.add(`endpoint ${address} (${pod}) is in no node's pod network: no pod can be started for it`);
      continue;
    }
    if (!isProbeable(protocol)) continue;
    const wanted = pods.get(pod) ?? { node: home.name, addresses: new Set(), listen: new Map() };
    wanted.addresses.add(address);
    wanted.listen.set(`${protocol} ${port}`, { protocol, port });
    pods.set(pod, wanted);
  }
  return { pods, problems: [...problems] };
}

interface RunningPod {
  readonly backend: Backend;
  readonly addresses: ReadonlySet<IpAddress>;
}

/** A running network; always end it with {@link DemoNetwork.destroy}. */
export class DemoNetwork {
  readonly topology: Topology;
  readonly probers: Readonly<Record<Position, Prober>>;
  readonly #pods = new Map<string, RunningPod>();

  private constructor(topology: Topology) {
    this.topology = topology;
    const start = (position: Position): Prober => startProber(topology.namespace(namespaceOf[position]));
    this.probers = { pod: start("pod"), node: start("node"), client: start("client") };
  }

  /** Builds the namespaces and starts the clients; pods come with {@link DemoNetwork.follow}. */
  static async create(): Promise<DemoNetwork> {
    return new DemoNetwork(await Topology.create("demo"));
  }

  /** The namespace that the proxy belongs in. */
  get nodeNamespace(): NetworkNamespace {
    return this.topology.namespace(nodeA.name);
  }

  /** The namespace of the machine outside, for a person to try things from. */
  get clientNamespace(): NetworkNamespace {
    return this.topology.namespace(namespaceOf.client);
  }

  /**
   * Starts the pods that the manifests name and do not run yet, and has every pod listen where its slices say. Pods
   * that no slice names any more stay. @returns what could not be done, one line each.
   */
  async follow(view: ClusterView): Promise<readonly string[]> {
    const { pods, problems } = wantedPods(view.sockets);
    const failures = await Promise.all([...pods].map(([name, wanted]) => this.#followPod(name, wanted)));
    return [...problems, ...failures.filter((failure) => failure !== undefined)];
  }

  async #followPod(name: string, wanted: WantedPod): Promise<string | undefined> {
    try {
      const running = this.#pods.get(name) ?? (await this.#startPod(name, wanted));
      const unknown = [...wanted.addresses].filter((address) => !running.addresses.has(address));
      if (unknown.length > 0)
        return `pod ${name} runs already and has no address ${unknown.join(", ")}: restart the demo`;
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
  destroy(): Promise<void> {
    return this.topology.destroy();
  }
}
