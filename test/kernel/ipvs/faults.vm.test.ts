/** Bad input and foreign hands, in a kernel that has IPVS. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";
import { PATIENCE } from "../../../testkit/support/patience.ts";
import type { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { canonicalIptables } from "../../conformance/canonical-iptables.ts";
import { served, service, slice } from "../faults/fault-node.ts";
import { traitsOf } from "../flows/modes.ts";
import { addVirtualServer, boundAddresses, flushIpvs, ipvsNode, preparedNode, virtualServers } from "./ipvs-node.ts";

const state = (daemon: ProxyDaemon) => traitsOf.ipvs.rules(daemon);

/** Waits until everything is as it was. */
async function healed(daemon: ProxyDaemon, before: string): Promise<void> {
  let now = "";
  const isBack = async () => {
    now = await state(daemon);
    return now === before;
  };
  await daemon.until("what was destroyed to come back", isBack).catch((error: unknown) => {
    assert.equal(now, before, String(error));
  });
}

/** Of a start and some fifty tools. */
const CLEANUP_LIMIT_MS = 20_000 * PATIENCE;
const KUBE_PROXY = fileURLToPath(new URL("../../../bin/kube-proxy", import.meta.url));

describe("start", () => {
  test("an unknown scheduler ends it with status 1, its name and its module", async (t) => {
    const { daemon } = await preparedNode(t, { ipvs: { scheduler: "best" } });
    daemon.spawn();
    assert.equal(await daemon.ended(), 1, daemon.log);
    assert.match(
      daemon.log,
      /can't use the IPVS proxier: .*no scheduler \\"best\\": load the module ip_vs_best or choose another/,
    );
  });

  test("--init-only sets the node's parameters and programs nothing", async (t) => {
    const { node, daemon } = await preparedNode(t, {
      args: ["--init-only"],
      ipvs: { strictARP: true, tcpTimeout: "7m" },
    });
    daemon.spawn();
    assert.equal(await daemon.ended(), 0, daemon.log);
    for (const [name, value] of [
      ["net.ipv4.vs.conntrack", 1],
      ["net.ipv4.vs.expire_nodest_conn", 1],
      ["net.ipv4.vs.expire_quiescent_template", 1],
      ["net.ipv4.ip_forward", 1],
      ["net.ipv4.conf.all.arp_ignore", 1],
      ["net.ipv4.conf.all.arp_announce", 2],
    ] as const) {
      assert.equal((await node.exec(["sysctl", "-n", name])).stdout, `${value}\n`, name);
    }
    assert.deepEqual(await virtualServers(node), []);
    assert.doesNotMatch(await daemon.saved("iptables-save"), /KUBE-/);
    assert.match(daemon.log, /"The ipvs proxier is now deprecated/);
  });
});

describe("foreign hands", () => {
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
        /"Another program changed what the ipvs mode has in the kernel; repairing it"/,
      );
      assert.match(await listed(), /inet 10\.96\.0\.1\/32/);
    }
    // Each of these is seen by a verification. One that still found an address would say so in between.
    const { length } = daemon.log;
    for (const found of [1, 2]) {
      await flushIpvs(node);
      await healed(daemon, before);
      assert.equal(
        daemon.log.slice(length).split("Another program changed").length - 1,
        found,
        daemon.log.slice(length),
      );
    }
  });

  test("whatever others take away comes back, and is said", async (t) => {
    const { node, daemon } = await ipvsNode(t, { objects: [...served("web", 1), ...served("mail", 2)] });
    const before = await state(daemon);
    const ours = await virtualServers(node);
    assert.equal(ours.length, 2);

    await node.configure(["link del kube-ipvs0"]);
    await healed(daemon, before);
    assert.match(daemon.log, /"Another program removed the device kube-ipvs0; repairing it"/);

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
    assert.match(daemon.log, /"Another program changed what the ipvs mode has in the kernel; repairing it"/);

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
    assert.equal(await daemon.metric('kubeproxy_sync_proxy_rules_repairs_total{ip_family="IPv4"}'), undefined);
  });

  test("the module is unloaded: it is said, loaded again, and everything is back", async (t) => {
    const { node, daemon } = await ipvsNode(t, { objects: served("web", 1) });
    const before = await state(daemon);
    // Nobody may put anything back meanwhile.
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
    assert.equal((await node.exec(["sysctl", "-n", "net.ipv4.vs.conntrack"])).stdout, "1\n");
  });

  test("an IP set of another type is named in the health answer; the rest works, and heals", async (t) => {
    const { node, daemon } = await preparedNode(t, { objects: served("web", 1) });
    await node.exec(["ipset", "create", "KUBE-LOOP-BACK", "hash:net"]);
    daemon.spawn();
    const healthz = async () => (await daemon.fetch("http://127.0.0.1:10256/healthz")).body;
    await daemon.until("the failure to be named", async () =>
      (await healthz()).includes("ipset destroy KUBE-LOOP-BACK"),
    );
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
});

