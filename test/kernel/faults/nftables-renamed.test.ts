/** Another program renames chains of the nftables mode, or puts its own beside them: packets and the daemon's messages. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { signalChild } from "../../../src/kernel/child-process.ts";
import { LAYOUT_NAMES, type LayoutName } from "../../../src/modes/nftables/layout-name.ts";
import { type Prober, startProber } from "../../../testkit/net/namespace-prober.ts";
import type { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";
import { stretched } from "../../../testkit/support/patience.ts";
import type { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { traitsOf } from "../flows/modes.ts";
import { faultNode, nodeObject, service, slice, startDaemon } from "./fault-node.ts";

const AT = "ip kube-proxy";
const REPAIRS = 'kubeproxy_sync_proxy_rules_repairs_total{ip_family="IPv4"}';
const CLUSTER_IP = "10.96.0.1";
/** Open only to machines of another network. */
const RESTRICTED = "198.51.100.1";

const objects = [
  nodeObject,
  {
    ...service("lb", CLUSTER_IP, {
      type: "LoadBalancer",
      loadBalancerSourceRanges: ["203.0.113.0/24"],
      ports: [{ name: "http", port: 80, protocol: "TCP", nodePort: 30080 }],
    }),
    status: { loadBalancer: { ingress: [{ ip: RESTRICTED }] } },
  },
  slice("lb", ["10.200.0.2"]),
];
const sticky = [nodeObject, service("lb", CLUSTER_IP, { sessionAffinity: "ClientIP" }), slice("lb", ["10.200.0.2"])];

const SERVER = 'require("node:net").createServer((s) => s.on("error", () => {}).resume().end()).listen(8080)';

interface Serving {
  readonly node: NetworkNamespace;
  readonly prober: Prober;
}

/** A node on which the only endpoint listens. */
async function servingNode(t: TestContext): Promise<Serving> {
  const node = await faultNode(t);
  await node.configure(["route add default via 10.200.0.1 dev eth0"]);
  const server = node.spawn([process.execPath, "-e", SERVER], { stdio: "ignore" });
  t.after(() => signalChild(server));
  const prober = startProber(node);
  t.after(() => prober.close());
  return { node, prober };
}

async function start(
  t: TestContext,
  node: NetworkNamespace,
  layout: LayoutName,
  served: readonly unknown[] = objects,
): Promise<ProxyDaemon> {
  return await startDaemon(t, node, {
    objects: served,
    config: { mode: "nftables", nftables: { syncPeriod: "1s", layout } },
  });
}

/** Whether a connection from the node is answered in time: not if the packet is dropped, nor on a very busy node. */
async function connects({ prober }: Serving, address: string): Promise<boolean> {
  const [answer] = await prober.connect({ protocol: "TCP", address, port: 80, timeoutMs: 500 });
  return answer?.ok === true || answer?.error === "closed";
}

async function nft(node: NetworkNamespace, ...commands: readonly string[]): Promise<void> {
  for (const command of commands) await node.exec(["nft", command]);
}

const options = { skip: kernelSkip, timeout: stretched(120_000) };

for (const layout of LAYOUT_NAMES) {
  describe(`nftables mode, ${layout}: renamed chains`, options, () => {
    test("a chain that is renamed and emptied is in force again at once", async (t) => {
      const serving = await servingNode(t);
      const { node } = serving;
      const daemon = await start(t, node, layout);
      const expected = await traitsOf.nftables.rules(daemon);
      await daemon.until("the server", () => connects(serving, CLUSTER_IP));
      assert.equal(await connects(serving, RESTRICTED), false);
      for (const chain of ["firewall-check", "services", "nat-output", "masquerading"]) {
        const repairs = (await daemon.metric(REPAIRS)) ?? 0;
        await nft(node, `rename chain ${AT} ${chain} evil`);
        // If it is not empty at the time of the repair, it is deleted.
        const isLeft = await nft(node, `flush chain ${AT} evil`).then(
          () => true,
          () => false,
        );
        await daemon.until(`the repair of ${chain}`, async () => {
          const rules = await traitsOf.nftables.rules(daemon);
          return (
            rules
              .split("\n")
              .filter((line) => !line.includes('"evil"'))
              .join("\n") === expected
          );
        });
        await daemon.until("the count", async () => ((await daemon.metric(REPAIRS)) ?? 0) > repairs);
        assert.equal(await connects(serving, RESTRICTED), false, `source ranges, after ${chain}`);
        await daemon.until(`the Service, after ${chain}`, () => connects(serving, CLUSTER_IP));
        // Nothing of ours goes there any more.
        if (isLeft) await nft(node, `delete chain ${AT} evil`).catch(() => {});
        assert.equal(await traitsOf.nftables.rules(daemon), expected);
      }
      await daemon.logged(/Another program changed our nftables rules; they have been repaired/);
    });

    test("chains that are renamed while the program is away are in force after its start", async (t) => {
      const serving = await servingNode(t);
      const { node } = serving;
      const daemon = await start(t, node, layout);
      await daemon.until("the server", () => connects(serving, CLUSTER_IP));
      const expected = await traitsOf.nftables.rules(daemon);
      await daemon.stop("SIGKILL");
      await nft(node, `rename chain ${AT} services evil`, `flush chain ${AT} evil`, `add chain ${AT} services`);
      await nft(node, `rename chain ${AT} firewall-check evil2`, `flush chain ${AT} evil2`);
      assert.equal(await connects(serving, CLUSTER_IP), false);
      const startMs = Date.now();
      daemon.spawn();
      await daemon.synced(startMs);
      await daemon.until("the Service", () => connects(serving, CLUSTER_IP));
      assert.equal(await connects(serving, RESTRICTED), false);
      await nft(node, `delete chain ${AT} evil`, `delete chain ${AT} evil2`);
      assert.equal(await traitsOf.nftables.rules(daemon), expected);
    });

    test("a base chain of another program's in the table is named, for as long as it is there", async (t) => {
      const serving = await servingNode(t);
      const { node } = serving;
      const daemon = await start(t, node, layout);
      const health = async () => (await daemon.fetch("http://127.0.0.1:10256/healthz?verbose")).body;
      const named = "Packets pass chains of other programs in table ip kube-proxy: theirs";
      assert.equal((await health()).includes(named), false);
      await nft(node, `add chain ${AT} theirs { type filter hook forward priority 5; policy drop; }`);
      await daemon.until("its name", async () => (await health()).includes(named));
      await daemon.logged(/Packets pass chains of other programs in our nftables table.*theirs/);
      assert.match((await node.exec(["nft", "list", "table", "ip", "kube-proxy"])).stdout, /chain theirs/);
      await nft(node, `delete chain ${AT} theirs`);
      await daemon.until("its end", async () => !(await health()).includes(named));
    });
  });
}

test("a client that another program leads astray is forgotten", options, async (t) => {
  const serving = await servingNode(t);
  const { node } = serving;
  const daemon = await start(t, node, "Flat", sticky);
  const clients = async () => (await node.exec(["nft", "list", "map", "ip", "kube-proxy", "clients-10800"])).stdout;
  await nft(node, `add element ${AT} clients-10800 { 10.200.0.2 . ${CLUSTER_IP} . tcp . 80 : 192.0.2.66 . 666 }`);
  await daemon.until("its end", async () => !(await clients()).includes("192.0.2.66"));
  await daemon.until("the server", () => connects(serving, CLUSTER_IP));
  assert.match(await clients(), /10\.200\.0\.2 \. 10\.96\.0\.1/, "packets are remembered");
});
