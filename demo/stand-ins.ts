/**
 * Servers for endpoints with addresses outside the demo's networks, of which a dump of a real cluster has many. They share two
 * namespaces that carry all their addresses: one for pods of the node, and one for everything elsewhere.
 */
import type { IpAddress } from "../src/net/ip.ts";
import type { ListenSpec } from "../testkit/net/messages.ts";
import { type Backend, startBackend } from "../testkit/net/pod-backend.ts";
import type { Topology } from "../testkit/net/topology.ts";
import { bareAddress, nodeA, nodeB, type PodSpec } from "../testkit/net/topology-spec.ts";
import { isProbeable } from "./cell-probe.ts";
import type { DemoSocket } from "./cluster-view.ts";
import { type Place, type PlayedNode, placeOf } from "./played-node.ts";

const HOSTS: Readonly<Record<"here" | "elsewhere", PodSpec>> = {
  here: { name: "pods-here", node: nodeA.name, ipv4: "10.180.0.251", ipv6: "fd00:10:180::251" },
  elsewhere: { name: "pods-elsewhere", node: nodeB.name, ipv4: "10.180.1.251", ipv6: "fd00:10:180:0:1::251" },
};

export class StandIns {
  readonly #topology: Topology;
  readonly #node: PlayedNode;
  readonly #backends = new Map<Place, Backend>();
  readonly #places = new Map<IpAddress, Place>();

  constructor(topology: Topology, node: PlayedNode) {
    this.#topology = topology;
    this.#node = node;
  }

  /** Serves exactly these sockets. @returns what could not be done, one line each. */
  async follow(sockets: readonly DemoSocket[]): Promise<string[]> {
    const problems = new Set<string>();
    const wanted = new Map<Place, ListenSpec[]>();
    const added = new Map<Place, IpAddress[]>();
    for (const { pod, address, protocol, port, nodeName } of sockets) {
      const known = this.#places.get(address);
      const place = known ?? placeOf(address, nodeName, this.#node);
      if (place !== placeOf(address, nodeName, this.#node)) {
        problems.add(`endpoint ${address} (${pod}) moved to another node: restart the demo`);
        continue;
      }
      if (!isProbeable(protocol)) continue;
      if (known === undefined) added.set(place, [...(added.get(place) ?? []), address]);
      this.#places.set(address, place);
      wanted.set(place, [...(wanted.get(place) ?? []), { protocol, port, address, pod }]);
    }
    for (const place of new Set([...this.#backends.keys(), ...wanted.keys()])) {
      try {
        const backend = this.#backends.get(place) ?? (await this.#start(place));
        if (place !== "node") await this.#bring(place, added.get(place) ?? []);
        await backend.listen(wanted.get(place) ?? []);
      } catch (error) {
        problems.add(error instanceof Error ? error.message : String(error));
      }
    }
    return [...problems];
  }

  async #start(place: Place): Promise<Backend> {
    const namespace =
      place === "node" ? this.#topology.namespace(nodeA.name) : await this.#topology.addPod(HOSTS[place]);
    const backend = startBackend(namespace, place);
    this.#backends.set(place, backend);
    return backend;
  }

  /** Adds addresses to the host of a place, and routes to them on both nodes. */
  async #bring(place: "here" | "elsewhere", addresses: readonly IpAddress[]): Promise<void> {
    if (addresses.length === 0) return;
    const [home, other] = place === "here" ? [nodeA, nodeB] : [nodeB, nodeA];
    const isIPv6 = (address: IpAddress) => address.includes(":");
    const host = (address: IpAddress) => `${address}/${isIPv6(address) ? 128 : 32}`;
    const lines = (make: (address: IpAddress) => string) => addresses.map(make);
    await this.#topology
      .namespace(HOSTS[place].name)
      .configure(lines((address) => `addr add ${host(address)} dev eth0${isIPv6(address) ? " nodad" : ""}`));
    await this.#topology.namespace(home.name).configure(lines((address) => `route replace ${host(address)} dev cni0`));
    const gateway = (address: IpAddress) => bareAddress(isIPv6(address) ? home.lan.ipv6 : home.lan.ipv4);
    await this.#topology
      .namespace(other.name)
      .configure(lines((address) => `route replace ${host(address)} via ${gateway(address)}`));
  }
}
