/** Which endpoints a service uses and who may use it, beyond the packet table: one network and one daemon for all. */

import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { Protocol } from "../../../src/net/protocol.ts";
import { bareAddress, nodeA } from "../../../testkit/net/topology-spec.ts";
import { stretched } from "../../../testkit/support/patience.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { ask, differenceFrom, outcomes } from "./asking.ts";
import {
  addressesOf,
  FAMILIES,
  type Family,
  type ServiceSpec,
  type ServingPod,
  TERMINATING,
  UNREADY,
} from "./cluster-objects.ts";
import {
  answersOf,
  DESTINATIONS,
  type Destination,
  type Expected,
  isDecidedAtSocket,
  type Position,
} from "./expected.ts";
import { addressOf, type FlowNetwork, flowNetwork } from "./flow-network.ts";
import { ALL_MODES, type Mode, protocolsOf, traitsOf } from "./modes.ts";

const ALL: readonly ServingPod[] = ["local-1", "local-2", "remote-1"];
const LOCAL_OUTSIDE = { externalTrafficPolicy: "Local" };
const zoneHint = (zone: string) => ({ forZones: [{ name: zone }] });

/** Every service of the tests below, by name; its number follows from its place. */
const services = numbered({
  sticky: { endpoints: ALL, spec: { sessionAffinity: "ClientIP" } },
  even: { endpoints: ALL },
  rolling: { endpoints: [{ pod: "local-1", conditions: TERMINATING }, "local-2", "remote-1"] },
  draining: { endpoints: (["local-1", "remote-1"] as const).map((pod) => ({ pod, conditions: TERMINATING })) },
  "draining-here": {
    endpoints: [{ pod: "local-1", conditions: TERMINATING }, "remote-1"],
    spec: { ...LOCAL_OUTSIDE, healthCheckNodePort: 32001 },
  },
  broken: {
    endpoints: [
      { pod: "local-1", conditions: UNREADY },
      { pod: "remote-1", conditions: { ...TERMINATING, serving: false } },
    ],
  },
  zoned: {
    endpoints: [
      { pod: "local-1", hints: zoneHint("zone-2") },
      { pod: "local-2", hints: zoneHint("zone-2") },
      { pod: "remote-1", hints: zoneHint("zone-1") },
    ],
  },
  "half-zoned": { endpoints: [{ pod: "local-1", hints: zoneHint("zone-1") }, "remote-1"] },
  "node-hinted": {
    endpoints: [
      { pod: "local-1", hints: { ...zoneHint("zone-1"), forNodes: [{ name: "node-b" }] } },
      { pod: "remote-1", hints: { ...zoneHint("zone-2"), forNodes: [{ name: "node-a" }] } },
    ],
  },
  "for-the-client": {
    endpoints: ["local-1"],
    spec: { loadBalancerSourceRanges: ["10.200.0.64/26", "fd00:200::100/120"] },
  },
  "for-the-lan": { endpoints: ["local-1"], spec: { loadBalancerSourceRanges: ["10.200.0.0/24", "fd00:200::/64"] } },
  "two-here": { endpoints: ALL, spec: { ...LOCAL_OUTSIDE, healthCheckNodePort: 32002 } },
  "cluster-ip-type": { endpoints: ALL, spec: { ...LOCAL_OUTSIDE, type: "ClusterIP" } },
  "none-here": { endpoints: ["remote-1"], spec: { ...LOCAL_OUTSIDE, healthCheckNodePort: 32003 } },
});
type ServiceName = keyof typeof services;

function numbered<Name extends string>(
  specs: Readonly<Record<Name, Omit<ServiceSpec, "name" | "number">>>,
): Record<Name, ServiceSpec> {
  const entries = Object.keys(specs).map((name, index) => [name, { ...specs[name as Name], name, number: index + 1 }]);
  return Object.fromEntries(entries) as Record<Name, ServiceSpec>;
}

