/** What an operator sees when the userspace mode cannot have what it needs; and that it leaves nothing behind. */
import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { describe, test } from "node:test";
import { signalChild } from "../../../src/kernel/child-process.ts";
import type { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";
import { stretched } from "../../../testkit/support/patience.ts";
import type { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { faultNode, nodeObject, prepareDaemon, served, service, slice, startDaemon } from "./fault-node.ts";

const CONFIG = { mode: "userspace", iptables: { syncPeriod: "1s", minSyncPeriod: "1ms" } } as const;
const PORTAL_CHAIN = /KUBE-(?:PORTALS|NODEPORT)-/;

interface Failure {
  readonly subject: string;
  readonly reason: string;
}

/** What /healthz says about failed parts. */
async function failuresOf(daemon: ProxyDaemon): Promise<readonly Failure[]> {
  const { body } = await daemon.fetch("http://127.0.0.1:10256/healthz");
  if (!body.startsWith("{")) return [];
  const { failures = [] } = JSON.parse(body) as { readonly failures?: readonly Failure[] };
  return failures;
}

/** Where the rules send traffic for a cluster IP. */
async function proxyPort(daemon: ProxyDaemon, clusterIP: string): Promise<string | undefined> {
  const saved = await daemon.saved("iptables-save");
  return new RegExp(`^-A KUBE-PORTALS-CONTAINER -d ${clusterIP}/32 .* --to-destination \\S+:(\\d+)$`, "m").exec(
    saved,
  )?.[1];
}

/** Runs a Node.js program in the namespace until it prints its first line. */
async function runScript(node: NetworkNamespace, code: string): Promise<{ child: ChildProcess; line: string }> {
  const child = node.spawn([process.execPath, "-e", code], { stdio: ["ignore", "pipe", "inherit"] });
  if (child.stdout === null) throw new Error("a piped child has a standard output");
  const [chunk] = await once(child.stdout, "data");
  return { child, line: String(chunk).trim() };
}

/** Greets every client, and keeps the connection open. */
const greeter = (port: number) =>
  `require("node:net").createServer((s) => { s.on("error", () => {}); s.write("hi"); }).listen(${port}, "0.0.0.0", () => console.log("open"))`;

/** Opens this many connections at once, and reports how often it was greeted within two seconds. */
const crowd = (address: string, count: number) => `
  let greeted = 0;
  for (let i = 0; i < ${count}; i++) {
    require("node:net").connect(80, "${address}").on("error", () => {}).once("data", () => greeted++);
  }
  setTimeout(() => { console.log(String(greeted)); process.exit(); }, 2000);`;

describe("userspace mode: faults", { concurrency: 2, skip: kernelSkip, timeout: stretched(120_000) }, () => {
  test("a port range of one port serves one of three services, names the others, and goes on when it is free", async (t) => {
    const node = await faultNode(t);
    const daemon = prepareDaemon(t, node, {
      config: { ...CONFIG, portRange: "40000" },
      objects: [...served("a", 1), ...served("b", 2), ...served("c", 3)],
    });
    daemon.spawn();
    await daemon.until("two services are named", async () => (await failuresOf(daemon)).length === 2);
    for (const { subject, reason } of await failuresOf(daemon)) {
      assert.match(subject, /^ns\/[abc]:http$/);
      assert.match(
        reason,
        /no remaining ports left to allocate in the accepted range \(40000\).*widen --proxy-port-range/,
      );
    }
    const ips = ["10.96.0.1", "10.96.0.2", "10.96.0.3"];
    const ports = await Promise.all(ips.map((ip) => proxyPort(daemon, ip)));
    assert.deepEqual(
      ports.filter((port) => port !== undefined),
      ["40000"],
    );
    const numbers = ports.flatMap((port, index) => (port === undefined ? [index + 1] : []));
    daemon.writeObjects([
      nodeObject,
      ...numbers.slice(0, 1).flatMap((number) => served("abc"[number - 1] ?? "", number)),
    ]);
    await daemon.until("the port is taken over", async () => {
      return (await proxyPort(daemon, `10.96.0.${numbers[0]}`)) === "40000" && (await failuresOf(daemon)).length === 0;
    });
  });

  test("a node port that another process has is left to it, named, and taken when it is free", async (t) => {
    const node = await faultNode(t);
    const { child } = await runScript(node, greeter(30080));
    const ports = [{ name: "http", port: 80, protocol: "TCP", nodePort: 30080 }];
    const objects = [service("web", "10.96.0.1", { type: "NodePort", ports }), slice("web", ["10.180.0.1"])];
    const daemon = prepareDaemon(t, node, { config: CONFIG, objects });
    daemon.spawn();
    await daemon.until("the service is named", async () => (await failuresOf(daemon)).length === 1);
    assert.deepEqual(
      (await failuresOf(daemon)).map(({ subject, reason }) => `${subject}: ${reason}`),
      [
        "ns/web:http: can't open node port for tcp *:30080: cannot listen on 0.0.0.0:30080/TCP: the port is taken by another socket",
      ],
    );
    assert.notEqual(await proxyPort(daemon, "10.96.0.1"), undefined);
    assert.doesNotMatch(await daemon.saved("iptables-save"), /--dport 30080/);
    signalChild(child, "SIGKILL");
    // A sync reports rejections after it has written its rules.
    await daemon.until("the node port is served, and nothing refused", async () => {
      return / --dport 30080 /.test(await daemon.saved("iptables-save")) && (await failuresOf(daemon)).length === 0;
    });
  });

  test("rules that another program flushes or changes are back within a sync period", async (t) => {
    const node = await faultNode(t);
    const daemon = await startDaemon(t, node, { config: CONFIG, objects: served("web", 1) });
    const before = await daemon.saved("iptables-save");
    for (const damage of [
      ["-t", "nat", "-F"],
      ["-t", "nat", "-D", "KUBE-PORTALS-HOST", "1"],
      ["-F", "INPUT"],
    ] as const) {
      await node.exec(["iptables", ...damage]);
      await daemon.until(`${damage.join(" ")} is mended`, async () => (await daemon.saved("iptables-save")) === before);
    }
  });

  test("with few descriptors it says so, serves as many as it can, and everybody afterwards", async (t) => {
    const node = await faultNode(t);
    await node.configure(["route add 10.96.0.0/16 dev eth0"]);
    await runScript(node, greeter(8080));
    const objects = [service("web", "10.96.0.1"), slice("web", ["10.200.0.2"])];
    const daemon = await startDaemon(t, node, {
      config: CONFIG,
      objects,
      wrapper: ["prlimit", "--nofile=100:100", "setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource"],
    });
    await daemon.logged(/"The number of connections is limited" err="at most 100 open files, 64000 wanted/);
    const { line } = await runScript(node, crowd("10.96.0.1", 150));
    assert.ok(Number(line) > 10 && Number(line) < 100, `${line} of 150 were served`);
    await daemon.logged(/Out of file descriptors/);
    await daemon.until(
      "everybody is served again",
      async () => (await runScript(node, crowd("10.96.0.1", 10))).line === "10",
    );
    assert.deepEqual(await failuresOf(daemon), []);
  });

  test("bindAddress on loopback ends it with status 1", async (t) => {
    const node = await faultNode(t);
    const daemon = prepareDaemon(t, node, { config: { ...CONFIG, bindAddress: "127.0.0.1" } });
    daemon.spawn();
    assert.equal(await daemon.ended(), 1, daemon.log);
    assert.match(daemon.log, /cannot proxy on localhost: bindAddress \(--bind-address\) is 127\.0\.0\.1/);
  });

  test("every change of the mode and --cleanup leave nothing of it, and it leaves nothing of the others", async (t) => {
    const node = await faultNode(t);
    const save = async () =>
      `${(await node.exec(["iptables-save"])).stdout}${(await node.exec(["ip6tables-save"])).stdout}${(await node.exec(["nft", "list", "tables"])).stdout}`;
    /** The rules once nothing of the previous mode is left: some are removed only after the first sync. */
    const after = async (mode: string, before?: RegExp): Promise<string> => {
      const daemon = await startDaemon(t, node, { config: { ...CONFIG, mode }, objects: served("web", 1) });
      if (before !== undefined)
        await daemon.until(`what matches ${before} to go`, async () => !before.test(await save()));
      await daemon.stop("SIGKILL");
      return await save();
    };
    assert.match(await after("userspace"), PORTAL_CHAIN);
    assert.match(await after("iptables", PORTAL_CHAIN), /KUBE-SVC-/);
    assert.match(await after("userspace", /KUBE-SVC-|KUBE-SERVICES/), PORTAL_CHAIN);
    assert.match(await after("nftables", PORTAL_CHAIN), /table ip kube-proxy/);
    assert.match(await after("userspace", /kube-proxy/), PORTAL_CHAIN);
    const cleaner = prepareDaemon(t, node, { config: CONFIG, args: ["--cleanup"] });
    cleaner.spawn();
    assert.equal(await cleaner.ended(), 0, cleaner.log);
    assert.doesNotMatch(await save(), PORTAL_CHAIN);
  });

  test("rules of an earlier run go before the cluster is known", async (t) => {
    const node = await faultNode(t);
    const first = await startDaemon(t, node, { config: CONFIG, objects: served("web", 1) });
    await first.stop("SIGKILL");
    assert.match(await first.saved("iptables-save"), /--to-destination/);
    const second = prepareDaemon(t, node, {
      config: { ...CONFIG, clientConnection: { kubeconfig: "" } },
      args: ["--init-only"],
    });
    second.spawn();
    assert.equal(await second.ended(), 0, second.log);
    const saved = await second.saved("iptables-save");
    assert.doesNotMatch(saved, /--to-ports|--to-destination/);
    assert.match(saved, /-j KUBE-PORTALS-CONTAINER/);
  });
});