describe("addresses", () => {
  const both = [
    service("web", "10.96.0.1", {
      externalIPs: ["198.51.100.7"],
      type: "NodePort",
      ports: [{ name: "http", port: 80, nodePort: 30080 }],
    }),
    slice("web", ["10.180.0.1"]),
  ];

  test("an external address of another device is not bound, and unbound when it comes to one", async (t) => {
    const { node, daemon } = await ipvsNode(t, { objects: both });
    assert.deepEqual(await boundAddresses(node), ["10.96.0.1", "198.51.100.7"]);
    await node.configure(["addr add 198.51.100.7/32 dev eth0"]);
    await daemon.until("the address to be unbound", async () => (await boundAddresses(node)).join() === "10.96.0.1");
    assert.ok((await virtualServers(node)).includes("TCP 198.51.100.7:30080 rr 10.180.0.1:8080 1"));
    await node.configure(["addr del 198.51.100.7/32 dev eth0"]);
    await daemon.until("the address to be bound again", async () => (await boundAddresses(node)).length === 2);
    assert.ok(!(await virtualServers(node)).some((line) => line.includes("198.51.100.7:30080")));
  });

  test("excluded virtual servers stay, ours included when their service goes", async (t) => {
    const { node, daemon } = await preparedNode(t, {
      objects: both,
      ipvs: { excludeCIDRs: ["10.96.0.0/24", "203.0.113.0/24"] },
    });
    await addVirtualServer(node, "203.0.113.1", 443);
    await addVirtualServer(node, "198.51.100.9", 443);
    daemon.spawn();
    await daemon.synced();
    assert.match(
      daemon.log,
      /"excludeCIDRs has addresses of a service:.*servicePort="ns\/web:http" addresses="10.96.0.1"/,
    );
    const after = (await virtualServers(node)).map((line) => line.split(" ")[1]);
    assert.deepEqual(after, ["10.200.0.2:30080", "10.96.0.1:80", "198.51.100.7:80", "203.0.113.1:443"]);
    daemon.writeObjects([]);
    const left = async () => (await virtualServers(node)).map((line) => line.split(" ")[1]).join();
    await daemon.until("the service to go", async () => (await left()) === "10.96.0.1:80,203.0.113.1:443");
  });
});

describe("end", () => {
  test("--cleanup takes what is ours and leaves the rest", async (t) => {
    const { node, daemon } = await preparedNode(t, {
      objects: served("web", 1),
      ipvs: { excludeCIDRs: ["203.0.113.0/24"] },
    });
    const before = canonicalIptables(await daemon.saved("iptables-save"));
    await addVirtualServer(node, "203.0.113.1", 443);
    daemon.spawn();
    await daemon.synced();
    await daemon.stop();
    const { stdout } = await node.exec([KUBE_PROXY, "--cleanup"], { timeoutMs: CLEANUP_LIMIT_MS });
    assert.deepEqual(await virtualServers(node), ["TCP 203.0.113.1:443 wlc"], stdout);
    assert.deepEqual(await boundAddresses(node), []);
    assert.equal((await node.exec(["ipset", "list", "-n"])).stdout, "");
    assert.equal(canonicalIptables(await daemon.saved("iptables-save")), before);
  });

  test("a node that other virtual servers have, and never this mode, is left alone", async (t) => {
    const node = await NetworkNamespace.create(`kpts-bare-${process.pid}`);
    t.after(() => node.remove());
    await addVirtualServer(node, "203.0.113.1", 443);
    await node.exec([KUBE_PROXY, "--cleanup"], { timeoutMs: CLEANUP_LIMIT_MS });
    assert.deepEqual(await virtualServers(node), ["TCP 203.0.113.1:443 wlc"]);
  });
});
