/** Bad input, other programs' addresses, and the end of the ipvs mode, in a kernel that has IPVS. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { KUBE_PROXY } from "../../../testkit/needs/built-program.ts";
import { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";
import { PATIENCE } from "../../../testkit/support/patience.ts";
import { canonicalIptables } from "../../conformance/canonical-iptables.ts";
import { served, service, slice } from "../faults/fault-node.ts";
import { ToolLog } from "../faults/tool-log.ts";
import { addVirtualServer, boundAddresses, ipvsDaemon, ipvsNode, preparedNode, virtualServers } from "./ipvs-node.ts";

/** Covers a start and some fifty tools. */
const CLEANUP_LIMIT_MS = 20_000 * PATIENCE;

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
      assert.equal(node.readSysctl(name), `${value}`, name);
    }
    assert.deepEqual(await virtualServers(node), []);
    assert.doesNotMatch(await daemon.saved("iptables-save"), /KUBE-/);
    await daemon.logged(/"The ipvs proxier is now deprecated/);
  });
});

test("a start reads the rules of a family and writes them once, a restart only reads", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-tools-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const log = new ToolLog(folder, "legacy");
  // Prevents comparisons meanwhile.
  const options = { objects: served("web", 1), env: log.env, ipvs: { syncPeriod: "10m" } };
  const { node, daemon } = await ipvsNode(t, options);
  await daemon.stop();
  const named = () => log.taken().map((command) => command.replace(/ -w.*| -t filter/, ""));
  const ofBoth = (...parts: readonly string[]) =>
    ["ip6tables", "iptables"].flatMap((tool) => parts.map((part) => tool + part));
  // This kernel has no nf_tables: only a tool can tell what is in the tables, and whether others have appeared since the first look.
  assert.deepEqual(named().sort(), ofBoth("-restore", "-save", "-save -t nat"));
  const second = await ipvsDaemon(t, node, options);
  await second.stop();
  assert.deepEqual(named().sort(), ofBoth("-save", "-save"));
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
    // Virtual servers are deleted after addresses are bound.
    await daemon.until("its node port to go", async () =>
      (await virtualServers(node)).every((line) => !line.includes("198.51.100.7:30080")),
    );
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
      /"excludeCIDRs contains addresses of a service:.*servicePort="ns\/web:http" addresses="10.96.0.1"/,
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
