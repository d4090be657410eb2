/**
 * What ends connections beside all rules: `kube-proxy prove --kernel` names it, and real packets meet it. The rules lead each of
 * these packets to a pod.
 */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execPath } from "node:process";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { ip } from "../../src/model/testing/records.ts";
import type { IpAddress } from "../../src/net/ip.ts";
import { proveCommand } from "../../src/tools/cli/prove.ts";
import { render } from "../../src/tools/cli/render.ts";
import { NetworkNamespace } from "../../testkit/net/network-namespace.ts";
import { newRunName } from "../../testkit/net/run-name.ts";
import { netnsSkip } from "../../testkit/support/netns.ts";
import { stretched } from "../../testkit/support/patience.ts";
import { skipWithoutTool } from "../../testkit/support/tools.ts";
import { PLACES, traceLab } from "../property/trace-against-kernel.ts";
import type { PacketLab } from "../trace/packet-lab.ts";
import { runCommand } from "./run-command.ts";

const MAIN = fileURLToPath(new URL("../../src/tools/cli/main.ts", import.meta.url));
const lacksBridges = existsSync("/proc/sys/net/bridge") ? false : "this kernel has no br_netfilter";
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
  const folder = mkdtempSync(join(tmpdir(), "kpts-prove-node-"));
  const config = join(folder, "config.yaml");
  before(async () => {
    const { IPv4, IPv6 } = PLACES;
    const head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration";
    writeFileSync(config, `${head}\nclusterCIDR: "${IPv4.podCIDR},${IPv6.podCIDR}"\n`);
    lab = await traceLab();
    lab.watchArrivals();
  });
  after(() => {
    rmSync(folder, { recursive: true });
    return lab.remove();
  });

  // Clients outside are masqueraded, with a mark.
  const argvFor = (family: Family) => [
    "-f",
    "-",
    "--node",
    "node-a",
    "--family",
    family.toLowerCase(),
    "--config",
    config,
  ];

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
      await lab.observed(() => true);
      if (lab.isAnswered(packet) === isExpected || performance.now() > end) return lab.isAnswered(packet);
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

  test("a sysdump has what decides beside the rules: the answer of another machine is the node's", async () => {
    await load("IPv4");
    // The lab drops resets, and the archive asks a daemon that is not there.
    run("nft delete table inet lab");
    const archive = join(folder, "sysdump.tgz");
    const set = (value: number) => run(`sysctl -qw net.ipv4.conf.eth0.forwarding=${value}`);
    set(0);
    const here = proved("IPv4");
    const words = ["-f", "-", "--node", "node-a", "--config", config, "--socket", join(folder, "none"), "-o", archive];
    const made = lab.tool([execPath, MAIN, "sysdump", ...words], objects("IPv4"));
    set(1);
    assert.equal(made.status, 0, made.stderr);
    const { out, err } = await runCommand(proveCommand, [...argvFor("IPv4"), "--dump", archive], objects("IPv4"));
    const said = /^ +udp .* dropped by net\.ipv4\.conf\.eth0\.forwarding = 0 .*$/m;
    assert.equal(said.exec(out)?.[0], said.exec(here.stdout)?.[0], out + err);
    assert.match(here.stdout, said);
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

  test("IPv4: ip rules, by source, device and mark, and before a process meets a rule", async () => {
    await load("IPv4");
    const [client] = PLACES.IPv4.outside;
    const [, pod] = PLACES.IPv4.pods;
    const rule = (what: string, said: RegExp) =>
      isNamed("IPv4", [`ip rule add pref 99 ${what}`], ["ip rule del pref 99"], said);
    await rule(`from ${client} prohibit`, /dropped by the rule prohibit \(ip rule delete priority 99\)$/m);
    await rule(`iif eth0 to ${pod} blackhole`, /by eth0, .* dropped by the rule blackhole/);
    // The mark of the rules of this mode, for what is masqueraded.
    await rule("fwmark 0x4000/0x4000 unreachable", /dropped by the rule unreachable/);
    await rule(`iif cni0 to ${client} blackhole`, /dropped by the rule blackhole .*, which ends the answers/);
    const before = "which a process needs before any rule";
    const reaches = () => lab.tool(["bash", "-c", `echo x >/dev/udp/${CLUSTER_IP.IPv4}/80`]).status === 0;
    assert.equal(reaches(), true);
    run(`ip route add prohibit ${CLUSTER_IP.IPv4}`);
    assert.equal(reaches(), false);
    const { stdout } = proved("IPv4");
    run(`ip route del prohibit ${CLUSTER_IP.IPv4}`);
    assert.match(
      stdout,
      new RegExp(`a process of the node, .* dropped by the route prohibit \\S+ \\(.*\\), ${before}$`, "m"),
    );
    assert.doesNotMatch(stdout, /by eth0, .* to 10\.96\.0\.1:80: .*prohibit/, "others never look for it");
    const route = `blackhole ${client}/32 table 77`;
    await isNamed(
      "IPv4",
      [`ip route add ${route}`, "ip rule add pref 99 iif cni0 lookup 77"],
      ["ip rule del pref 99", `ip route del ${route}`],
      new RegExp(
        `by the route ${route.replace("/", "/").replace(" table", " \\(ip route delete .* table")}`.replaceAll(
          ".",
          ".",
        ),
      ),
    );
    const passed = async (what: string, said: RegExp) => {
      run(`ip rule add pref 99 ${what}`);
      assert.equal(await isAnswered("IPv4", true), true, what);
      const { stdout, stderr } = proved("IPv4");
      run("ip rule del pref 99");
      assert.doesNotMatch(stdout, said, stderr);
    };
    await passed(`from 203.0.113.200 blackhole`, /from .*10\.96\.0\.1.*blackhole/);
    await passed("fwmark 0x1 blackhole", /blackhole/);
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
    const said = /dropped by net\.ipv6\.conf\.all\.forwarding = 0 \(set it to 1\)/;
    await isNamed("IPv6", [set(0)], [set(1)], said);
    if (!existsSync("/proc/sys/net/ipv6/conf/lo/force_forwarding")) return;
    const alone = (device: string, value: number) => `sysctl -qw net.ipv6.conf.${device}.force_forwarding=${value}`;
    const ofOne = [set(0), alone("eth0", 1)];
    const back = [set(1), alone("eth0", 0), alone("cni0", 0)];
    await isNamed("IPv6", ofOne, back, new RegExp(`by eth0, .*${said.source}, which ends the answers`));
    run(...ofOne, alone("cni0", 1));
    assert.equal(await isAnswered("IPv6", true), true);
    const { stdout } = proved("IPv6");
    run(...back);
    assert.doesNotMatch(stdout, /by eth0, .*forwarding/);
  });
});