type Wanted = (family: Family, protocol: Protocol) => Expected;

/** Asserts what a client gets over every protocol and family. */
async function expectAll(
  mode: Mode,
  { probers }: FlowNetwork,
  name: ServiceName,
  to: Destination,
  from: Position,
  wanted: Wanted,
): Promise<void> {
  const cells = FAMILIES.flatMap((family) =>
    protocolsOf(mode).map(async (protocol) => {
      const target = addressOf(services[name].number, to, protocol, family);
      const difference = await differenceFrom(wanted(family, protocol), probers[from], target);
      return difference === undefined ? undefined : `${name}: ${from} to ${to}, ${protocol} ${family}: ${difference}`;
    }),
  );
  assert.deepEqual(
    (await Promise.all(cells)).filter((line) => line !== undefined),
    [],
  );
}

const seenBy =
  (from: Position, isKept: boolean, ...pods: ServingPod[]): Wanted =>
  (family) =>
    answersOf(pods, isKept, from, family);
const masqueraded = (from: Position, ...pods: ServingPod[]) => seenBy(from, false, ...pods);
/** At an external address: if the endpoint is chosen at a pod's socket, endpoints see the pod's own address (reference ebpf.md §1.4). */
const ledFromPod =
  (mode: Mode, to: Destination, ...pods: ServingPod[]): Wanted =>
  (family, protocol) =>
    answersOf(pods, isDecidedAtSocket(mode, "Cluster", to, protocol), "pod", family);
const nothing = (): Expected => ({ kind: "nothing" });
/** If the address is now the node's own, a proxy holds its port and rejects clients that bypass the rules. */
const barredBy =
  (mode: Mode): Wanted =>
  () => ({ kind: traitsOf[mode].carriesTraffic ? "nothing" : "silence" });

/** The pods that a client meets in turn at these addresses of the sticky service. */
async function podsMet(
  { probers }: FlowNetwork,
  from: Position,
  addresses: readonly Destination[],
  protocol: Protocol,
  family: Family,
): Promise<string[]> {
  const met: string[] = [];
  for (const to of addresses) {
    const target = addressOf(services.sticky.number, to, protocol, family);
    const answers = await probers[from].connect({ ...target, count: 6, sequential: true, timeoutMs: stretched(8000) });
    met.push(...answers.map((answer) => (answer.ok ? answer.pod : answer.error)));
  }
  return met;
}

/** Groups of addresses at which a client meets the same pod. */
function stickyAddresses(mode: Mode, from: Position): readonly (readonly Destination[])[] {
  const { carriesTraffic, remembersByAddress } = traitsOf[mode];
  if (remembersByAddress === true) return DESTINATIONS.map((to) => [to]);
  // The node's own address depends on the destination, so it is another client there.
  if (from === "node") return [["cluster IP"]];
  const hasExternalIPs = from === "off-node client" || !carriesTraffic;
  return [DESTINATIONS.filter((to) => to !== "external IP" || hasExternalIPs)];
}

async function affinity(mode: Mode, network: FlowNetwork): Promise<void> {
  const clients = (["pod", "endpoint pod", "node", "off-node client"] as const).flatMap((from) =>
    stickyAddresses(mode, from).flatMap((addresses) =>
      protocolsOf(mode).flatMap((protocol) =>
        FAMILIES.map((family) => podsMet(network, from, addresses, protocol, family)),
      ),
    ),
  );
  const used = (await Promise.all(clients)).map((pods) => [...new Set(pods)]);
  for (const pods of used) assert.equal(pods.length, 1, `one client met ${pods.join(" and ")}`);
  // Sixteen clients that choose freely all meet the same pod once in 10^7 runs.
  assert.ok(new Set(used.flat()).size > 1, `every client met ${used[0]}`);
}

/** A correct proxy exceeds it once in 4·10^6 runs per test: the tail of χ² with two degrees of freedom is e^(−x/2). */
const CHI_SQUARE_LIMIT = 2 * Math.log(4e6);

