/**
 * The simulation against the kernel: a random cluster is planned, loaded into a namespace, and packets are sent; each must meet one of
 * the fates that the trace gives it.
 */
import assert from "node:assert/strict";
import type { KubeProxyConfig } from "../../src/contract/config/config.ts";
import { type OfflineNode, offlineNode } from "../../src/contract/inspect/offline-node.ts";
import { checkedSettings } from "../../src/lib/plan-settings.ts";
import type { ClusterRecords } from "../../src/model/objects.ts";
import { ip, makeEndpointRecord, makeService, makeSlice } from "../../src/model/testing/records.ts";
import { planNftables } from "../../src/modes/nftables/cluster-plan.ts";
import type { LayoutName } from "../../src/modes/nftables/layout-name.ts";
import { modeNamed } from "../../src/modes/registry.ts";
import { type IpAddress, type IpFamily, parseIpAddress, specialAddress } from "../../src/net/ip.ts";
import { dumpsOf } from "../../src/tools/explain/planned-rules.ts";
import { classesOf } from "../../src/tools/prove/classes.ts";
import { rootClasses } from "../../src/tools/prove/proof.ts";
import { ruleFates } from "../../src/tools/prove/sides.ts";
import { deviceAddresses } from "../../src/trace/dump/device-addresses.ts";
import { programOfDumps } from "../../src/trace/dump/program.ts";
import type { Dump } from "../../src/trace/dump/recognise.ts";
import { type NodeFacts, nodeFacts } from "../../src/trace/facts.ts";
import { type Outcome, outcomesOf } from "../../src/trace/netfilter/tree.ts";
import { walk } from "../../src/trace/netfilter/walk.ts";
import { endText, newPacket, type PacketQuestion } from "../../src/trace/packet.ts";
import { fateText } from "../../src/trace/report/fate-text.ts";
import { seededRandom } from "../../src/trace/seeded-random.ts";
import { type LoadedRules, type Observed, PacketLab } from "../trace/packet-lab.ts";
import { NODE_NAME } from "./cluster-arbitrary.ts";
import { sampledCluster } from "./sampled-cluster.ts";

export const PACKETS_PER_CLUSTER = 30;
const SAMPLES = 300;
export interface Variant {
  readonly name: string;
  readonly mode: "nftables" | "iptables" | "userspace" | "ipvs";
  readonly layout: LayoutName;
}

export const PLACES = {
  IPv4: {
    node: ip("10.200.0.2"),
    pods: ["10.180.0.1", "10.180.0.2", "10.180.0.10", "10.180.0.250"].map(ip),
    outside: ["192.168.0.7", "198.18.0.9", "172.16.0.1", "10.180.1.1"].map(ip),
    other: ["10.96.0.1", "10.96.0.99", "198.51.100.1", "10.180.1.2"].map(ip),
    podCIDR: "10.180.0.0/16",
    serviceCIDR: "10.96.0.0/16",
  },
  IPv6: {
    node: ip("fd00:200::2"),
    pods: ["fd00:180::1", "fd00:180::2", "fd00:180::10", "fd00:180::250"].map(ip),
    outside: ["fd00:201::7", "2001:db8::9", "fd00:172::1", "fd00:180:1::1"].map(ip),
    other: ["fd00:96::1", "fd00:96::99", "2001:db8:1::1", "fd00:180:1::2"].map(ip),
    podCIDR: "fd00:180::/32",
    serviceCIDR: "fd00:96::/64",
  },
} as const;

/** Virtual servers are at addresses of the node, which rules need it to have. */
function factsOf(dumps: readonly Dump[]): NodeFacts {
  return nodeFacts({
    addresses: [PLACES.IPv4.node, PLACES.IPv6.node, ...deviceAddresses(dumps)],
    routes: [
      { cidr: "0.0.0.0/0", device: "out", address: PLACES.IPv4.node },
      { cidr: "::/0", device: "out", address: PLACES.IPv6.node },
    ],
  });
}