test("a pod that is led to itself, behind a bridge whose packets pass the rules", {
  skip: netnsSkip || lacksBridges,
}, async () => {
  const names = ["hairpinnode", "hairpinpod"].map(newRunName);
  const [node, pod] = await NetworkNamespace.createAll(names);
  assert.ok(node !== undefined && pod !== undefined);
  await using _ = { [Symbol.asyncDispose]: () => NetworkNamespace.removeAll([node, pod]) };
  const [, address] = PLACES.IPv4.pods;
  await node.configure([
    "link set lo up",
    `addr add ${PLACES.IPv4.node}/32 dev lo`,
    "link add cni0 type bridge",
    `link add veth1 type veth peer name eth0 netns ${pod.name}`,
    "link set veth1 master cni0 up",
    "link set cni0 up",
    "addr add 10.180.0.254/24 dev cni0",
  ]);
  await pod.configure(["link set eth0 up", `addr add ${address}/24 dev eth0`, "route add default via 10.180.0.254"]);
  node.sysctl({ "net.ipv4.ip_forward": 1 });
  const on = ["-f", "-", "--node", "node-a", "--family", "ipv4"];
  const { out } = await runCommand(render, [...on, "--mode", "nftables"], objects("IPv4"));
  await node.exec(["nft", "-f", "-"], { input: out });
  const met = `const s = require("dgram").createSocket("udp4"), c = require("dgram").createSocket("udp4");
    s.bind(8080, () => setInterval(() => c.send("x", 80, "${CLUSTER_IP.IPv4}"), 100));
    s.on("message", () => process.exit(0)); setTimeout(() => process.exit(1), ${stretched(1_500)});`;
  const statusInPod = async () => (await pod.exec([execPath, "-e", met], { allowFailure: true })).status;
  const said = async () => {
    const argv = [execPath, MAIN, "prove", ...on, "--kernel", "--mode", "nftables"] as const;
    return (await node.exec(argv, { input: objects("IPv4"), timeoutMs: 60_000 })).stdout;
  };
  const NAMED = /port veth1 of a bridge, 10\.180\.0\.2:.* dropped by veth1, which sends nothing back to its pod/;
  // A port that is off, one that is on, and one whose packets the rules see only as the bridge's.
  const cases = [
    [1, "off"],
    [1, "on"],
    [0, "off"],
  ] as const;
  for (const [calls, hairpin] of cases) {
    node.sysctl({ "net.bridge.bridge-nf-call-iptables": calls });
    await node.exec(["bridge", "link", "set", "dev", "veth1", "hairpin", hairpin]);
    const isEnded = calls === 1 && hairpin === "off";
    assert.equal(await statusInPod(), isEnded ? 1 : 0, `${calls} ${hairpin}`);
    const stdout = await said();
    if (isEnded) assert.match(stdout, NAMED);
    else assert.doesNotMatch(stdout, /sends nothing back/);
  }
});
