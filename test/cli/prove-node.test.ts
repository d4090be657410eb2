/**
 * What ends connections beside all rules: `kube-proxy prove --kernel` names it, and real packets meet it. The rules lead each of
 * these packets to a pod.
 */
import assert from "node:assert/strict";
import { execPath } from "node:process";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { ip } from "../../src/model/testing/records.ts";
import type { IpAddress } from "../../src/net/ip.ts";
import { render } from "../../src/tools/cli/render.ts";
import { netnsSkip } from "../../testkit/support/netns.ts";
import { stretched } from "../../testkit/support/patience.ts";
import { skipWithoutTool } from "../../testkit/support/tools.ts";
import { keyOf, PLACES, traceLab } from "../property/trace-against-kernel.ts";
import type { PacketLab } from "../trace/packet-lab.ts";
import { runCommand } from "./run-command.ts";

const MAIN = fileURLToPath(new URL("../../src/tools/cli/main.ts", import.meta.url));
const CLUSTER_IP = { IPv4: ip("10.96.0.1"), IPv6: ip("fd00:96::1") };
const OUTSIDE = { IPv4: PLACES.IPv4.outside[0] as IpAddress, IPv6: PLACES.IPv6.outside[0] as IpAddress };
type Family = keyof typeof CLUSTER_IP;

function objects(family: Family): string {
  const { node, pods } = PLACES[family];
  const labels = { "kubernetes.io/service-name": "web" };
  const port = { name: "", port: 8080, protocol: "UDP" };
  const items = [
    { kind: "Node", metadata: { name: "node-a" }, status: { addresses: [{ type: "InternalIP", address: node }] } },
    {
      kind: "Service",
      metadata: { name: "web", namespace: "shop" },
      spec: {
        type: "NodePort",
        ...{ clusterIP: CLUSTER_IP[family], clusterIPs: [CLUSTER_IP[family]], ipFamilies: [family] },
        ports: [{ port: 80, protocol: "UDP", targetPort: 8080, nodePort: 30080 }],
      },
    },
    {
      kind: "EndpointSlice",
      ...{ metadata: { name: "web", namespace: "shop", labels }, addressType: family, ports: [port] },
      endpoints: [{ addresses: [pods[1]], nodeName: "node-a", conditions: { ready: true } }],
    },
  ];
  const apiVersion = { Node: "v1", Service: "v1", EndpointSlice: "discovery.k8s.io/v1" };
  const all = items.map((item) => ({ apiVersion: apiVersion[item.kind as keyof typeof apiVersion], ...item }));
  return JSON.stringify({ apiVersion: "v1", kind: "List", items: all });
}

