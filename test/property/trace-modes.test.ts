/**
 * Plans of one random cluster in several modes, walked with the same packets to cluster IPs: where a service has endpoints, every
 * mode that translates in the kernel by its rules leads a client to the same ones with the same odds and the same source. What differs on
 * purpose is left out: what becomes of services without endpoints, and of other addresses.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { ClusterRecords } from "../../src/cluster/manifests/index.ts";
import { MODES, modeNamed, type ProxyMode } from "../../src/dataplane/registry.ts";
import { offlineNode } from "../../src/inspect/offline-node.ts";
import { checkedSettings } from "../../src/lib/plan-settings.ts";
import { ip } from "../../src/model/testing/records.ts";
import { type IpFamily, parseIpAddress } from "../../src/net/ip.ts";
import { deviceAddresses } from "../../src/trace/dump/device-addresses.ts";
import { dumpsOf } from "../../src/trace/dump/of-rendered.ts";
import { programOfDumps } from "../../src/trace/dump/program.ts";
import { nodeFacts } from "../../src/trace/facts.ts";
import { type Outcome, outcomesOf } from "../../src/trace/netfilter/tree.ts";
import { walk } from "../../src/trace/netfilter/walk.ts";
import { endText, newPacket, type PacketQuestion } from "../../src/trace/packet.ts";
import { historyRuns } from "../../testkit/support/fast-check.ts";
import { NODE_NAME } from "./cluster-arbitrary.ts";
import { sampledCluster } from "./sampled-cluster.ts";

const RUNS = historyRuns("KPTS_PROPERTY_TRACE_RUNS", 30);
const PLACES = {
  IPv4: { node: ip("10.200.0.2"), pod: ip("10.180.0.250"), outside: ip("172.16.0.1"), podCIDR: "10.180.0.0/16" },
  IPv6: { node: ip("fd00:200::2"), pod: ip("fd00:180::250"), outside: ip("fd00:172::1"), podCIDR: "fd00:180::/32" },
} as const;

type Fates = (packet: PacketQuestion) => string;

/** Each endpoint with its odds and the source that it sees; undefined when the packet does not get to an endpoint. */
async function fatesIn(mode: ProxyMode, cluster: ClusterRecords, family: IpFamily): Promise<Fates> {
  const { node: nodeIP, podCIDR } = PLACES[family];
  const settings = { mode, detectLocalMode: "ClusterCIDR", clusterCIDR: podCIDR };
  const { config } = await checkedSettings({ config: settings, node: NODE_NAME });
  const node = offlineNode(cluster, config, family, () => {});
  const { traceForms = [], loadRenderer } = modeNamed(mode);
  const renderer = await loadRenderer();
  const dumps = await dumpsOf(traceForms, (form) =>
    renderer(node, { config, form, service: undefined, missing: new Set() }),
  );
  const facts = nodeFacts({ addresses: [nodeIP, ...deviceAddresses(dumps)] });
  const { program } = programOfDumps(dumps, { family, facts, knowsClients: true, knowsDynamicSets: true });
  return (packet) => {
    const outcomes = [...outcomesOf(walk(program, newPacket(packet), facts, { record: "ends" }))];
    // What is not known (whether a port of a bridge is passed) must not matter.
    const ways = Map.groupBy(outcomes, ({ assumptions }) => assumptions.join(", and "));
    const texts = new Set(Array.from(ways.values(), sharesText));
    return [...texts].join("\nor\n");
  };
}

function sharesText(outcomes: readonly Outcome[]): string {
  const shares = new Map<string, number>();
  for (const { odds, fate, packet } of outcomes) {
    const target = endText(packet.destination, packet.destinationPort);
    const text = `${fate.kind} ${target}${packet.isMasqueraded ? " masqueraded" : ""}`;
    shares.set(text, (shares.get(text) ?? 0) + odds);
  }
  return [...shares]
    .map(([text, share]) => `${text} ${share.toFixed(6)}`)
    .sort()
    .join("\n");
}

function packetsTo(cluster: ClusterRecords, family: IpFamily): PacketQuestion[] {
  const { node, pod, outside } = PLACES[family];
  const clients = [
    { source: pod, inInterface: "cni0" },
    { source: outside, inInterface: "eth0" },
    { source: node, inInterface: "" },
  ];
  // Where a Service has its cluster IP among its external IPs, modes differ in who is masqueraded (docs/differences.md): also
  // of the clients of another one that has the same cluster IP.
  const own = cluster.services.filter(({ clusterIP, externalIPs }) => externalIPs.includes(clusterIP));
  const ambiguous = new Set(own.map(({ clusterIP }) => clusterIP));
  return cluster.services.flatMap(({ clusterIP, ports }) => {
    const destination = parseIpAddress(clusterIP);
    if (destination === undefined || ambiguous.has(clusterIP)) return [];
    return ports.flatMap(({ port, protocol }) =>
      clients.map((client): PacketQuestion => {
        const ends = { sourcePort: 40_000, destination, destinationPort: port };
        return { family, protocol: protocol.toLowerCase(), ...client, ...ends };
      }),
    );
  });
}

const first = Number(process.env.KPTS_PROPERTY_SEED ?? Date.now() % 1_000_000);
const others = MODES.filter(({ name }) => !["iptables", "userspace", "kernelspace"].includes(name));

for (const { name } of others) {
  for (const family of ["IPv4", "IPv6"] as const) {
    test(`${name} does with packets to cluster IPs what iptables does, ${family}`, async () => {
      let compared = 0;
      for (let run = 0; run < RUNS; run += 1) {
        const seed = first + run;
        const cluster = sampledCluster(family, seed, PLACES[family]);
        const [wanted, found] = [await fatesIn("iptables", cluster, family), await fatesIn(name, cluster, family)];
        for (const packet of packetsTo(cluster, family)) {
          const expected = wanted(packet);
          if (
            !expected.startsWith("sent ") ||
            expected.startsWith(`sent ${endText(packet.destination, packet.destinationPort)} `)
          )
            continue;
          compared += 1;
          const question = `seed ${seed}: ${packet.protocol} ${packet.source} to ${endText(packet.destination, packet.destinationPort)}`;
          assert.equal(found(packet), expected, question);
        }
      }
      assert.ok(compared > 0);
    });
  }
}