async function distribution({ probers }: FlowNetwork, protocol: Protocol, family: Family): Promise<void> {
  const target = addressOf(services.even.number, "cluster IP", protocol, family);
  const rounds = await Promise.all(Array.from({ length: 24 }, () => ask(probers.pod, target, 25)));
  const counts = new Map(ALL.map((pod): [string, number] => [pod, 0]));
  for (const answer of rounds.flat()) {
    assert.ok(answer.ok, outcomes([answer]).join());
    counts.set(answer.pod, (counts.get(answer.pod) ?? 0) + 1);
  }
  const mean = rounds.flat().length / ALL.length;
  const chiSquare = [...counts.values()].reduce((sum, count) => sum + (count - mean) ** 2 / mean, 0);
  assert.ok(chiSquare < CHI_SQUARE_LIMIT, `χ² ${chiSquare.toFixed(1)}: ${JSON.stringify(Object.fromEntries(counts))}`);
}

async function vipAsSource(mode: Mode, network: FlowNetwork): Promise<void> {
  const vips = (["for-the-lan", "for-the-client"] as const).map(
    (name) => addressesOf(services[name].number)["load balancer"],
  );
  // The node's own address is also the source of what the node sends to it.
  await network.topology
    .namespace(nodeA.name)
    .configure(vips.flatMap(({ IPv4, IPv6 }) => [`addr add ${IPv4}/32 dev lo`, `addr add ${IPv6}/128 dev lo nodad`]));
  await Promise.all([
    expectAll(mode, network, "for-the-lan", "load balancer", "node", (family) =>
      answersOf(["local-1"], false, "node", family),
    ),
    expectAll(mode, network, "for-the-client", "load balancer", "node", barredBy(mode)),
  ]);
}

async function localhostNodePorts({ probers }: FlowNetwork, mode: Mode): Promise<void> {
  const { nodePort: port } = addressesOf(services.even.number);
  const { localhostNodePorts, carriesTraffic } = traitsOf[mode];
  const refused: Expected = { kind: "refused" };
  const lines = protocolsOf(mode).flatMap((protocol) => {
    const at = (address: string, isServed: boolean, family: Family) => {
      const wanted = isServed ? answersOf(ALL, false, "node", family) : refused;
      return differenceFrom(wanted, probers.node, { protocol, address, port });
    };
    // A proxy has no reason to leave out the IPv6 one.
    return [at("127.0.0.1", localhostNodePorts.includes(protocol), "IPv4"), at("::1", carriesTraffic, "IPv6")];
  });
  assert.deepEqual(
    (await Promise.all(lines)).filter((line) => line !== undefined),
    [],
  );
}

async function healthCheck({ probers }: FlowNetwork, name: ServiceName, status: number, count: number): Promise<void> {
  const port = services[name].spec?.healthCheckNodePort;
  for (const host of [bareAddress(nodeA.lan.ipv4), `[${bareAddress(nodeA.lan.ipv6)}]`]) {
    const answer = await probers["off-node client"].fetch(`http://${host}:${port}/`, 8000);
    assert.equal(answer.status, status, `${name} at ${host}: ${answer.body}`);
    assert.deepEqual(JSON.parse(answer.body), {
      service: { namespace: "flows", name },
      localEndpoints: count,
      serviceProxyHealthy: true,
    });
  }
}

/** The client's packets to 127.0.0.1 go to the node, which routes them for its localhost node ports. */
async function localhostFromOutside({ topology, probers }: FlowNetwork): Promise<void> {
  const client = topology.namespace("client");
  client.sysctl({ "net.ipv4.conf.all.route_localnet": 1 });
  await client.configure(["addr del 127.0.0.1/8 dev lo", "route add 127.0.0.0/8 via 10.200.0.2 dev eth0"]);
  const address = { protocol: "TCP", address: "127.0.0.1", port: 10249 } as const;
  assert.equal(await differenceFrom({ kind: "silence" }, probers["off-node client"], address), undefined);
}

