/**
 * A trace over the plan of what a packet can meet says the same as one over the plan of everything: in every mode, for packets to
 * every address of a random cluster, to node ports, to endpoints, and to nothing. Also chain by chain where they are planned on demand.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { projectObjects } from "../../src/agent/cluster/manifests/read-manifests.ts";
import { runAtOnce } from "../../src/async/turns.ts";
import { type OfflineNode, offlineNode } from "../../src/contract/inspect/offline-node.ts";
import { checkedSettings } from "../../src/lib/plan-settings.ts";
import type { ClusterRecords } from "../../src/model/objects.ts";
import { ip, makeEndpointRecord, makeService, makeSlice } from "../../src/model/testing/records.ts";
import { MODES, type ProxyMode } from "../../src/modes/registry.ts";
import { type IpAddress, type IpFamily, parseIpAddress } from "../../src/net/ip.ts";
import { partForPacket } from "../../src/tools/explain/packet-part.ts";
import { dumpsOf } from "../../src/tools/explain/planned-rules.ts";
import { deviceAddresses } from "../../src/trace/dump/device-addresses.ts";
import type { Dump } from "../../src/trace/dump/recognise.ts";
import { walkDumps } from "../../src/trace/dump/walk-dumps.ts";
import { nodeFacts } from "../../src/trace/facts.ts";
import { TooManyWaysError } from "../../src/trace/netfilter/tree.ts";
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
async function tracers(
  mode: ProxyMode,
  settings: object,
  cluster: ClusterRecords,
  family: IpFamily,
  record: "matches" | "all" = "matches",
) {
  const { config } = await checkedSettings({ config: { mode, ...settings }, node: NODE_NAME });
  const whole = offlineNode(cluster, config, family, () => {});
  const { traceForms = [], loadRenderer } = MODES.find(({ name }) => name === mode) ?? MODES[0];
  const renderer = await loadRenderer();
  const wholeForms = traceForms.map((form) => (form === "tables" ? "iptables-save" : form));
  const planned = (view: OfflineNode, forms: readonly string[]) =>
    dumpsOf(forms, (form) => renderer(view, { config, form, service: undefined, missing: new Set() }));
  // The same for every packet.
  let ofAll: Promise<readonly Dump[]> | undefined;
  const traced = async (view: OfflineNode, plan: Promise<readonly Dump[]>, question: Question): Promise<string> => {
    const dumps = await plan;
    const facts = nodeFacts({ addresses: [...view.hostAddresses, ...deviceAddresses(dumps)] });
    const { protocol, source, destination, port } = question;
    const ends = { sourcePort: 40_000, destination, destinationPort: port };
    const packet = newPacket({ family, protocol, source, inInterface: source === NODE[family] ? "" : "cni0", ...ends });
    try {
      const root = walkDumps(dumps, packet, facts, { knowsClients: false, knowsDynamicSets: false, record });
      return traceText({ packet, rules: "", notes: [], root }, true);
    } catch (error) {
      if (error instanceof TooManyWaysError) return "too many ways";
      throw error;
    }
  };
  const showsEveryRule = record === "all";
  return {
    inPart: (question: Question) => {
      const part = runAtOnce(partForPacket(whole, { ...question, showsEveryRule }));
      return traced(part, planned(part, traceForms), question);
    },
    whole: (question: Question) => {
      ofAll ??= planned(whole, wholeForms);
      return traced(whole, ofAll, question);
    },
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

const TWINS = 3;
/** One question in so many is asked in each run. */
const ASKED = 12;