export function clusterOf(family: IpFamily, seed: number): ClusterRecords {
  const cluster = sampledCluster(family, seed, PLACES[family]);
  if (seed % 2 === 0) return cluster;
  return { ...cluster, serviceCIDRs: [{ name: "kubernetes", cidrs: [PLACES[family].serviceCIDR] }] };
}

export interface Planned {
  readonly dumps: readonly Dump[];
  readonly rules: LoadedRules;
  readonly node: OfflineNode;
  readonly config: KubeProxyConfig;
}

export async function planned(
  cluster: ClusterRecords,
  { mode, layout }: Variant,
  family: IpFamily,
  seed: number,
): Promise<Planned> {
  const { config } = await checkedSettings({
    config: {
      mode,
      detectLocalMode: seed % 3 === 2 ? "BridgeInterface" : "ClusterCIDR",
      clusterCIDR: PLACES[family].podCIDR,
      detectLocal: { bridgeInterface: "cni0" },
      iptables: { masqueradeAll: seed % 5 === 0 },
      nftables: { masqueradeAll: seed % 5 === 0, layout },
    },
    node: NODE_NAME,
  });
  const node = offlineNode(cluster, config, family, () => {});
  const { traceForms = [], loadRenderer } = modeNamed(mode);
  const renderer = await loadRenderer();
  const rendered = (form: string) => renderer(node, { config, form, service: undefined, missing: new Set(["nfacct"]) });
  const dumps = (await dumpsOf(traceForms, rendered)).map((dump) =>
    dump.kind === "iptables" ? { ...dump, family } : dump,
  );
  const plan = (rules: LoadedRules): Planned => ({ dumps, rules, node, config });
  if (mode === "ipvs") return plan({ kind: "ipvs", dumps });
  if (mode === "nftables") return plan(await sentByProgram(node, config));
  const saved = await rendered("iptables-save");
  return plan({ kind: "iptables-restore", text: saved.kind === "text" ? saved.text : "" });
}

/** What the program sends, and no tool: nft 1.0.6 cannot read every table that the kernel takes. */
async function sentByProgram(node: OfflineNode, config: KubeProxyConfig): Promise<LoadedRules> {
  return { kind: "netlink", plan: await planNftables(node, config) };
}

interface Destination {
  readonly destination: IpAddress;
  readonly destinationPort: number;
  readonly protocol: string;
}

/** Everything that services declare, and places that nothing declares. */
function destinationsOf({ services }: ClusterRecords, family: IpFamily): Destination[] {
  const { node, other } = PLACES[family];
  const isOfFamily = (address: IpAddress) => address.includes(":") === (family === "IPv6");
  const declared = services.flatMap(({ clusterIP, externalIPs, loadBalancerIngress, ports }) => {
    const texts = [clusterIP, ...externalIPs, ...loadBalancerIngress.map((ingress) => ingress.ip ?? "")];
    const addresses = texts.flatMap((text) => parseIpAddress(text) ?? []).filter(isOfFamily);
    return ports.flatMap(({ port, nodePort, protocol: word }): Destination[] => {
      const protocol = word.toLowerCase();
      if (protocol === "sctp") return [];
      const atAddresses = addresses.map((destination) => ({ destination, destinationPort: port, protocol }));
      return nodePort === 0
        ? atAddresses
        : [...atAddresses, { destination: node, destinationPort: nodePort, protocol }];
    });
  });
  const undeclared = [...other, node].map((destination) => ({ destination, destinationPort: 81, protocol: "udp" }));
  return [...declared, ...declared, ...undeclared];
}

/** Whether a packet's fate is what was seen of it. */
export function agrees({ fate, packet }: Outcome, observed: Observed): boolean {
  const isLed =
    observed.kind === "passed" &&
    observed.destination === packet.destination &&
    observed.port === packet.destinationPort &&
    observed.source === packet.source;
  // What the node sends to itself has a connection once it has left; of UDP, a socket that is not there refuses as a rule does.
  if (packet.inInterface === "lo") {
    const isRefused = observed.kind === "passed" && observed.isRefused;
    return isLed && fate.kind !== "uncertain" && (packet.protocol !== "tcp" || isRefused === (fate.kind === "refused"));
  }
  switch (fate.kind) {
    case "dropped":
      return observed.kind === "silence";
    case "refused":
      return observed.kind === "refused";
    case "uncertain":
      return false;
    default:
      return isLed;
  }
}

