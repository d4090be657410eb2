/**
 * Two nodes, each with an endpoint and a client in pods: one runs the userspace mode and the two small proxies, the other the
 * iptables mode. So everything can be measured in turns.
 */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { service, slice } from "../test/kernel/faults/fault-node.ts";
import type { NetworkNamespace } from "../testkit/net/network-namespace.ts";
import { Topology } from "../testkit/net/topology.ts";
import {
  bareAddress,
  defaultClusterCidr,
  defaultTopology,
  type NodeSpec,
  nodeA,
  nodeB,
} from "../testkit/net/topology-spec.ts";
import { ProxyDaemon } from "../testkit/support/proxy-daemon.ts";
import { figuresOf } from "./memory.ts";
import { engineOptions } from "./run-worker.ts";
import type { ClientFigures, Load, TrafficFigures, Way } from "./traffic-figures.ts";

const SERVICE_ADDRESS = "10.96.0.1";
const SERVICE_PORT = 80;
/** That of every slice made here. */
const SERVER_PORT = 8080;
const PIPE_PORT = 9001;
const RELAY_PORT = 9002;

interface Target {
  readonly client: NetworkNamespace;
  readonly address: string;
  readonly port: number;
  readonly serverPid: number;
  readonly proxyPid: number | undefined;
}

interface NodeUnderTest {
  readonly spec: NodeSpec;
  readonly server: ChildProcess;
  readonly serverAddress: string;
  readonly client: NetworkNamespace;
}

export class TrafficNetwork {
  readonly #topology: Topology;
  readonly #targets = new Map<Way, Target>();
  readonly #daemons: ProxyDaemon[] = [];

  private constructor(topology: Topology) {
    this.#topology = topology;
  }

  /** End with {@link TrafficNetwork.destroy}. */
  static async create(): Promise<TrafficNetwork> {
    const network = new TrafficNetwork(await Topology.create("traffic", { ...defaultTopology, pods: [], hosts: [] }));
    try {
      await network.#build();
    } catch (error) {
      await network.destroy();
      throw error;
    }
    return network;
  }

  /** One load over one way, for so many seconds. */
  async measure(way: Way, load: Load, seconds: number): Promise<TrafficFigures> {
    const target = this.#targets.get(way);
    if (target === undefined) throw new TypeError(`no way called ${way}`);
    const { client, address, port, serverPid, proxyPid } = target;
    const cpuMs = (pid: number | undefined): number => (pid === undefined ? 0 : figuresOf(pid).cpuMs);
    const before = { server: cpuMs(serverPid), proxy: cpuMs(proxyPid) };
    const words = [program("traffic-client.ts"), load, address, String(port), String(seconds)];
    const { stdout } = await client.exec([process.execPath, ...words], { timeoutMs: 1000 * seconds + 30_000 });
    const { cpuMs: clientCpuMs, ...counted }: ClientFigures = JSON.parse(stdout);
    const proxyCpuMs = cpuMs(proxyPid) - before.proxy;
    return { ...counted, proxyCpuMs, allCpuMs: clientCpuMs + cpuMs(serverPid) - before.server + proxyCpuMs };
  }

  async destroy(): Promise<void> {
    await Promise.all(this.#daemons.map((daemon) => daemon.dispose()));
    await this.#topology.destroy();
  }

  async #build(): Promise<void> {
    const [a, b] = await Promise.all([this.#addNode(nodeA), this.#addNode(nodeB)]);
    const gateway = bareAddress(nodeA.bridge.ipv4);
    const proxy = async (name: string, port: number, options: readonly string[] = []): Promise<Target> => {
      const to = [a.serverAddress, String(SERVER_PORT)];
      const words = [...options, program(name), gateway, String(port), ...to];
      const child = await started(this.#topology.namespace(nodeA.name), words);
      return { ...this.#directTarget(a), address: gateway, port, proxyPid: child.pid };
    };
    this.#targets.set("direct", this.#directTarget(a));
    this.#targets.set("pipe", await proxy("traffic-pipe.ts", PIPE_PORT));
    this.#targets.set("relay", await proxy("traffic-relay.ts", RELAY_PORT, engineOptions()));
    for (const [mode, node] of [
      ["userspace", a],
      ["iptables", b],
    ] as const) {
      const daemon = await this.#startDaemon(mode, node);
      const proxyPid = mode === "userspace" ? daemon.pid : undefined;
      const service = { address: SERVICE_ADDRESS, port: SERVICE_PORT };
      this.#targets.set(mode, { ...this.#directTarget(node), ...service, proxyPid });
    }
  }

  async #addNode(spec: NodeSpec): Promise<NodeUnderTest> {
    const prefix = bareAddress(spec.bridge.ipv4).replace(/\d+$/, "");
    const serverAddress = `${prefix}11`;
    const pod = (name: string, ipv4: string) =>
      this.#topology.addPod({ name: `${spec.name}-${name}`, node: spec.name, ipv4 });
    const serverPod = await pod("server", serverAddress);
    const client = await pod("client", `${prefix}12`);
    const server = await started(serverPod, [program("traffic-server.ts"), serverAddress, String(SERVER_PORT)]);
    return { spec, server, serverAddress, client };
  }

  #directTarget({ server, serverAddress, client }: NodeUnderTest): Target {
    if (server.pid === undefined) throw new Error("the endpoint did not start");
    return { client, address: serverAddress, port: SERVER_PORT, serverPid: server.pid, proxyPid: undefined };
  }

  async #startDaemon(mode: "userspace" | "iptables", { spec, serverAddress }: NodeUnderTest): Promise<ProxyDaemon> {
    const daemon = await ProxyDaemon.start(this.#topology.namespace(spec.name), {
      hostnameOverride: spec.name,
      objects: clusterOf(spec, serverAddress),
      config: { mode, clusterCIDR: defaultClusterCidr },
    });
    this.#daemons.push(daemon);
    return daemon;
  }
}

function program(name: string): string {
  return fileURLToPath(new URL(`./${name}`, import.meta.url));
}

/** Starts a program of this folder and waits until it says that it is ready. It ends with its namespace. */
async function started(namespace: NetworkNamespace, words: readonly string[]): Promise<ChildProcess> {
  const child = namespace.spawn([process.execPath, ...words], { stdio: ["ignore", "pipe", "inherit"] });
  if (child.stdout === null) throw new Error("no standard output");
  await Promise.race([
    once(child.stdout, "data"),
    once(child, "exit").then(([status]) => {
      throw new Error(`${words.join(" ")}: ended with ${status}`);
    }),
  ]);
  return child;
}

function clusterOf({ name, lan }: NodeSpec, serverAddress: string): unknown[] {
  const node = {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name },
    status: { addresses: [{ type: "InternalIP", address: bareAddress(lan.ipv4) }] },
  };
  return [node, service("web", SERVICE_ADDRESS), slice("web", [serverAddress])];
}