/** With services that differ from some of these in names, addresses and node ports alone: a part leaves most of them out. */
function withTwins(cluster: ClusterRecords, family: IpFamily): ClusterRecords {
  let count = 0;
  const fresh = (text: string): string => {
    if (parseIpAddress(text)?.includes(":") !== (family === "IPv6")) return text;
    count += 1;
    return family === "IPv4" ? `10.97.${count >> 8}.${count & 255}` : `fd00:97::${count.toString(16)}`;
  };
  const freshPort = (port: number): number => {
    if (port !== 0) count += 1;
    return port === 0 ? 0 : 31_000 + (count % 1_500);
  };
  const services = [...cluster.services];
  const endpointSlices = [...cluster.endpointSlices];
  for (let twin = 1; twin <= TWINS; twin += 1) {
    for (const service of cluster.services.slice(0, 8)) {
      const name = `${service.name}-${twin}`;
      const addresses = new Map(service.clusterIPs.map((text) => [text, fresh(text)]));
      services.push({
        ...service,
        name,
        clusterIP: addresses.get(service.clusterIP) ?? fresh(service.clusterIP),
        clusterIPs: [...addresses.values()],
        externalIPs: service.externalIPs.map(fresh),
        loadBalancerIngress: service.loadBalancerIngress.map((one) => ({ ...one, ip: fresh(one.ip) })),
        ports: service.ports.map((port) => ({ ...port, nodePort: freshPort(port.nodePort) })),
        healthCheckNodePort: freshPort(service.healthCheckNodePort),
      });
      for (const slice of cluster.endpointSlices) {
        if (slice.namespace !== service.namespace || slice.serviceName !== service.name) continue;
        const endpoints = slice.endpoints.map((one) => ({ ...one, address: ip(fresh(one.address)) }));
        endpointSlices.push({ ...slice, name: `${slice.name}-${twin}`, serviceName: name, endpoints });
      }
    }
  }
  return { ...cluster, services, endpointSlices };
}

const first = Number(process.env.KPTS_PROPERTY_SEED ?? Date.now() % 1_000_000);
/** Tried each time: two Services disagree where a pod is. */
const KNOWN = [204_748];
const LAYOUTS = [{}, { nftables: { layout: "Flat" } }] as const;

for (const { name, traceForms } of MODES) {
  if (traceForms === undefined) continue;
  for (const settings of name === "nftables" ? LAYOUTS : [{}]) {
    const family = name === "ipvs" ? "IPv6" : "IPv4";
    test(`a part of the plan leads a packet as all of it does: ${name} ${JSON.stringify(settings)}`, async () => {
      const seeds = [...KNOWN, ...Array.from({ length: RUNS }, (_, run) => first + run)];
      for (const [run, seed] of seeds.entries()) {
        const sampled = sampledCluster(family, seed, { node: NODE[family], podCIDR: POD_CIDR[family] });
        const cluster = withExamples(withTwins(sampled, family));
        const local = { detectLocalMode: "ClusterCIDR", clusterCIDR: POD_CIDR[family], ...settings };
        const record = run % 2 === 0 ? "matches" : "all";
        const { inPart, whole } = await tracers(name, local, cluster, family, record);
        const questions = questionsOf(cluster, family);
        assert.ok(questions.length > 0);
        for (const question of questions.filter((_, index) => index % ASKED === run % ASKED)) {
          const wanted = await whole(question);
          assert.equal(await inPart(question), wanted, `seed ${seed}: ${JSON.stringify(question)}`);
        }
      }
    });
  }
}

/** Services that differ in names and addresses, with one endpoint each. */
function manyServices(count: number, has: Partial<ClusterRecords["services"][number]> = {}): ClusterRecords {
  const numbers = Array.from({ length: count }, (_, index) => index);
  const address = (net: number, index: number) => `10.${net}.${index >> 8}.${index & 255}`;
  const names = numbers.map((index) => `service-${index}`);
  return {
    ...sampledCluster("IPv4", 1, { node: NODE.IPv4, podCIDR: POD_CIDR.IPv4 }),
    services: names.map((name, index) => {
      const clusterIP = address(98, index);
      const ports = [
        { name: "p", protocol: "TCP" as const, port: 80, nodePort: has.type === undefined ? 0 : 30_000 + index },
      ];
      return makeService({ name, clusterIP, clusterIPs: [clusterIP], ports, ...has });
    }),
    endpointSlices: names.map((name, index) => {
      const endpoints = [makeEndpointRecord(address(180, index))];
      return makeSlice({ name: `${name}-a`, serviceName: name, endpoints });
    }),
  };
}

const CLUSTER_CIDR = { detectLocalMode: "ClusterCIDR", clusterCIDR: POD_CIDR.IPv4 };