function registerTests(t: TestContext, network: FlowNetwork, mode: Mode): Promise<void>[] {
  const { carriesTraffic, hasVirtualServers = false } = traitsOf[mode];
  const check = (title: string, ...work: (() => Promise<void>)[]) =>
    t.test(title, async () => {
      await Promise.all(work.map((run) => run()));
    });
  const cell = (name: ServiceName, to: Destination, from: Position, wanted: Wanted) => () =>
    expectAll(mode, network, name, to, from, wanted);
  const keptBy = (from: Position, ...pods: ServingPod[]) => seenBy(from, !carriesTraffic, ...pods);
  const inside = (name: ServiceName, ...pods: ServingPod[]) =>
    cell(name, "cluster IP", "pod", pods.length === 0 ? () => ({ kind: "refused" }) : keptBy("pod", ...pods));
  const outside = "off-node client";
  const barred = barredBy(mode);
  return [
    check("with session affinity a client meets one pod, at any address of the service", () => affinity(mode, network)),
    ...FAMILIES.flatMap((family) =>
      protocolsOf(mode).map((protocol) =>
        check(`three pods share requests evenly: ${protocol} over ${family}`, () =>
          distribution(network, protocol, family),
        ),
      ),
    ),
    check("a terminating pod gets nothing while another is ready", inside("rolling", "local-2", "remote-1")),
    check("terminating pods that serve are used when none is ready", inside("draining", "local-1", "remote-1")),
    check("pods that neither are ready nor serve are no endpoints", inside("broken")),
    check("one endpoint without a hint makes all endpoints used", inside("half-zoned", "local-1", "remote-1")),
    check(
      `a Local service falls back to the node's terminating pod${hasVirtualServers ? "" : " for the outside only"}`,
      cell("draining-here", "load balancer", outside, keptBy(outside, "local-1")),
      cell("draining-here", "load balancer", "pod", keptBy("pod", hasVirtualServers ? "local-1" : "remote-1")),
      inside("draining-here", "remote-1"),
    ),
    check(
      "a Local policy holds for the external IPs of a ClusterIP service too",
      cell("cluster-ip-type", "external IP", outside, keptBy(outside, "local-1", "local-2")),
    ),
    check("zone hints keep to the node's zone, wherever its pods are", inside("zoned", "remote-1")),
    check("node hints come before zone hints", inside("node-hinted", "remote-1")),
    check(
      "source ranges let in who is listed and drop everybody else, at the load balancer's address only",
      cell("for-the-client", "load balancer", outside, masqueraded(outside, "local-1")),
      cell("for-the-client", "load balancer", "pod", barred),
      cell("for-the-client", "node port", "pod", ledFromPod(mode, "node port", "local-1")),
      cell(
        "for-the-client",
        "external IP",
        "pod",
        carriesTraffic ? nothing : ledFromPod(mode, "external IP", "local-1"),
      ),
      inside("for-the-client", "local-1"),
    ),
    check("the service's own address as source passes if the node's is listed", () => vipAsSource(mode, network)),
    check("node ports on localhost, IPv4 only and only where the mode has them", () =>
      localhostNodePorts(network, mode),
    ),
    check("the node's localhost cannot be reached from outside", () => localhostFromOutside(network)),
    check(
      "the health-check node port counts ready local pods and answers 503 without one",
      () => healthCheck(network, "two-here", 200, 2),
      () => healthCheck(network, "none-here", 503, 0),
      () => healthCheck(network, "draining-here", 503, 0),
    ),
  ];
}

for (const mode of ALL_MODES) {
  test(`${mode}: endpoint choice, affinity and access`, { skip: kernelSkip, concurrency: true }, async (t) => {
    const network = await flowNetwork(t, mode, Object.values(services));
    await Promise.all(registerTests(t, network, mode));
  });
}
