/**
 * The daemon as a whole: how long after the manifest of a new service was written a connection through its cluster IP
 * succeeds, with a client that tries all the time.
 */
import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { NetworkNamespace } from "../src/demo/network-namespace.ts";
import { newRunName } from "../src/demo/run-name.ts";
import { ProxyDaemon } from "../test/support/proxy-daemon.ts";
import { atExit } from "./at-exit.ts";
import { benchService, benchSlice } from "./cluster.ts";
import type { NftablesTask, Spread } from "./nftables-figures.ts";
import { spread } from "./nftables-samples.ts";

const CLIENT = fileURLToPath(new URL("./connection-client.ts", import.meta.url));
const NODE_IP = "10.200.0.2";
const SERVER_IP = "10.200.0.3";
const SERVER_PORT = 8080;
/** Between two trials: a multiple of no period of the daemon's. */
const PAUSE_MS = 137;

function manifest(index: number, endpoints: readonly string[]): unknown[] {
  const { namespace, name, clusterIP, ports } = benchService(index);
  const [port] = ports;
  return [
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { namespace, name },
      spec: { type: "ClusterIP", clusterIP, ports: [{ name: port?.name, port: port?.port, protocol: port?.protocol }] },
    },
    {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: { namespace, name: `${name}-slice`, labels: { "kubernetes.io/service-name": name } },
      addressType: "IPv4",
      ports: [{ name: port?.name, port: SERVER_PORT, protocol: port?.protocol }],
      endpoints: endpoints.map((address) => ({ addresses: [address], nodeName: "another-node", conditions: {} })),
    },
  ];
}

function cluster({ services, endpointsEach }: NftablesTask): unknown[] {
  return Array.from({ length: services }, (_, index) =>
    manifest(
      index,
      benchSlice(index, endpointsEach).endpoints.flatMap(({ addresses }) => addresses.slice(0, 1)),
    ),
  ).flat();
}

/** A node, and behind its only link a server. */
async function network(): Promise<{ readonly node: NetworkNamespace; readonly server: NetworkNamespace }> {
  const node = await NetworkNamespace.create(newRunName("bench"));
  const server = await NetworkNamespace.create(newRunName("bench"));
  await node.configure([
    `link add eth0 type veth peer name eth0 netns ${server.name}`,
    "link set eth0 up",
    `addr add ${NODE_IP}/24 dev eth0`,
    `route add default via ${SERVER_IP}`,
  ]);
  await server.configure(["link set eth0 up", `addr add ${SERVER_IP}/24 dev eth0`]);
  return { node, server };
}

/** Tries until a connection succeeds. @returns when it did, on the clock of `process.hrtime`. */
type Client = (clusterIP: string) => Promise<bigint>;

function startClient(node: NetworkNamespace): { readonly connect: Client; readonly stop: () => void } {
  const child = node.spawn([process.execPath, CLIENT], { stdio: ["pipe", "pipe", "inherit"] });
  const { stdin, stdout } = child;
  if (stdin === null || stdout === null) throw new Error("the client has no pipes");
  const answers = createInterface({ input: stdout })[Symbol.asyncIterator]();
  return {
    connect: async (clusterIP) => {
      stdin.write(`${clusterIP}\n`);
      return BigInt((await answers.next()).value ?? 0);
    },
    stop: () => void child.kill(),
  };
}

function startServer(server: NetworkNamespace): () => void {
  const script = `require("node:net").createServer((socket) => socket.end()).listen(${SERVER_PORT}, "0.0.0.0")`;
  const child = server.spawn([process.execPath, "-e", script], { stdio: "ignore" });
  return () => void child.kill();
}

/** Builds on the daemon in `bin`: what is compiled is measured. */
export async function measureConnection(task: NftablesTask): Promise<Spread> {
  const { node, server } = await network();
  const remove = atExit(() => {
    node.removeNow();
    server.removeNow();
  });
  const stopServer = startServer(server);
  const { connect, stop } = startClient(node);
  const nodeObject = {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name: "node-a" },
    spec: { podCIDRs: ["10.180.0.0/24"] },
    status: { addresses: [{ type: "InternalIP", address: NODE_IP }] },
  };
  let daemon: ProxyDaemon | undefined;
  try {
    daemon = ProxyDaemon.prepare(node, {
      hostnameOverride: "node-a",
      objects: [nodeObject, ...cluster(task)],
      config: { mode: "nftables" },
    });
    daemon.spawn();
    await daemon.synced();
    const samples: number[] = [];
    for (let trial = 0; trial < task.trials; trial += 1) {
      const index = task.services + trial;
      const draft = join(daemon.folder, "draft.json");
      const text = JSON.stringify({ apiVersion: "v1", kind: "List", items: manifest(index, [SERVER_IP]) });
      const connected = connect(benchService(index).clusterIP);
      await sleep(PAUSE_MS);
      const startNs = process.hrtime.bigint();
      writeFileSync(draft, text);
      renameSync(draft, join(daemon.manifests, `new-${trial}.json`));
      samples.push(Number((await connected) - startNs) / 1e6);
    }
    return spread(samples);
  } finally {
    stop();
    stopServer();
    await daemon?.dispose();
    await node.remove();
    await server.remove();
    remove();
  }
}