test("rules of a large cluster have their places, and are written, as in all of it", async () => {
  for (const mode of ["iptables", "userspace"] as const) {
    // More than 1,000 endpoints: rules lose their comments.
    const { inPart, whole } = await tracers(mode, CLUSTER_CIDR, manyServices(1_100), "IPv4", "all");
    const question = { protocol: "tcp", source: POD.IPv4, destination: ip("10.98.2.50"), port: 80 };
    const text = await inPart(question);
    assert.equal(text, await whole(question));
    assert.match(text, /\d{3} rules are for other addresses and ports/);
  }
});

test("an endpoint that is the address of another Service is refused where that has no endpoint", async () => {
  const cluster = manyServices(60);
  const isEmpty = (name: string) => Number(name.split("-")[1]) >= 30;
  const slices = cluster.endpointSlices.filter(({ serviceName }) => !isEmpty(serviceName));
  const slice = makeSlice({ name: "to-58", serviceName: "service-57", endpoints: [makeEndpointRecord("10.98.0.58")] });
  const some = { ...cluster, endpointSlices: [...slices, slice] };
  const { inPart, whole } = await tracers("iptables", CLUSTER_CIDR, some, "IPv4");
  const question = { protocol: "tcp", source: POD.IPv4, destination: ip("10.98.0.57"), port: 80 };
  const text = await inPart(question);
  assert.equal(text, await whole(question));
  assert.match(text, /has no endpoints/);
});

test("an endpoint at the node's address and at another Service's node port is refused where that has no endpoint", async () => {
  const cluster = manyServices(60, { type: "NodePort" });
  const isEmpty = (name: string) => Number(name.split("-")[1]) >= 30;
  const slices = cluster.endpointSlices.filter(({ serviceName }) => !isEmpty(serviceName));
  const ports = [{ name: "p", protocol: "TCP" as const, port: 30_058 }];
  const slice = makeSlice({ name: "a", serviceName: "service-57", endpoints: [makeEndpointRecord(NODE.IPv4)], ports });
  const some = { ...cluster, endpointSlices: [...slices, slice] };
  const { inPart, whole } = await tracers("iptables", CLUSTER_CIDR, some, "IPv4");
  const question = { protocol: "tcp", source: POD.IPv4, destination: ip("10.98.0.57"), port: 80 };
  const text = await whole(question);
  assert.match(text, /service-58:p has no endpoints/);
  assert.equal(await inPart(question), text);
});

test("Services that share endpoints need not be planned for each other", async () => {
  const cluster = manyServices(60);
  const endpoints = [makeEndpointRecord("10.180.0.1", { nodeName: NODE_NAME })];
  const some = { ...cluster, endpointSlices: cluster.endpointSlices.map((slice) => ({ ...slice, endpoints })) };
  const to = { protocol: "tcp", destination: ip("10.98.0.7"), port: 80 };
  const { config } = await checkedSettings({ config: CLUSTER_CIDR, node: NODE_NAME });
  const served = offlineNode(some, config, "IPv4", () => {});
  assert.ok(runAtOnce(partForPacket(served, to)).state.services.size < 5);
  for (const { name } of MODES.filter(({ traceForms }) => traceForms !== undefined)) {
    const { inPart, whole } = await tracers(name, CLUSTER_CIDR, some, "IPv4");
    // From the endpoint to itself, too: what comes back there must be masqueraded.
    for (const source of [POD.IPv4, ip("10.180.0.1")]) {
      assert.equal(await inPart({ ...to, source }), await whole({ ...to, source }), name);
    }
  }
});

test("a packet to a port of the proxy itself meets the rule that lets it in, whichever Service has it", async () => {
  const cluster = manyServices(60, { type: "NodePort" });
  const { inPart, whole } = await tracers("userspace", CLUSTER_CIDR, cluster, "IPv4");
  const question = { protocol: "tcp", source: POD.IPv4, destination: NODE.IPv4, port: 20_041 };
  const text = await inPart(question);
  assert.equal(text, await whole(question));
  assert.match(text, /KUBE-NODEPORT-NON-LOCAL 42: /);
});
