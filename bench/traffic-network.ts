/**
 * Two nodes, each with an endpoint and a client in pods: one runs the userspace mode and the small proxy, the other the
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
import type { ClientFigures } from "./traffic-process.ts";
import type { Load, TrafficFigures, Way } from "./userspace.ts";

const PROCESS = fileURLToPath(new URL("./traffic-process.ts", import.meta.url));

const SERVICE_ADDRESS = "10.96.0.1";
const SERVICE_PORT = 80;
/** The port of every slice made here. */
const SERVER_PORT = 8080;
const PIPE_PORT = 9001;

interface Target {
  readonly client: NetworkNamespace;
  readonly address: string;
  readonly port: number;
  readonly serverPid: number;
  readonly proxyPid: number | undefined;
}

interface NodeUnderTest {
  readonly spec: NodeSpec;
  readonly direct: Target;
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

  /** One load over one path, for this many seconds. */
  async measure(way: Way, load: Load, seconds: number): Promise<TrafficFigures> {
    const target = this.#targets.get(way);
    if (target === undefined) throw new TypeError(`no way called ${way}`);
    const { client, address, port, serverPid, proxyPid } = target;
    const cpuMs = (pid: number | undefined): number => (pid === undefined ? 0 : figuresOf(pid).cpuMs);
    const before = { server: cpuMs(serverPid), proxy: cpuMs(proxyPid) };
    const words = [PROCESS, "client", load, address, String(port), String(seconds)];
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
    this.#targets.set("direct", a.direct);
    const words = [PROCESS, "pipe", gateway, String(PIPE_PORT), a.direct.address, String(SERVER_PORT)];
    const { pid } = await started(this.#topology.namespace(nodeA.name), words);
    this.#targets.set("pipe", { ...a.direct, address: gateway, port: PIPE_PORT, proxyPid: pid });
    for (const [mode, node] of [
      ["userspace", a],
      ["iptables", b],
    ] as const) {
      const daemon = await this.#startDaemon(mode, node);
      const proxyPid = mode === "userspace" ? daemon.pid : undefined;
      this.#targets.set(mode, { ...node.direct, address: SERVICE_ADDRESS, port: SERVICE_PORT, proxyPid });
    }
  }

  async #addNode(spec: NodeSpec): Promise<NodeUnderTest> {
    const prefix = bareAddress(spec.bridge.ipv4).replace(/\d+$/, "");
    const serverAddress = `${prefix}11`;
    const pod = (name: string, ipv4: string) =>
      this.#topology.addPod({ name: `${spec.name}-${name}`, node: spec.name, ipv4 });
    const serverPod = await pod("server", serverAddress);
    const client = await pod("client", `${prefix}12`);
    const { pid } = await started(serverPod, [PROCESS, "server", serverAddress, String(SERVER_PORT)]);
    if (pid === undefined) throw new Error("the endpoint did not start");
    const direct = { client, address: serverAddress, port: SERVER_PORT, serverPid: pid, proxyPid: undefined };
    return { spec, direct };
  }

  async #startDaemon(mode: "userspace" | "iptables", { spec, direct }: NodeUnderTest): Promise<ProxyDaemon> {
    const daemon = await ProxyDaemon.start(this.#topology.namespace(spec.name), {
      hostnameOverride: spec.name,
      objects: clusterOf(spec, direct.address),
      config: { mode, clusterCIDR: defaultClusterCidr },
    });
    this.#daemons.push(daemon);
    return daemon;
  }
}

/** Starts a program of this folder and waits until it reports that it is ready. It ends with its namespace. */
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
