/**
 * Chains of two tables with one priority at one hook: the kernel calls the one that was registered last first, and no listing tells which
 * that is. A running daemon has seen it. The oracle is a packet.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, test } from "node:test";
import { ip } from "../../src/model/testing/records.ts";
import type { IpAddress } from "../../src/net/ip.ts";
import { netnsSkip } from "../../testkit/support/netns.ts";
import { stretched } from "../../testkit/support/patience.ts";
import { ProxyDaemon } from "../../testkit/support/proxy-daemon.ts";
import { skipWithoutTool } from "../../testkit/support/tools.ts";
import { daemonOptions, nodeObject, served } from "../kernel/faults/fault-node.ts";
import { commandsBeside, runBeside } from "../kernel/node-commands.ts";
import { PLACES, traceLab } from "../property/trace-against-kernel.ts";

const CLIENT = PLACES.IPv4.outside[0] as IpAddress;
const SERVICE = ip("10.96.0.1");
const STRANGER = "10.180.0.250";
const skip = netnsSkip || skipWithoutTool("conntrack", "conntrack");

describe("chains with the priority of the proxy's", { skip, timeout: stretched(240_000) }, () => {
  test("are called in the order that the daemon has seen", async (t) => {
    const lab = await traceLab();
    t.after(() => lab.remove());
    lab.watchArrivals();
    const nft = (text: string) => {
      const { status, stderr } = lab.tool(["nft", "-f", "-"], `${text}\n`);
      assert.equal(status, 0, stderr);
    };
    const table = (name: string) =>
      `table ip ${name} { chain c { type nat hook prerouting priority dstnat; ip daddr ${SERVICE} tcp dport 80 dnat to ${STRANGER}:99; }; }`;
    const load = { before: () => nft(table("early")), after: () => {} };
    await lab.load({ kind: "iptables-restore", text: "" }, "IPv4", load);
    const range = { apiVersion: "networking.k8s.io/v1", kind: "ServiceCIDR", metadata: { name: "all" } };
    const objects = [nodeObject, { ...range, spec: { cidrs: ["10.96.0.0/16"] } }, ...served("web", 1)];
    const daemon = ProxyDaemon.prepare(lab.node, {
      ...daemonOptions({ config: { mode: "nftables", clusterCIDR: "10.180.0.0/16" } }),
      objects,
    });
    t.after(() => daemon.dispose());
    const socket = join(daemon.folder, "socket");
    daemon.spawn(undefined, [`--inspect-socket=${socket}`]);
    await daemon.synced();

    /** Where a client of the Service ends, the answer's status and the stranger's part in it. */
    const seen = async () => {
      const packet = { family: "IPv4", protocol: "tcp", inInterface: "eth0", sourcePort: lab.takePort() } as const;
      lab.send({ ...packet, source: CLIENT, destination: SERVICE, destinationPort: 80 });
      const met = (await lab.observed(() => false)).get(`tcp ${packet.sourcePort}`);
      const { stdout, stderr, status } = await commandsBeside(daemon, "node-a", socket)("prove", "--family", "ipv4");
      const isStrangers = stdout.includes(`${STRANGER}:99`);
      assert.equal(status, isStrangers ? 1 : 0, stdout + stderr);
      assert.equal(met?.kind === "passed" && met.destination === STRANGER, isStrangers, stdout);
      return isStrangers ? "the stranger's" : "the proxy's";
    };
    assert.equal(await seen(), "the proxy's", "it came later");
    const alone = await commandsBeside(daemon, "node-a", undefined)("prove", "--family", "ipv4");
    assert.equal(alone.status, 2, "nothing else tells it");
    nft(table("late"));
    assert.equal(await seen(), "the stranger's");
    nft("delete table ip late");
    assert.equal(await seen(), "the proxy's");
    nft("add table ip early { flags dormant; }");
    assert.equal(await seen(), "the proxy's");
    nft("add table ip early");
    assert.equal(await seen(), "the stranger's", "waking registers it again");
    nft("delete table ip kube-proxy");
    await daemon.until("the repair", async () => lab.tool(["nft", "list", "table", "ip", "kube-proxy"]).status === 0);
    assert.equal(await seen(), "the proxy's", "its table was made again");
    nft("add table ip kube-proxy { flags dormant; }");
    const isAwake = async () => !lab.tool(["nft", "list", "table", "ip", "kube-proxy"]).stdout.includes("dormant");
    await daemon.until("the waking", isAwake);
    nft(table("late"));
    assert.equal(await seen(), "the stranger's");
    const traced = await runBeside(daemon, socket, ["trace", "--kernel", "--from", CLIENT, "--to", `${SERVICE}:80`]);
    assert.match(traced.stdout, /10\.180\.0\.250/, traced.stderr);
    assert.doesNotMatch(traced.stdout, /10\.180\.0\.1\b/, "only one order is walked");

    const archive = join(daemon.folder, "dump.tar.gz");
    const config = ["--config", join(daemon.folder, "config.json"), "--node", "node-a"];
    const kept = await runBeside(daemon, socket, ["sysdump", "-o", archive, "-f", daemon.manifests, ...config]);
    assert.equal(kept.status, 0, kept.stderr);
    const proof = await runBeside(daemon, undefined, ["prove", "--family", "ipv4", "--dump", archive]);
    assert.equal(proof.status, 1, proof.stdout + proof.stderr);
    assert.ok(proof.stdout.includes(`${STRANGER}:99`), proof.stdout);
  });
});
