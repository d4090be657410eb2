/**
 * A throw-away cluster network in namespaces: nodes with pod bridges on one LAN, pods, and off-node hosts. The demo and
 * the kernel tests build on it. Knows nothing of Services; nothing in the host's own namespace is touched.
 *
 * ```
 *   host "client"        node "node-a"                         node "node-b"
 *     eth0 .100            eth0 .2      cni0 10.180.0.1          eth0 .3      cni0 10.180.1.1
 *       |                    |            |    |    |              |            |
 *   ----+---- fabric br0 ----+------------|----|----|--------------+            |
 *        10.200.0.0/24, fd00:200::/64    pod  pod  pod                         pod
 * ```
 *
 * Pods have host prefixes (/32, /128), so traffic between two pods of one node is routed by the node and passes its
 * connection tracking both ways, as with most CNI plugins (a shared subnet would need bridge-nf-call-iptables).
 */
import { NetworkNamespace, removeLeftoverNamespaces, removeNamespacesNow } from "./network-namespace.ts";
import { newRunName } from "./run-name.ts";
import {
  bareAddress,
  defaultTopology,
  type HostSpec,
  type NodeSpec,
  networkOf,
  type PodSpec,
  type TopologySpec,
} from "./topology-spec.ts";

// Pod addresses have no subnet of their own, so the gateway is reached through the link.
const GATEWAY_MAC = "02:00:00:00:00:01";

/** Sysctls that make IPv6 addresses usable at once and keep hosts on their given routes. */
const HOST_SYSCTLS = {
  "net.ipv6.conf.all.disable_ipv6": 0,
  "net.ipv6.conf.default.accept_dad": 0,
  "net.ipv6.conf.all.accept_dad": 0,
  "net.ipv6.conf.default.accept_ra": 0,
  "net.ipv6.conf.default.accept_redirects": 0,
  "net.ipv6.conf.all.accept_redirects": 0,
  "net.ipv4.conf.all.accept_redirects": 0,
  "net.ipv4.conf.default.accept_redirects": 0,
} as const;

/** A node forwards, and answers every rejected probe: the kernel's ICMP rate limits would turn "refused" into silence. */
const NODE_SYSCTLS = {
  ...HOST_SYSCTLS,
  "net.ipv4.ip_forward": 1,
  "net.ipv6.conf.all.forwarding": 1,
  "net.ipv4.conf.all.send_redirects": 0,
  "net.ipv4.conf.default.send_redirects": 0,
  "net.ipv4.icmp_ratelimit": 0,
  "net.ipv4.icmp_msgs_per_sec": 1_000_000,
  "net.ipv4.icmp_msgs_burst": 100_000,
  "net.ipv6.icmp.ratelimit": 0,
} as const;