export const keyOf = ({ protocol, sourcePort }: PacketQuestion): string => `${protocol} ${sourcePort}`;

export function observedText(observed: Observed): string {
  if (observed.kind !== "passed") return observed.kind;
  return `passed to ${endText(observed.destination, observed.port)} from ${observed.source}`;
}

/** Sends packets at random to a random cluster. @returns how many. */
export async function compare(lab: PacketLab, variant: Variant, family: IpFamily, seed: number): Promise<number> {
  const cluster = clusterOf(family, seed);
  const random = seededRandom(seed);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T; // lists here are not empty
  const packets = Array.from({ length: PACKETS_PER_CLUSTER }, (): PacketQuestion => {
    return { family, sourcePort: lab.takePort(), ...pick(clientsOf(family)), ...pick(destinationsOf(cluster, family)) };
  });
  return await sendAll(lab, await planned(cluster, variant, family, seed), packets, seed);
}

/** Clients of the lab, those of the node twice. */
export function clientsOf(family: IpFamily) {
  const { node, pods, outside } = PLACES[family];
  return [
    ...pods.map((source) => ({ source, inInterface: "cni0" })),
    ...outside.map((source) => ({ source, inInterface: "eth0" })),
    { source: node, inInterface: "" },
    { source: node, inInterface: "" },
  ];
}

/** How an evaluator reads rules that does not understand something of them. */
export type Misreading = (text: string) => string;

/** The evaluator's own view of rules, with a fault in it. */
function misread({ dumps, rules, ...rest }: Planned, family: IpFamily, change: Misreading): Planned {
  const changed = dumps.map((dump): Dump => {
    if (dump.kind === "nftables") return { ...dump, objects: JSON.parse(change(JSON.stringify(dump.objects))) };
    if (dump.kind !== "iptables-tables" || rules.kind !== "iptables-restore") return dump;
    return { kind: "iptables", family, text: change(rules.text) };
  });
  return { ...rest, dumps: changed, rules };
}

/**
 * Sends one packet of each class of packets (src/tools/prove/) that a client of the lab can send.
 *
 * @param misreading a fault of the evaluator. @default none
 * @returns how many, of how many classes.
 */
export async function compareClasses(
  lab: PacketLab,
  variant: Variant,
  family: IpFamily,
  seed: number,
  misreading?: Misreading,
): Promise<{ readonly sent: number; readonly classes: number }> {
  const read = await planned(clusterOf(family, seed), variant, family, seed);
  const plan = misreading === undefined ? read : misread(read, family, misreading);
  const facts = factsOf(plan.dumps);
  const own = [PLACES[family].node, ip(family === "IPv4" ? "127.0.0.1" : "::1"), ...deviceAddresses(plan.dumps)];
  const packets: PacketQuestion[] = [];
  let classes = 0;
  const subject = ruleFates(plan.dumps, family, facts);
  for (const { packets: all, example } of classesOf(family, rootClasses(family, own), [subject])) {
    classes += 1;
    const { destinationPort, protocol } = example;
    const destination = PLACES[family].other.find((address) => all.destination.has(address)) ?? example.destination;
    const client = clientsOf(family).find(
      ({ source, inInterface }) => all.source.has(source) && all.inInterface.has(inInterface),
    );
    const isSendable = (protocol === "tcp" || protocol === "udp") && isUnicast(destination) && destinationPort !== 0;
    if (client === undefined || !isSendable) continue;
    packets.push({ family, sourcePort: lab.takePort(), ...client, destination, destinationPort, protocol });
  }
  return { sent: await sendAll(lab, plan, packets, seed), classes };
}

/** Whether a packet can be sent there, and by way of the node: not to this machine, and to no group. */
export function isUnicast(address: IpAddress): boolean {
  return specialAddress(address) === undefined && !/^(?:0|24\d|25[0-5])\.|^(?:::|fe)/.test(address);
}

