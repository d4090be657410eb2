/**
 * In kernelspace mode `trace` reads documents that are planned for HNS. Of random clusters it says of every frontend and every client
 * what reference windows.md §2.6 and windows-practice.md §8 say: one load balancer for each frontend that has endpoints, nothing for
 * the others, and clients are not told apart.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { offlineNode } from "../../src/contract/inspect/offline-node.ts";
import { checkedSettings } from "../../src/lib/plan-settings.ts";
import { type Frontend, frontendsOf } from "../../src/model/frontend.ts";
import type { ClusterRecords } from "../../src/model/objects.ts";
import type { ServicePort } from "../../src/model/service-port.ts";
import { routeServicePort, type ServicePortRouting } from "../../src/model/service-port-routing.ts";
import { ip } from "../../src/model/testing/records.ts";
import { modeNamed } from "../../src/modes/registry.ts";
import type { IpFamily } from "../../src/net/ip.ts";
import { protocolName } from "../../src/net/protocol.ts";
import { dumpsOf } from "../../src/tools/explain/planned-rules.ts";
import { walkDumps } from "../../src/trace/dump/walk-dumps.ts";
import { nodeFacts } from "../../src/trace/facts.ts";
import { type Outcome, outcomesOf } from "../../src/trace/netfilter/tree.ts";
import { newPacket } from "../../src/trace/packet.ts";
import { historyRuns } from "../../testkit/support/fast-check.ts";
import { NODE_NAME } from "./cluster-arbitrary.ts";
import { sampledCluster } from "./sampled-cluster.ts";

const RUNS = historyRuns("KPTS_PROPERTY_TRACE_RUNS", 30);
const PLACES = {
  IPv4: { node: ip("10.200.0.2"), pod: ip("10.180.0.250"), outside: ip("172.16.0.1"), podCIDR: "10.180.0.0/16" },
  IPv6: { node: ip("fd00:200::2"), pod: ip("fd00:180::250"), outside: ip("fd00:172::1"), podCIDR: "fd00:180::/32" },
} as const;
const CLIENTS = { pod: undefined, node: "", outside: "eth0" } as const;

interface Wanted {
  readonly isAnswered: boolean;
  readonly isLocalOnly: boolean;
  /** The endpoint answers the client itself, and sees who that is. */
  readonly isDirect: boolean;
}

/** What the host does for a client, by its documentation alone. */
function wantedOf(
  { kind, policy }: Frontend,
  { preservesDestination }: ServicePort,
  routing: ServicePortRouting,
  { position, enableDSR }: { readonly position: string; readonly enableDSR: boolean },
): Wanted {
  const keepsDestination = preservesDestination === true;
  const isLocalOnly = policy === "Local" || (keepsDestination && (kind === "node-port" || kind === "load-balancer"));
  const endpoints = isLocalOnly ? routing.local : routing.cluster;
  return {
    isAnswered: position !== "node" && endpoints.length > 0,
    isLocalOnly,
    isDirect: kind === "cluster-ip" ? enableDSR : policy === "Local" || (keepsDestination && kind === "load-balancer"),
  };
}

interface Case {
  readonly question: string;
  readonly frontend: Frontend;
  readonly routing: ServicePortRouting;
  readonly wanted: Wanted;
  readonly outcomes: readonly Outcome[];
}

/** Every frontend that is served by no other service port, asked by every client. */
async function casesOf(cluster: ClusterRecords, family: IpFamily, enableDSR: boolean): Promise<Case[]> {
  const places = PLACES[family];
  const settings = { mode: "kernelspace" as const, winkernel: { enableDSR } };
  const { config } = await checkedSettings({ config: settings, node: NODE_NAME });
  const node = offlineNode(cluster, config, family, () => {});
  const { traceForms = [], loadRenderer } = modeNamed("kernelspace");
  const renderer = await loadRenderer();
  const dumps = await dumpsOf(traceForms, (form) =>
    renderer(node, { config, form, service: undefined, missing: new Set() }),
  );
  const facts = nodeFacts({ addresses: [places.node] });
  return [...node.state.services].flatMap(([key, port]) => {
    const endpoints = node.state.endpoints.get(key) ?? [];
    const routing = routeServicePort(port, endpoints, { nodeName: node.name, zone: node.zone });
    const frontends = frontendsOf(port, routing);
    return frontends.flatMap((frontend) => {
      // Of a Service that has its cluster IP among its other addresses, the cluster IP counts.
      if (frontend.kind !== "cluster-ip" && frontend.address === port.clusterIP) return [];
      if (frontend.kind === "external-ip" && port.loadBalancerVIPs.some((vip) => vip === frontend.address)) return [];
      return Object.entries(CLIENTS).flatMap(([position, inInterface]): Case[] => {
        const source = places[position as keyof typeof CLIENTS]; // a key of it
        const destination = frontend.address ?? places.node;
        const packet = newPacket({
          ...{ family, protocol: protocolName(port.protocol), source, sourcePort: 40_000, destination },
          ...{ destinationPort: frontend.port, inInterface },
        });
        const options = { record: "ends", knowsClients: true, knowsDynamicSets: true } as const;
        const outcomes = [...outcomesOf(walkDumps(dumps, packet, facts, options))];
        const question = `${port.name.text} ${frontend.kind} ${destination}:${frontend.port} from ${position}`;
        const wanted = wantedOf(frontend, port, routing, { position, enableDSR });
        return [{ question, frontend, routing, wanted, outcomes }];
      });
    });
  });
}

function hold({ question, frontend, routing, wanted: { isAnswered, isLocalOnly, isDirect }, outcomes }: Case): void {
  const led = outcomes.filter(({ packet }) => packet.isDestinationDecided);
  assert.equal(led.length > 0, isAnswered, question);
  if (!isAnswered) {
    const fate = frontend.kind === "node-port" ? "delivered" : "sent";
    // A cluster IP, or another address, may be one of the node's.
    assert.ok(
      outcomes.every((one) => one.fate.kind === fate || one.fate.kind === "delivered"),
      question,
    );
    return;
  }
  const wanted = isLocalOnly ? routing.local : routing.cluster;
  const found = new Map(led.map(({ packet }) => [`${packet.destination} ${packet.destinationPort}`, packet]));
  for (const [end, packet] of found) {
    assert.ok(
      wanted.some((one) => `${one.ip} ${one.port}` === end),
      `${question}: ${end}`,
    );
    assert.equal(packet.isMasqueraded, !isDirect, question);
  }
  // A load balancer knows one target port.
  const isMixed = new Set(wanted.map(({ port }) => port)).size > 1;
  if (!isMixed) assert.equal(found.size, new Set(wanted.map((one) => one.ip)).size, question);
}

const first = Number(process.env.KPTS_PROPERTY_SEED ?? Date.now() % 1_000_000);

for (const family of ["IPv4", "IPv6"] as const) {
  test(`load balancers of HNS, ${family}`, async () => {
    let compared = 0;
    for (let run = 0; run < RUNS; run += 1) {
      const seed = first + run;
      const cluster = sampledCluster(family, seed, PLACES[family]);
      for (const one of await casesOf(cluster, family, seed % 2 === 0)) {
        hold({ ...one, question: `seed ${seed}: ${one.question}` });
        if (one.wanted.isAnswered) compared += 1;
      }
    }
    assert.ok(compared > 0);
  });
}