/** A running network. Build with {@link Topology.create}; always end with {@link Topology.destroy}. */
export class Topology {
  readonly name: string;
  readonly spec: TopologySpec;
  readonly #namespaces = new Map<string, NetworkNamespace>();
  readonly #pods = new Map<string, PodSpec>();
  #linkCount = 0;
  readonly #removeNow = (): void => {
    removeNamespacesNow([...this.#namespaces.values()].map(({ name }) => name));
  };

  private constructor(name: string, spec: TopologySpec) {
    this.name = name;
    this.spec = spec;
  }

  /**
   * Removes leftovers of dead runs, then builds the network; on any failure, removes what was built and rejects with
   * CommandError. Needs root and the `ip` and `sysctl` tools.
   *
   * @param label shows in the namespace names; lower-case letters and digits.
   */
  static async create(label: string, spec: TopologySpec = defaultTopology): Promise<Topology> {
    removeLeftoverNamespaces();
    const topology = new Topology(newRunName(label), spec);
    process.once("exit", topology.#removeNow);
    try {
      await topology.#build();
    } catch (error) {
      await topology.destroy();
      throw error;
    }
    return topology;
  }

  /** The namespace of a node, host or pod. Throws on an unknown name. */
  namespace(name: string): NetworkNamespace {
    const namespace = this.#namespaces.get(name);
    if (namespace === undefined) {
      throw new TypeError(
        `topology ${this.name} has no namespace ${name}; it has ${[...this.#namespaces.keys()].join(", ")}`,
      );
    }
    return namespace;
  }

  /** The running pods, by name. */
  get pods(): ReadonlyMap<string, PodSpec> {
    return this.#pods;
  }

  /** Adds a pod to a node's bridge. Rejects if the name is taken or the node is unknown. */
  async addPod(pod: PodSpec): Promise<NetworkNamespace> {
    const node = this.spec.nodes.find((candidate) => candidate.name === pod.node);
    if (node === undefined) throw new TypeError(`pod ${pod.name}: the topology has no node ${pod.node}`);
    const [namespace] = await this.#addNamespaces([pod.name]);
    if (namespace === undefined) throw new TypeError(`pod ${pod.name}: no namespace`);
    await this.namespace(node.name).configure(this.#podLinkLines(pod, namespace));
    await namespace.configure(podLines(pod, node));
    this.#pods.set(pod.name, pod);
    return namespace;
  }

  /** Ends every process in the namespaces and removes them. Safe to call twice. */
  async destroy(): Promise<void> {
    await NetworkNamespace.removeAll([...this.#namespaces.values()]);
    this.#namespaces.clear();
    this.#pods.clear();
    process.removeListener("exit", this.#removeNow);
  }

  /** One batch per namespace: starting the `ip` tool costs more than its work. */
  async #build(): Promise<void> {
    const { nodes, hosts, pods, lan } = this.spec;
    for (const host of hosts) this.#gatewayOf(host);
    await this.#addNamespaces(["fabric", ...[...nodes, ...hosts, ...pods].map(({ name }) => name)]);
    for (const { name } of nodes) this.namespace(name).sysctl(NODE_SYSCTLS);
    await this.namespace("fabric").configure([
      "link set lo up",
      "link add br0 type bridge",
      "link set br0 up",
      addressLine(lan.ipv4, "br0"),
      addressLine(lan.ipv6, "br0"),
      ...[...nodes, ...hosts].flatMap(({ name }) => this.#lanLinkLines(this.namespace(name))),
    ]);
    await Promise.all([
      ...nodes.map((node) => this.namespace(node.name).configure(this.#nodeLines(node))),
      ...hosts.map((host) => this.namespace(host.name).configure(hostLines(host, this.#gatewayOf(host)))),
    ]);
    await Promise.all(
      nodes.flatMap((node) => this.#podsOf(node).map((pod) => this.namespace(pod.name).configure(podLines(pod, node)))),
    );
    for (const pod of pods) this.#pods.set(pod.name, pod);
  }

  #podsOf(node: NodeSpec): readonly PodSpec[] {
    return this.spec.pods.filter((pod) => pod.node === node.name);
  }

  #gatewayOf(host: HostSpec): NodeSpec {
    const gateway = this.spec.nodes.find((node) => node.name === host.gateway);
    if (gateway === undefined) throw new TypeError(`host ${host.name}: the topology has no node ${host.gateway}`);
    return gateway;
  }

  #nodeLines(node: NodeSpec): string[] {
    const others = this.spec.nodes.filter((other) => other !== node);
    return [
      ...UP,
      `link add cni0 address ${GATEWAY_MAC} type bridge`,
      "link set cni0 up",
      addressLine(node.bridge.ipv4, "cni0"),
      addressLine(node.bridge.ipv6, "cni0"),
      addressLine(node.lan.ipv4, "eth0"),
      addressLine(node.lan.ipv6, "eth0"),
      ...defaultRoutes({ ipv4: this.spec.lan.ipv4, ipv6: this.spec.lan.ipv6 }),
      ...others.flatMap((other) => [
        `route add ${networkOf(other.bridge.ipv4)} via ${bareAddress(other.lan.ipv4)}`,
        `route add ${networkOf(other.bridge.ipv6)} via ${bareAddress(other.lan.ipv6)}`,
      ]),
      ...this.#podsOf(node).flatMap((pod) => this.#podLinkLines(pod, this.namespace(pod.name))),
    ];
  }

  /** On the node: the pod's end of a link, and the route to it. */
  #podLinkLines(pod: PodSpec, namespace: NetworkNamespace): string[] {
    const link = `veth${this.#nextLink()}`;
    return [
      `link add ${link} type veth peer name eth0 netns ${namespace.name}`,
      `link set ${link} master cni0 up`,
      // With br_netfilter, what a pod sends to its own service is bridged back to it. CNI plugins do the same.
      `link set ${link} type bridge_slave hairpin on`,
      ...(pod.ipv4 === undefined ? [] : [`route replace ${pod.ipv4}/32 dev cni0`]),
      ...(pod.ipv6 === undefined ? [] : [`route replace ${pod.ipv6}/128 dev cni0`]),
    ];
  }

  #lanLinkLines(namespace: NetworkNamespace): string[] {
    const port = `port${this.#nextLink()}`;
    return [`link add ${port} type veth peer name eth0 netns ${namespace.name}`, `link set ${port} master br0 up`];
  }

  async #addNamespaces(names: readonly string[]): Promise<NetworkNamespace[]> {
    const taken = names.find((name) => this.#namespaces.has(name));
    if (taken !== undefined) throw new TypeError(`topology ${this.name} already has a namespace ${taken}`);
    const added = await NetworkNamespace.createAll(names.map((name) => `${this.name}-${name}`));
    for (const [index, namespace] of added.entries()) {
      namespace.sysctl(HOST_SYSCTLS);
      this.#namespaces.set(names[index] ?? namespace.name, namespace);
    }
    return added;
  }

  #nextLink(): number {
    this.#linkCount += 1;
    return this.#linkCount;
  }
}

const UP = ["link set lo up", "link set eth0 up"];

function hostLines(host: HostSpec, gateway: NodeSpec): string[] {
  return [...UP, addressLine(host.lan.ipv4, "eth0"), addressLine(host.lan.ipv6, "eth0"), ...defaultRoutes(gateway.lan)];
}

function podLines(pod: PodSpec, node: NodeSpec): string[] {
  const addresses = [pod.ipv4 && `${pod.ipv4}/32`, pod.ipv6 && `${pod.ipv6}/128`].filter((a) => a !== undefined);
  return [
    ...UP,
    ...addresses.map((address) => addressLine(address, "eth0")),
    ...(pod.ipv4 === undefined ? [] : defaultRoutes({ ipv4: node.bridge.ipv4 })),
    ...(pod.ipv6 === undefined ? [] : defaultRoutes({ ipv6: node.bridge.ipv6 })),
  ];
}

function addressLine(address: string, device: string): string {
  return `addr add ${address} dev ${device}${address.includes(":") ? " nodad" : ""}`;
}

/** Default routes over eth0; `onlink` because a pod's own address covers no subnet. */
function defaultRoutes(gateway: { readonly ipv4?: string; readonly ipv6?: string }): string[] {
  const lines: string[] = [];
  if (gateway.ipv4 !== undefined) lines.push(`route add default via ${bareAddress(gateway.ipv4)} dev eth0 onlink`);
  if (gateway.ipv6 !== undefined) lines.push(`route add default via ${bareAddress(gateway.ipv6)} dev eth0 onlink`);
  return lines;
}
