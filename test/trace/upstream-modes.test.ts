/**
 * Upstream's dumps of one cluster in two modes, walked with the same packets: iptables and nftables must do the same with
 * each, but for the differences that upstream documents and reference nftables.md lists.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isObject, listOf, textOf } from "../../src/kernel/nftables/json.ts";
import { type IpAddress, type IpFamily, parseIpAddress } from "../../src/net/ip.ts";
import { programOfDumps } from "../../src/trace/dump/program.ts";
import { nodeFacts } from "../../src/trace/facts.ts";
import type { Program } from "../../src/trace/netfilter/program.ts";
import { type Outcome, outcomesOf } from "../../src/trace/netfilter/tree.ts";
import { walk } from "../../src/trace/netfilter/walk.ts";
import { endText, newPacket, type PacketQuestion } from "../../src/trace/packet.ts";
import { caseFile, caseNames, caseState } from "../conformance/conformance-case.ts";

const PLACES = {
  IPv4: { pod: "10.180.0.9", outside: "198.51.100.3" },
  IPv6: { pod: "fd00:10:180::9", outside: "2001:db8::3" },
} as const;

function at(value: unknown, ...path: readonly string[]): unknown {
  return path.reduce<unknown>((inner, name) => (isObject(inner) ? inner[name] : undefined), value);
}

function addressesOf(family: IpFamily, values: readonly unknown[]): IpAddress[] {
  const found = values.map((value) => parseIpAddress(textOf(value) ?? ""));
  return found.flatMap((ip) => (ip !== undefined && ip.includes(":") === (family === "IPv6") ? [ip] : []));
}

interface Destination {
  readonly address: IpAddress;
  readonly port: number;
  readonly protocol: string;
}

function destinationsOf(services: readonly unknown[], family: IpFamily, nodeIPs: readonly IpAddress[]): Destination[] {
  return services.flatMap((service) => {
    const ingress = listOf(at(service, "status", "loadBalancer", "ingress")).map((one) => at(one, "ip"));
    const texts = [
      ...listOf(at(service, "spec", "clusterIPs")),
      ...listOf(at(service, "spec", "externalIPs")),
      ...ingress,
    ];
    const addresses = addressesOf(family, texts);
    return listOf(at(service, "spec", "ports")).flatMap((port) => {
      const protocol = (textOf(at(port, "protocol")) ?? "TCP").toLowerCase();
      const nodePort = at(port, "nodePort");
      return [
        ...addresses.map((address) => ({ address, port: Number(at(port, "port")), protocol })),
        ...(nodePort === undefined ? [] : nodeIPs.map((address) => ({ address, port: Number(nodePort), protocol }))),
      ];
    });
  });
}

function outcomesIn(program: Program, packet: PacketQuestion, facts: ReturnType<typeof nodeFacts>): Outcome[] {
  return [...outcomesOf(walk(program, newPacket(packet), facts, { record: "ends" }))];
}

/** Fates with their odds, sorted; the same endpoint from several rules counts once. */
function summaryOf(outcomes: readonly Outcome[], showsSource: boolean): string {
  const odds = new Map<string, number>();
  for (const { odds: share, fate, packet } of outcomes) {
    const isGone = fate.kind !== "sent" && fate.kind !== "delivered";
    const source = packet.isMasqueraded && showsSource ? " masqueraded" : "";
    const text = isGone ? fate.kind : `${fate.kind} ${endText(packet.destination, packet.destinationPort)}${source}`;
    odds.set(text, (odds.get(text) ?? 0) + share);
  }
  // iptables keeps ten digits of a probability.
  return [...odds]
    .map(([text, share]) => `${text} ${share.toFixed(6)}`)
    .sort()
    .join("\n");
}

