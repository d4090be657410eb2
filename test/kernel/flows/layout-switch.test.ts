/** A node switches from one nftables layout to the other, and to another mode and back, under connections that notice nothing. */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { HelperThread } from "../../../testkit/net/helper-thread.ts";
import { defaultClusterCidr } from "../../../testkit/net/topology-spec.ts";
import { until } from "../../../testkit/support/patience.ts";
import type { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { clusterOf, type ServiceSpec } from "./cluster-objects.ts";
import { namespaceAt } from "./expected.ts";
import { addressOf, flowNetwork } from "./flow-network.ts";
import { MODES_AND_LAYOUTS, type Mode, traitsOf } from "./modes.ts";
import type { SendersReply, SendersRequest } from "./senders-program.ts";
import { askSteadily, assertAlive, holdConnections } from "./steady-clients.ts";

const STABLE = 1;
const SENDERS = new URL("senders-program.ts", import.meta.url);
/** What is silent for this long has ended; senders never pause. */
const SILENCE_MS = 3_000;
const services: readonly ServiceSpec[] = [
  { name: "stable", number: STABLE, endpoints: ["local-1", "remote-1"] },
  { name: "sticky", number: 2, endpoints: ["local-1", "local-2", "remote-1"], spec: { sessionAffinity: "ClientIP" } },
  { name: "empty", number: 3, endpoints: [] },
];
const STEPS: readonly Mode[] = ["nftables-flat", "nftables", "iptables", "nftables-flat"];

/** Whether nothing of the other mode is left; the kubelet shares one chain. */
async function standsAlone(daemon: ProxyDaemon, mode: Mode): Promise<boolean> {
  if (mode === "iptables")
    return !(await daemon.namespace.exec(["nft", "list", "tables"])).stdout.includes("kube-proxy");
  const saved = await Promise.all([daemon.saved("iptables-save"), daemon.saved("ip6tables-save")]);
  return !saved.join("").replaceAll("KUBE-FIREWALL", "").includes("KUBE-");
}

/** Leaves out tables that iptables created and that stay. */
async function ownRules(daemon: ProxyDaemon, mode: Mode): Promise<string> {
  const rules = await traitsOf[mode].rules(daemon);
  if (mode === "iptables") return rules;
  return rules
    .split("\n")
    .filter((line) => line.includes('"kube-proxy"'))
    .join("\n");
}

test("layouts and modes are switched in place", {
  skip: kernelSkip || (MODES_AND_LAYOUTS.includes("nftables-flat") ? false : "another run has the flat layout"),
}, async (t) => {
  const network = await flowNetwork(t, "nftables", services);
  const { daemon } = network;
  const config = JSON.parse(readFileSync(join(daemon.folder, "config.json"), "utf8"));
  const seen = new Map<Mode, string>([["nftables", await ownRules(daemon, "nftables")]]);
  for (const mode of STEPS) {
    const held = await holdConnections(network, STABLE);
    const stopAsking = askSteadily(network, STABLE);
    const chosen = { mode, clusterCIDR: defaultClusterCidr, ...traitsOf[mode].config };
    writeFileSync(join(daemon.folder, "config.json"), JSON.stringify({ ...config, nftables: {}, ...chosen }));
    await daemon.stop("SIGTERM");
    const startedAt = Date.now();
    daemon.spawn();
    await daemon.synced(startedAt);
    await daemon.until("the end of the other modes' rules", async () => await standsAlone(daemon, mode));
    assert.deepEqual(await stopAsking(), [], `on the way to ${mode}`);
    await assertAlive(held);
    const rules = await ownRules(daemon, mode);
    assert.equal(rules, seen.get(mode) ?? rules, mode);
    seen.set(mode, rules);
  }
});

test("a node goes from iptables to userspace mode, and its clients notice nothing", { skip: kernelSkip }, async (t) => {
  const network = await flowNetwork(t, "iptables", services);
  const { daemon } = network;
  const config = JSON.parse(readFileSync(join(daemon.folder, "config.json"), "utf8"));
  const held = await holdConnections(network, STABLE);
  const stopAsking = askSteadily(network, STABLE, ["TCP", "UDP"]);
  const client = network.topology.namespace(namespaceAt["off-node client"]);
  const senders = new HelperThread<SendersRequest, SendersReply>(client, SENDERS);
  const { address, port } = addressOf(STABLE, "node port", "UDP", "IPv4");
  await senders.ask({ kind: "start", family: "IPv4", address, port, count: 20 });
  const chosen = { mode: "userspace", ...traitsOf.userspace.config };
  writeFileSync(join(daemon.folder, "config.json"), JSON.stringify({ ...config, ...chosen }));
  await daemon.stop("SIGTERM");
  const startedAt = Date.now();
  daemon.spawn();
  await daemon.synced(startedAt);
  await daemon.until("the end of the rules of iptables mode", async () => {
    const saved = await Promise.all([daemon.saved("iptables-save"), daemon.saved("ip6tables-save")]);
    return !saved.join("").includes("KUBE-SVC-") && saved.every((text) => text.includes("KUBE-PORTALS-HOST"));
  });
  assert.deepEqual(await stopAsking(), []);
  await assertAlive(held);
  const lastMs = async (pod: string) => (await senders.ask({ kind: "look" })).lastMs[pod] ?? 0;
  const changedMs = Date.now();
  daemon.writeObjects(clusterOf([{ name: "stable", number: STABLE, endpoints: ["local-1"] }, ...services.slice(1)]));
  await daemon.synced(changedMs);
  await until("flows from outside to leave the endpoint that left", async () => {
    const nowMs = Date.now();
    return nowMs - Math.max(changedMs, await lastMs("remote-1")) > SILENCE_MS;
  });
  assert.ok((await lastMs("local-1")) > changedMs, "the other endpoint answers them");
});
