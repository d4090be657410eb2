/** What other programs do to the ipvs mode's rules, in a kernel that has IPVS. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { served } from "../faults/fault-node.ts";
import { traitsOf } from "../flows/modes.ts";
import { addVirtualServer, flushIpvs, ipvsNode, preparedNode, virtualServers } from "./ipvs-node.ts";

/** What the mode has in the kernel. */
interface State {
  /** The part that can be read without a program. */
  readonly quick: string;
  readonly everything: string;
}

/** Virtual servers and the node's own addresses; none without the module. */
async function quickState({ namespace }: ProxyDaemon): Promise<string> {
  if (!existsSync("/proc/net/ip_vs")) return "";
  const addresses = namespace.readProcNet("fib_trie").matchAll(/\|-- (\S+)\n +\/32 host LOCAL/g);
  const own = new Set([...addresses].map(([, address = ""]) => address));
  return [...(await virtualServers(namespace)), ...[...own].sort()].join("\n");
}

const everything = (daemon: ProxyDaemon) => traitsOf.ipvs.rules(daemon);

async function state(daemon: ProxyDaemon): Promise<State> {
  return { quick: await quickState(daemon), everything: await everything(daemon) };
}

/** Waits until everything is as it was. */
async function healed(daemon: ProxyDaemon, before: State): Promise<void> {
  // Listing everything takes four programs, which the daemon would have to wait for.
  const isBack = async () =>
    (await quickState(daemon)) === before.quick && (await everything(daemon)) === before.everything;
  await daemon.until("what was destroyed to come back", isBack).catch(async (error: unknown) => {
    assert.deepEqual(await state(daemon), before, String(error));
    throw error;
  });
}

test("addresses with another prefix length are removed once, and what is ours under them stays", async (t) => {
  const { node, daemon } = await ipvsNode(t, { objects: served("web", 1) });
  const before = await state(daemon);
  for (const address of ["10.98.1.1/24", "10.96.0.1/24"]) {
    const { length } = daemon.log;
    await node.configure([`addr add ${address} dev kube-ipvs0`]);
    const listed = async () => (await node.exec(["ip", "-4", "addr", "show", "dev", "kube-ipvs0"])).stdout;
    await daemon.until(`${address} to go`, async () => !(await listed()).includes(address));
    await healed(daemon, before);
    assert.match(
      daemon.log.slice(length),
      /"Another program changed state of the ipvs mode in the kernel; repairing it"/,
    );
    assert.match(await listed(), /inet 10\.96\.0\.1\/32/);
  }
  // A verification sees each of these. One that still found an address would report it in between.
  const { length } = daemon.log;
  for (const found of [1, 2]) {
    await flushIpvs(node);
    await healed(daemon, before);
    assert.equal(daemon.log.slice(length).split("Another program changed").length - 1, found, daemon.log.slice(length));
  }
});

test("what others take away comes back, and is said", async (t) => {
  const { node, daemon } = await ipvsNode(t, { objects: [...served("web", 1), ...served("mail", 2)] });
  const before = await state(daemon);
  const ours = await virtualServers(node);
  assert.equal(ours.length, 2);

  await node.configure(["link del kube-ipvs0"]);
  await healed(daemon, before);
  await daemon.logged(/"Another program removed the device kube-ipvs0; repairing it"/);

  await node.configure(["addr del 10.96.0.1/32 dev kube-ipvs0"]);
  await healed(daemon, before);

  const routes = async () =>
    (await node.exec(["ip", "-4", "route", "show", "table", "local", "dev", "kube-ipvs0"])).stdout.split("\n").sort();
  const routesBefore = await routes();
  assert.equal(routesBefore.filter((line) => line.startsWith("local 10.96.0.")).length, 2);
  await node.configure(["route flush table local dev kube-ipvs0"]);
  await daemon.until("the routes to come back", async () => (await routes()).join() === routesBefore.join());

  await flushIpvs(node);
  await healed(daemon, before);
  await daemon.logged(/"Another program changed state of the ipvs mode in the kernel; repairing it"/);

  await addVirtualServer(node, "10.9.9.9", 99);
  await healed(daemon, before);

  await node.exec(["ipset", "flush", "KUBE-CLUSTER-IP"]);
  await healed(daemon, before);

  await node.exec(["iptables", "-t", "nat", "-F", "KUBE-SERVICES"]);
  await node.exec([
    "iptables",
    "-D",
    "INPUT",
    "-m",
    "comment",
    "--comment",
    "kubernetes ipvs access filter",
    "-j",
    "KUBE-IPVS-FILTER",
  ]);
  await healed(daemon, before);
  assert.deepEqual(await virtualServers(node), ours);
});

test("while nothing happens, verification finds nothing", async (t) => {
  const { daemon } = await ipvsNode(t, { objects: served("web", 1) });
  await sleep(10_000);
  assert.doesNotMatch(daemon.log, /repairing/);
  assert.equal(await daemon.metric('kubeproxy_sync_proxy_rules_repairs_total{ip_family="IPv4"}'), 0);
});

test("the module is unloaded: it is said, loaded again, and everything is back", async (t) => {
  const { node, daemon } = await ipvsNode(t, { objects: served("web", 1) });
  const before = await state(daemon);
  // Nothing may be restored meanwhile.
  const { pid } = daemon;
  assert.ok(pid !== undefined, "the daemon runs");
  process.kill(pid, "SIGSTOP");
  await flushIpvs(node);
  const loaded = () => readFileSync("/proc/modules", "utf8").match(/^(?:ip_vs|ip_vs_\w+|xt_ipvs)(?= )/gm) ?? [];
  const unload = () => {
    spawnSync("modprobe", ["-r", ...loaded()]);
    return loaded().length === 0;
  };
  await daemon.until("the module to go", unload);
  process.kill(pid, "SIGCONT");
  await healed(daemon, before);
  assert.equal(node.readSysctl("net.ipv4.vs.conntrack"), "1");
});

test("an IP set of another type is named in the health answer; the rest works, and heals", async (t) => {
  const { node, daemon } = await preparedNode(t, { objects: served("web", 1) });
  await node.exec(["ipset", "create", "KUBE-LOOP-BACK", "hash:net"]);
  daemon.spawn();
  const healthz = async () => (await daemon.fetch("http://127.0.0.1:10256/healthz")).body;
  await daemon.until("the failure to be named", async () => (await healthz()).includes("ipset destroy KUBE-LOOP-BACK"));
  assert.match(
    await healthz(),
    /there is an IP set KUBE-LOOP-BACK of type hash:net \(IPv4\), and it must be of type hash:ip,port,ip \(IPv4\)/,
  );
  assert.deepEqual(await virtualServers(node), ["TCP 10.96.0.1:80 rr 10.180.0.1:8080 1 10.180.1.1:8080 1"]);
  await node.exec(["ipset", "destroy", "KUBE-LOOP-BACK"]);
  await daemon.until("the failure to end", async () => !(await healthz()).includes("KUBE-LOOP-BACK"));
  const { stdout } = await node.exec(["ipset", "list", "-t", "KUBE-LOOP-BACK"]);
  assert.match(stdout, /^Type: hash:ip,port,ip$/m);
});