describe("beside the rules", { skip: netnsSkip || skipWithoutTool("conntrack", "conntrack") }, () => {
  let lab: PacketLab;
  before(async () => {
    lab = await traceLab();
    lab.watchArrivals();
  });
  after(() => lab.remove());

  const argvFor = (family: Family) => ["-f", "-", "--node", "node-a", "--family", family.toLowerCase()];

  async function load(family: Family): Promise<void> {
    const argv = [...argvFor(family), "--mode", "nftables"];
    const { out, status } = await runCommand(render, argv, objects(family));
    assert.equal(status, 0);
    const beside = () => assert.equal(lab.tool(["nft", "-f", "-"], out).status, 0);
    await lab.load({ kind: "iptables-restore", text: "" }, family, { before: () => {}, after: beside });
  }

  /** Runs in the node's namespace. */
  function run(...commands: readonly string[]): void {
    for (const command of commands) {
      const { status, stderr } = lab.tool(["sh", "-c", command]);
      assert.equal(status, 0, `${command}: ${stderr}`);
    }
  }

  /** Whether a datagram reaches the pod, and its answer comes back: an error, as no socket is there. */
  async function isAnswered(family: Family, isExpected: boolean): Promise<boolean> {
    const ends = { source: OUTSIDE[family], destination: CLUSTER_IP[family], destinationPort: 80 };
    const packet = { family, protocol: "udp", inInterface: "eth0", sourcePort: lab.takePort(), ...ends };
    lab.send(packet);
    const end = performance.now() + stretched(2_000);
    for (;;) {
      const seen = (await lab.observed(() => true)).get(keyOf(packet));
      const isRefused = seen?.kind === "refused" || (seen?.kind === "passed" && seen.isRefused);
      if (isRefused === isExpected || performance.now() > end) return isRefused;
    }
  }

  function proved(family: Family) {
    const argv = [...argvFor(family), "--kernel", "--mode", "nftables"];
    return lab.tool([execPath, MAIN, "prove", ...argv], objects(family));
  }

  async function isNamed(family: Family, set: readonly string[], undo: readonly string[], said: RegExp) {
    assert.equal(await isAnswered(family, true), true, `before ${set[0]}`);
    run(...set);
    assert.equal(await isAnswered(family, false), false, set[0]);
    const { stdout, stderr, status } = proved(family);
    run(...undo);
    assert.match(stdout, said, stderr);
    assert.equal(status, 0, "what the proxy's rules do is as before");
  }

  test("IPv4: forwarding, of the device by which packets come in or answers do, or of all", async () => {
    await load("IPv4");
    const { stdout } = proved("IPv4");
    assert.doesNotMatch(stdout, /forwarding|ip route/);
    const set = (name: string, value: number) => `sysctl -qw net.ipv4.${name}=${value}`;
    const forwarding = (device: string) => `conf.${device}.forwarding`;
    const named = (name: string, said: RegExp) => isNamed("IPv4", [set(name, 0)], [set(name, 1)], said);
    await named(forwarding("eth0"), /by eth0, .* dropped by net\.ipv4\.conf\.eth0\.forwarding = 0 \(set it to 1\)$/m);
    await named(
      forwarding("cni0"),
      /dropped by net\.ipv4\.conf\.cni0\.forwarding = 0 \(set it to 1\), which ends the answers/,
    );
    await named("ip_forward", /dropped by net\.ipv4\.ip_forward = 0 \(set it to 1\)/);
  });

  test("IPv4: a route to the endpoint that leads nowhere", async () => {
    await load("IPv4");
    const [, pod] = PLACES.IPv4.pods;
    for (const type of ["blackhole", "unreachable", "prohibit"])
      await isNamed(
        "IPv4",
        [`ip route replace ${type} ${pod}`],
        [`ip route del ${type} ${pod}; ip route replace ${pod} dev cni0`],
        new RegExp(
          `dropped by the route ${type} ${pod}/32 \\(ip route delete ${type} ${pod}/32\\)`.replaceAll(".", "\\."),
        ),
      );
  });

  test("IPv4: a client whose way back is by another uplink, and a strict filter", async () => {
    await load("IPv4");
    const [client] = PLACES.IPv4.outside;
    run("ip route add default dev eth0 metric 100", "sysctl -qw net.ipv4.conf.eth0.rp_filter=1");
    await isNamed(
      "IPv4",
      [`ip route replace ${client} dev out`],
      [`ip route replace ${client} dev eth0`],
      /by eth0, .* dropped by net\.ipv4\.conf\.eth0\.rp_filter = 1 \(set it to 2\): the way back to its source is by out/,
    );
    run("ip route del default dev eth0 metric 100", "sysctl -qw net.ipv4.conf.eth0.rp_filter=0");
  });

  test("IPv4: a policy of xfrm that can meet what the proxy sends", async (t) => {
    await load("IPv4");
    const policy = `src 0.0.0.0/0 dst ${CLUSTER_IP.IPv4}/32 dir fwd`;
    if (lab.tool(["ip", "xfrm", "policy", "add", ...`${policy} action block`.split(" ")]).status !== 0) {
      t.skip("this kernel has no policies of xfrm");
      return;
    }
    assert.equal(await isAnswered("IPv4", false), false);
    const { stdout, stderr, status } = proved("IPv4");
    run(`ip xfrm policy delete ${policy}`);
    const said =
      /: not known: the xfrm policy src 0\.0\.0\.0\/0 dst \S+ dir fwd action block can meet it, and is not read/;
    assert.match(stdout, said, stderr);
    assert.equal(status, 0, "what the proxy's rules do is as before");
    assert.doesNotMatch(proved("IPv4").stdout, /xfrm/);
  });

  test("IPv6: forwarding, which all devices have together", async () => {
    await load("IPv6");
    const set = (value: number) => `sysctl -qw net.ipv6.conf.all.forwarding=${value}`;
    await isNamed("IPv6", [set(0)], [set(1)], /dropped by net\.ipv6\.conf\.all\.forwarding = 0 \(set it to 1\)/);
  });
});
