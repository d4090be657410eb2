/**
 * A trace over the plan of what a packet can meet says the same as one over the plan of everything: in every mode, for packets to
 * every address of a random cluster, to node ports, to endpoints, and to nothing. Also chain by chain where they are planned on demand.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type ClusterRecords, projectObjects } from "../../src/cluster/manifests/index.ts";
import { MODES, type ProxyMode } from "../../src/dataplane/registry.ts";
import { partForPacket } from "../../src/explain/packet-part.ts";
import { type OfflineNode, offlineNode } from "../../src/inspect/offline-node.ts";
import { checkedSettings } from "../../src/lib/plan-settings.ts";
import { ip } from "../../src/model/testing/records.ts";
import { type IpAddress, type IpFamily, parseIpAddress } from "../../src/net/ip.ts";
import { deviceAddresses } from "../../src/trace/dump/device-addresses.ts";
import { dumpsOf } from "../../src/trace/dump/of-rendered.ts";
import { programOfDumps } from "../../src/trace/dump/program.ts";
import { nodeFacts } from "../../src/trace/facts.ts";
import { TooManyWaysError, walk } from "../../src/trace/netfilter/walk.ts";
import { newPacket } from "../../src/trace/packet.ts";
import { traceText } from "../../src/trace/report/text.ts";
import { historyRuns } from "../../testkit/support/fast-check.ts";
import { examplesAsJson } from "../cli/run-command.ts";
import { NODE_NAME } from "./cluster-arbitrary.ts";
import { sampledCluster } from "./sampled-cluster.ts";

const RUNS = historyRuns("KPTS_PROPERTY_TRACE_PART_RUNS", 6);
const NODE = { IPv4: ip("10.200.0.2"), IPv6: ip("fd00:200::2") } as const;
const POD = { IPv4: ip("10.180.0.250"), IPv6: ip("fd00:180::250") } as const;
const POD_CIDR = { IPv4: "10.180.0.0/16", IPv6: "fd00:180::/32" } as const;

interface Question {
  readonly protocol: string;
  readonly source: IpAddress;
  readonly destination: IpAddress;
  readonly port: number;
}

/** The text of a trace, over the plan of a part or of everything, by forms in which nothing is planned on demand. */
async function tracers(mode: ProxyMode, settings: object, cluster: ClusterRecords, family: IpFamily) {
  const { config } = await checkedSettings({ config: { mode, ...settings }, node: NODE_NAME });
  const whole = offlineNode(cluster, config, family, () => {});
  const { traceForms = [], isTracedInPart = false, loadRenderer } = MODES.find(({ name }) => name === mode) ?? MODES[0];
  const renderer = await loadRenderer();
  const wholeForms = traceForms.map((form) => (form === "tables" ? "iptables-save" : form));
  const traced = async (view: OfflineNode, forms: readonly string[], question: Question): Promise<string> => {
    const dumps = await dumpsOf(forms, (form) =>
      renderer(view, { config, form, service: undefined, missing: new Set() }),
    );
    const facts = nodeFacts({ addresses: [...view.hostAddresses, ...deviceAddresses(dumps)] });
    const { program } = programOfDumps(dumps, { family, facts, knowsClients: false, knowsDynamicSets: false });
    const { protocol, source, destination, port } = question;
    const ends = { sourcePort: 40_000, destination, destinationPort: port };
    const packet = newPacket({ family, protocol, source, inInterface: source === NODE[family] ? "" : "cni0", ...ends });
    try {
      return traceText({ packet, rules: "", notes: [], root: walk(program, packet, facts, { record: "matches" }) });
    } catch (error) {
      if (error instanceof TooManyWaysError) return "too many ways";
      throw error;
    }
  };
  return {
    inPart: (question: Question) => {
      const part = isTracedInPart ? partForPacket(cluster, NODE_NAME, question) : cluster;
      return traced(
        offlineNode(part, config, family, () => {}),
        traceForms,
        question,
      );
    },
    whole: (question: Question) => traced(whole, wholeForms, question),
  };
}

function questionsOf({ services, endpointSlices }: ClusterRecords, family: IpFamily): Question[] {
  const questions: Question[] = [];
  const ask = (destination: IpAddress | undefined, protocol: string, port: number) => {
    if (destination === undefined || destination.includes(":") !== (family === "IPv6")) return;
    questions.push({ protocol: protocol.toLowerCase(), source: POD[family], destination, port });
  };
  for (const { clusterIP, externalIPs, loadBalancerIngress, ports, healthCheckNodePort } of services) {
    for (const { port, protocol, nodePort } of ports) {
      for (const text of [clusterIP, ...externalIPs, ...loadBalancerIngress.map(({ ip: address }) => address)]) {
        ask(parseIpAddress(text), protocol, port);
      }
      if (nodePort !== 0) ask(NODE[family], protocol, nodePort);
      ask(parseIpAddress(clusterIP), protocol, port + 1);
    }
    if (healthCheckNodePort !== 0) ask(NODE[family], "tcp", healthCheckNodePort);
  }
  for (const { endpoints, ports } of endpointSlices.slice(0, 4)) {
    const [first] = endpoints;
    if (first !== undefined) ask(first.address, ports[0]?.protocol ?? "TCP", ports[0]?.port ?? 80);
  }
  ask(ip(family === "IPv4" ? "10.96.255.254" : "fd00:96::ffff"), "tcp", 80);
  return questions;
}

/** Services of every kind beside the random ones, which have nothing in common with these. */
function withExamples(cluster: ClusterRecords): ClusterRecords {
  const examples = projectObjects([JSON.parse(examplesAsJson())]);
  return {
    ...cluster,
    services: [...cluster.services, ...examples.services],
    endpointSlices: [...cluster.endpointSlices, ...examples.endpointSlices],
  };
}

const first = Number(process.env.KPTS_PROPERTY_SEED ?? Date.now() % 1_000_000);
const LAYOUTS = [{}, { nftables: { layout: "Flat" } }] as const;

for (const { name, traceForms } of MODES) {
  if (traceForms === undefined) continue;
  for (const settings of name === "nftables" ? LAYOUTS : [{}]) {
    const family = name === "ipvs" ? "IPv6" : "IPv4";
    test(`a part of the plan leads a packet as all of it does: ${name} ${JSON.stringify(settings)}`, async () => {
      for (let run = 0; run < RUNS; run += 1) {
        const seed = first + run;
        const cluster = withExamples(sampledCluster(family, seed, { node: NODE[family], podCIDR: POD_CIDR[family] }));
        const local = { detectLocalMode: "ClusterCIDR", clusterCIDR: POD_CIDR[family], ...settings };
        const { inPart, whole } = await tracers(name, local, cluster, family);
        const questions = questionsOf(cluster, family);
        assert.ok(questions.length > 0);
        for (const question of questions.filter((_, index) => index % 5 === run % 5)) {
          assert.equal(await inPart(question), await whole(question), `seed ${seed}: ${JSON.stringify(question)}`);
        }
      }
    });
  }
}