/** Each must meet a fate that its trace has. @returns how many. */
async function sendAll(
  lab: PacketLab,
  { dumps, rules }: Pick<Planned, "dumps" | "rules">,
  packets: readonly PacketQuestion[],
  seed: number,
): Promise<number> {
  const family = packets[0]?.family ?? "IPv4";
  await lab.load(rules, family);
  const facts = factsOf(dumps);
  const traced = programOfDumps(dumps, { family, facts, knowsClients: true, knowsDynamicSets: true });
  const outcomesFor = (packet: PacketQuestion) => [
    ...outcomesOf(walk(traced.program, newPacket(packet), facts, { record: "ends" })),
  ];
  const silent = packets.filter((packet) => outcomesFor(packet).every(({ fate }) => fate.kind === "dropped"));
  const silentKeys = new Set(silent.map(keyOf));
  for (const packet of packets) lab.send(packet);
  const observed = await lab.observed((key) => silentKeys.has(key));
  for (const packet of packets) {
    const seen = observed.get(keyOf(packet)) ?? { kind: "silence" };
    const outcomes = outcomesFor(packet);
    const met = outcomes.find((outcome) => agrees(outcome, seen));
    const to = `${packet.source} "${packet.inInterface}" to ${endText(packet.destination, packet.destinationPort)}`;
    const possible = outcomes.map((outcome) => fateText(outcome)).join("\n  ");
    assert.ok(met, `seed ${seed}: ${packet.protocol} ${to}: ${observedText(seen)}, not one of\n  ${possible}`);
    for (const entry of met.entries) traced.remember(entry);
  }
  return packets.length;
}

/** One service with so many endpoints, and how often each of them is chosen. */
export async function shares(lab: PacketLab, variant: Variant, endpoints: number): Promise<void> {
  const family = "IPv4";
  const { node, pods } = PLACES[family];
  const slice = makeSlice({
    endpoints: Array.from({ length: endpoints }, (_, index) => makeEndpointRecord(`10.180.2.${index + 1}`)),
  });
  const service = makeService({ clusterIP: "10.96.0.1", clusterIPs: ["10.96.0.1"] });
  const cluster: ClusterRecords = { ...clusterOf(family, 0), services: [service], endpointSlices: [slice] };
  const { dumps, rules } = await planned(cluster, variant, family, 0);
  await lab.load(rules, family);
  const [pod = node] = pods;
  const ends = { source: pod, destination: ip("10.96.0.1"), destinationPort: 80, inInterface: "cni0" };
  const ask = (): PacketQuestion => ({ family, protocol: "tcp", sourcePort: lab.takePort(), ...ends });
  for (let count = 0; count < SAMPLES; count += 1) lab.send(ask());
  const chosen = new Map<string, number>();
  for (const seen of (await lab.observed(() => false)).values()) {
    const target = observedText(seen);
    chosen.set(target, (chosen.get(target) ?? 0) + 1);
  }
  const facts = factsOf(dumps);
  const { program } = programOfDumps(dumps, { family, facts, knowsClients: true, knowsDynamicSets: true });
  const outcomes = [...outcomesOf(walk(program, newPacket(ask()), facts, { record: "ends" }))];
  assert.equal(outcomes.length, endpoints);
  for (const { odds, packet } of outcomes) {
    const target = `passed to ${endText(packet.destination, packet.destinationPort)} from ${packet.source}`;
    const [expected, deviation] = [SAMPLES * odds, Math.sqrt(SAMPLES * odds * (1 - odds))];
    const count = chosen.get(target) ?? 0;
    // Five standard deviations: one run in a million.
    assert.ok(Math.abs(count - expected) <= 5 * deviation, `${target}: ${count} of ${SAMPLES}, odds ${odds}`);
  }
}

/** A node and machines for the packets. */
export function traceLab(): Promise<PacketLab> {
  const { IPv4, IPv6 } = PLACES;
  return PacketLab.create({
    node: [IPv4.node, IPv6.node],
    pods: [...IPv4.pods, ...IPv6.pods],
    outside: [...IPv4.outside, ...IPv6.outside],
  });
}