/** Why the two may differ; undefined when they may not. */
function knownDifference(packet: PacketQuestion, iptables: readonly Outcome[], nftables: readonly Outcome[]) {
  const [byIptables] = iptables;
  const [byNftables] = nftables;
  const goesOn =
    iptables.length === 1 && byIptables?.fate.kind === "sent" && byIptables.packet.destination === packet.destination;
  const { fate } = byNftables ?? {};
  if (goesOn && fate?.kind === "dropped" && fate.by.includes("Drop traffic to unallocated ClusterIPs"))
    return "unallocated";
  // KUBE-EXTERNAL-SERVICES is not asked for packets of the node itself.
  if (goesOn && packet.inInterface === "" && (fate?.kind === "refused" || fate?.kind === "dropped"))
    return "from the node";
  // Refusals of node ports match every local address in iptables mode: `nodePortAddresses` does not limit them (reference iptables.md §7).
  const goesOnByNftables =
    nftables.length === 1 && fate?.kind === "delivered" && byNftables?.packet.destination === packet.destination;
  const refusal = byIptables === undefined || !("by" in byIptables.fate) ? "" : byIptables.fate.by;
  if (goesOnByNftables && refusal.includes("KUBE-EXTERNAL-SERVICES") && refusal.includes("--dst-type LOCAL"))
    return "nodePortAddresses";
  if (byIptables?.fate.kind === "refused" && fate?.kind === "dropped" && fate.by.includes(" firewall-"))
    return "source ranges";
  if (summaryOf(iptables, false) === summaryOf(nftables, false)) {
    const differing = iptables.filter(({ packet: end }) => end.isMasqueraded);
    // A pod of another node that reaches itself here: iptables masquerades it as well.
    if (differing.every(({ packet: end }) => end.destination === packet.source)) return "hairpin elsewhere";
  }
  return undefined;
}

for (const name of caseNames()) {
  test(name, () => {
    const { node, services, slices } = caseState(name);
    const nftables = listOf(JSON.parse(caseFile(name, "nftables/nft.json")).nftables);
    let compared = 0;
    for (const family of ["IPv4", "IPv6"] as const) {
      const nodeIPs = addressesOf(
        family,
        listOf(at(node, "status", "addresses")).map((one) => at(one, "address")),
      );
      const facts = nodeFacts({ addresses: nodeIPs });
      const common = { family, facts, knowsClients: true, knowsDynamicSets: true };
      const saved = caseFile(name, family === "IPv4" ? "iptables/iptables.txt" : "iptables/ip6tables.txt");
      const programs = [
        programOfDumps([{ kind: "iptables", family, text: saved }], common).program,
        programOfDumps([{ kind: "nftables", objects: nftables }], common).program,
      ] as const;
      const endpoints = addressesOf(
        family,
        slices.flatMap((slice) => listOf(at(slice, "endpoints")).flatMap((one) => listOf(at(one, "addresses")))),
      );
      const clients = [
        { source: PLACES[family].pod, inInterface: "cni0" },
        { source: endpoints[0], inInterface: "cni0" },
        { source: PLACES[family].outside, inInterface: "eth0" },
        { source: nodeIPs[0], inInterface: "" },
      ];
      for (const { address, port, protocol } of destinationsOf(services, family, nodeIPs)) {
        for (const { source: text, inInterface } of clients) {
          const source = parseIpAddress(text ?? "");
          if (source === undefined) continue;
          const ends = { source, sourcePort: 40_000, destination: address, destinationPort: port };
          const packet: PacketQuestion = { family, protocol, inInterface, ...ends };
          const [byIptables, byNftables] = [
            outcomesIn(programs[0], packet, facts),
            outcomesIn(programs[1], packet, facts),
          ];
          compared += 1;
          const [one, other] = [summaryOf(byIptables, true), summaryOf(byNftables, true)];
          if (one === other || knownDifference(packet, byIptables, byNftables) !== undefined) continue;
          assert.equal(one, other, `${source} to ${endText(address, port)}/${protocol} from "${inInterface}"`);
        }
      }
    }
    assert.ok(compared > 0);
  });
}
