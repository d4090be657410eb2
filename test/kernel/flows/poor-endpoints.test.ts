/** Endpoints that answer some clients stay; where a whole node is dead, half of the endpoints are left out, and fewer clients fail. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { ProbeAnswer } from "../../../testkit/net/messages.ts";
import { clientPod, nodeB } from "../../../testkit/net/topology-spec.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { clusterOf, type ServingPod, servingPods, TARGET_PORTS } from "./cluster-objects.ts";
import { addressOf, type FlowNetwork, flowNetwork } from "./flow-network.ts";

const web = { name: "web", number: 1, endpoints: Object.keys(servingPods) as ServingPod[] } as const;
/** A SYN is sent again after a second: a client that waits for so long has had no answer to both. */
const PATIENCE_MS = 2_500;
const LEAVES = { "kube-proxy-ts/leave-unanswered": "true" };
const port = TARGET_PORTS.TCP;

/** The usual cluster, with more endpoints for IPv4. @param leaves whether those that do not answer are left out */
function clusterWith(more: readonly { readonly address: string; readonly node: string }[], leaves: boolean): unknown[] {
  return clusterOf([web]).map((object) => {
    const { kind, metadata, addressType, endpoints } = object as Readonly<Record<string, unknown>>;
    if (kind === "Service" && leaves)
      return { ...(object as object), metadata: { ...(metadata as object), annotations: LEAVES } };
    if (kind !== "EndpointSlice" || addressType !== "IPv4") return object;
    const added = more.map(({ address, node }) => ({
      addresses: [address],
      nodeName: node,
      conditions: { ready: true },
    }));
    return { ...(object as object), endpoints: [...(endpoints as readonly unknown[]), ...added] };
  });
}

/** From two clients: the silence of one is no evidence. */
async function connections({ probers }: FlowNetwork, count: number): Promise<readonly ProbeAnswer[]> {
  const asked = [
    probers["off-node client"].connect({ ...addressOf(1, "node port", "TCP", "IPv4"), count, timeoutMs: PATIENCE_MS }),
    probers.pod.connect({ ...addressOf(1, "cluster IP", "TCP", "IPv4"), count, timeoutMs: PATIENCE_MS }),
  ];
  return (await Promise.all(asked)).flat();
}

/** How many of 240 connections get no answer in time, or an error of the dead node. */
async function failing(network: FlowNetwork): Promise<number> {
  let count = 0;
  for (let round = 0; round < 5; round += 1) {
    count += (await connections(network, 24)).filter(({ ok }) => !ok).length;
  }
  return count;
}

const left = async ({ daemon }: FlowNetwork) => await daemon.metric("kubeproxy_left_endpoints");

/** Who overflows answers slowly: the queue of those that are not accepted has room for two. */
const SLOW_SERVER = `
const wait = new Int32Array(new SharedArrayBuffer(4));
require("node:net").createServer((socket) => { Atomics.wait(wait, 0, 0, 60); socket.on("error", () => {}).end("slow"); })
  .listen({ port: ${port}, host: "0.0.0.0", backlog: 1 }, () => console.log("listening"));`;

test("a pod that drops half, and one whose queue overflows, answer others and stay", {
  skip: kernelSkip,
}, async (t) => {
  const network = await flowNetwork(t, "nftables", [web]);
  const { daemon, topology } = network;
  const slow = topology.namespace(clientPod.name);
  const server = slow.spawn([process.execPath, "-e", SLOW_SERVER], { stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => server.kill("SIGKILL"));
  await new Promise((resolve) => server.stdout?.once("data", resolve));
  const half = ["-p", "tcp", "--dport", String(port), "-m", "statistic", "--mode", "random", "--probability", "0.5"];
  await topology.namespace(servingPods["remote-1"].name).exec(["iptables", "-A", "INPUT", ...half, "-j", "DROP"]);
  daemon.writeObjects(clusterWith([{ address: clientPod.ipv4, node: clientPod.node }], true));
  await daemon.until("the daemon watches", async () => (await left(network)) === 0);
  const all: Promise<readonly ProbeAnswer[]>[] = [];
  for (let round = 0; round < 60; round += 1) {
    all.push(connections(network, 12));
    await sleep(100);
    if (round % 5 === 4) assert.equal(await left(network), 0, `after ${round + 1} rounds`);
  }
  const answers = (await Promise.all(all)).flat();
  assert.ok(
    answers.some((answer) => !answer.ok && answer.error === "timeout"),
    "some have met nobody",
  );
  assert.ok(overflows(slow.readProcNet("netstat")) > 0, "the queue has overflowed");
  assert.equal((await daemon.metric('kubeproxy_left_endpoint_changes_total{change="left"}')) ?? 0, 0);
});

/** `ListenOverflows` of /proc/net/netstat: names in one line, numbers in the next. */
function overflows(text: string): number {
  const [names = [], numbers = []] = text.split("\n").map((line) => line.split(" "));
  return Number(numbers[names.indexOf("ListenOverflows")]);
}

test("a node full of dead pods: half of the endpoints are left out, and fewer clients fail", {
  skip: kernelSkip,
}, async (t) => {
  const network = await flowNetwork(t, "nftables", [web]);
  const { daemon, topology } = network;
  await topology.namespace(servingPods["remote-1"].name).exec(["ip", "link", "set", "eth0", "down"]);
  // No pod has these addresses.
  const dead = [101, 102, 103, 104, 105].map((host) => ({ address: `10.180.1.${host}`, node: nodeB.name }));
  // With upstream's rules: no endpoint is left out.
  daemon.writeObjects(clusterWith(dead, false));
  await daemon.until("all endpoints", async () => /10\.180\.1\.105/.test(await rulesOf(network)));
  const before = await failing(network);
  daemon.writeObjects(clusterWith(dead, true));
  await daemon.until("the daemon watches", async () => (await left(network)) === 0);
  // Six of eight endpoints are dead, all on one node; never more than half are left out.
  await daemon.until("four are left out", async () => {
    await connections(network, 12);
    return (await left(network)) === 4;
  });
  const after = await failing(network);
  assert.equal(await left(network), 4);
  t.diagnostic(`of 240 connections, ${before} failed before, ${after} after`);
  // 6 of 8, and 2 of 4: 180 and 120, with a standard deviation of 8.
  assert.ok(before > 140 && after < before - 20, `${before} before, ${after} after`);
});

async function rulesOf({ daemon }: FlowNetwork): Promise<string> {
  return (await daemon.namespace.exec(["nft", "list", "table", "ip", "kube-proxy"])).stdout;
}
