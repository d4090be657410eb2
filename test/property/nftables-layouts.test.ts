/**
 * Both layouts of the nftables mode treat the same packet the same, with the same odds, in any cluster: 10,000 pairs of
 * a cluster and a packet in a simulation of the backend's tables (`src/trace/nftables/`). Remembered clients are
 * excluded: docs/differences.md.
 *
 * `KPTS_LAYOUT_PAIRS` sets how many pairs are tried (per family), `KPTS_PROPERTY_SEED` repeats a run.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { tableOf } from "../../src/kernel/nftables/ruleset-table.ts";
import { declaredFrontends } from "../../src/model/frontend.ts";
import { ip, makeEndpointRecord, makeSlice } from "../../src/model/testing/records.ts";
import { LAYOUT_NAMES } from "../../src/modes/nftables/layout-name.ts";
import type { IpFamily } from "../../src/net/ip.ts";
import { PROTOCOL_NAMES, protocolName } from "../../src/net/protocol.ts";
import { nodeFacts } from "../../src/trace/facts.ts";
import type { Outcome } from "../../src/trace/netfilter/tree.ts";
import { endText, type PacketQuestion } from "../../src/trace/packet.ts";
import { simulateTable } from "../../src/trace/testing/simulate.ts";
import fc, { historyRuns } from "../../testkit/support/fast-check.ts";
import { stepArbitrary } from "./cluster-arbitrary.ts";
import { NftablesHistory } from "./nftables-history.ts";

const PACKETS = 50;
const CLUSTERS = Math.ceil(historyRuns("KPTS_LAYOUT_PAIRS", 5_000) / PACKETS);
const NODE_ADDRESS = { IPv4: ip("10.200.0.2"), IPv6: ip("fd00:200::2") };
const OTHERS = {
  IPv4: ["10.200.0.9", "192.0.2.7", "198.51.100.9", "10.96.200.1", "127.0.0.1"].map(ip),
  IPv6: ["fd00:200::9", "2001:db8::7", "fd00:96::200", "::1"].map(ip),
};

interface Choices {
  readonly source: number;
  readonly destination: number;
  readonly port: number;
  /** Whether the destination may not exist. */
  readonly isStray: boolean;
  readonly from: "pod" | "node" | "outside";
}

const choices: fc.Arbitrary<Choices> = fc.record({
  source: fc.nat(),
  destination: fc.nat(),
  port: fc.nat(),
  isStray: fc.integer({ min: 0, max: 4 }).map((number) => number === 0),
  from: fc.constantFrom("pod", "node", "outside"),
});

const PODS = {
  IPv4: ["10.180.0.1", "10.180.0.2", "10.180.1.1"],
  IPv6: ["fd00:180::1", "fd00:180::2", "fd00:180:1::1"],
} as const;

/** Gives every second service port up to three more ready endpoints: random slices seldom have a Service's port. */
function serveSome(history: NftablesHistory, family: IpFamily): void {
  for (const [index, { name, protocol }] of [...history.state.services.values()].entries()) {
    if (index % 2 === 1) continue;
    const object = makeSlice({
      namespace: name.namespace,
      name: `${name.name}-served-${index}`,
      serviceName: name.name,
      addressType: family,
      ports: [{ name: name.port, protocol, port: 8080 }],
      endpoints: PODS[family]
        .slice(index % 3)
        .map((address) => makeEndpointRecord(address, { ready: true, serving: true })),
    });
    history.apply({ kind: "write-slice", object });
  }
}

/** A packet between addresses and ports that exist in the cluster. */
function packetOf({ state }: NftablesHistory, family: IpFamily, chosen: Choices): PacketQuestion {
  const services = [...state.services.values()];
  const endpoints = [...state.endpoints.values()].flat();
  const pick = <T>(list: readonly T[], index: number, otherwise: T): T => list[index % list.length] ?? otherwise;
  const own = NODE_ADDRESS[family];
  const sources = [own, ...OTHERS[family], ...endpoints.map((endpoint) => endpoint.ip)];
  const served = services.filter(({ name }) => state.endpoints.has(name.key));
  const service = pick(served.length > 0 ? served : services, chosen.destination, undefined);
  const frontends = service === undefined ? [] : declaredFrontends(service);
  const frontend = pick(frontends, chosen.destination >> 8, undefined);
  const isNode = chosen.from === "node";
  return {
    family,
    protocol: chosen.isStray ? pick(PROTOCOL_NAMES, chosen.port, "tcp") : protocolName(service?.protocol ?? "TCP"),
    source: isNode ? own : pick(sources, chosen.source, own),
    sourcePort: 40_000,
    destination: frontend?.address ?? (chosen.isStray ? pick(OTHERS[family], chosen.port, own) : own),
    destinationPort: chosen.isStray ? pick([53, 80, 8080, 30080], chosen.port >> 4, 80) : (frontend?.port ?? 80),
    inInterface: isNode ? "" : chosen.from === "pod" ? "cni0" : "eth0",
  };
}

/** The distinct outcomes of a packet, each with the sum of its odds in parts of 10,000. */
function fates(outcomes: readonly Outcome[]): Record<string, number> {
  const sums = new Map<string, number>();
  for (const { odds, fate, packet, assumptions } of outcomes) {
    const to = endText(packet.destination, packet.destinationPort);
    const { kind } = fate;
    const what = [kind, to, packet.isMasqueraded ? "masqueraded" : "", `mark ${packet.mark}`, ...assumptions].join(" ");
    sums.set(what, (sums.get(what) ?? 0) + odds);
  }
  return Object.fromEntries([...sums].sort().map(([what, odds]) => [what, Math.round(odds * 10_000)]));
}

async function simulationsOf(history: NftablesHistory, family: IpFamily) {
  const addresses = [NODE_ADDRESS[family]];
  const facts = nodeFacts({ addresses });
  const simulations = [];
  for (const layout of LAYOUT_NAMES) {
    history.rig.layout = layout;
    const { transactions } = await history.rig.fromNothing();
    const table = tableOf(family === "IPv4" ? "ip" : "ip6", "kube-proxy", transactions.flat());
    simulations.push(simulateTable(table, facts));
  }
  return simulations;
}

for (const family of ["IPv4", "IPv6"] as const) {
  test(`${family}: both layouts do the same with the same packet`, async () => {
    const steps = fc.array(stepArbitrary(family), { minLength: 30, maxLength: 80, size: "max" });
    const packets = fc.array(choices, { minLength: PACKETS, maxLength: PACKETS, size: "max" });
    let served = 0;
    await fc.assert(
      fc.asyncProperty(steps, packets, async (happenings, chosen) => {
        const history = new NftablesHistory(family);
        history.rig.node.nodePortIPs = { kind: "ips", ips: [NODE_ADDRESS[family]] };
        for (const step of happenings) if (step.kind !== "sync") history.apply(step);
        await history.sync(true);
        serveSome(history, family);
        await history.sync(true);
        const simulations = await simulationsOf(history, family);
        history.rig.close();
        for (const one of chosen) {
          const packet = packetOf(history, family, one);
          const [expected, found] = simulations.map((simulation) => fates(simulation.outcomes(packet)));
          assert.deepEqual(found, expected, JSON.stringify(packet));
          if (Object.keys(found ?? {}).some((what) => !what.includes(packet.destination))) served += 1;
        }
      }),
      { numRuns: CLUSTERS },
    );
    assert.ok(served > (CLUSTERS * PACKETS) / 4, `only ${served} packets met an endpoint`);
  });
}
