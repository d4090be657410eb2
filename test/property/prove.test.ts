/**
 * What `prove` says: every mode does with all packets of a random cluster what Services mean, and so do the rules that upstream
 * has left in a kernel. `KPTS_PROVE_RUNS` sets how many states are tried per family.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { projectObjects } from "../../src/agent/cluster/manifests/read-manifests.ts";
import { ip, makeEndpointRecord, makeService, makeSlice } from "../../src/model/testing/records.ts";
import { familyOf, IP_FAMILIES, type IpAddress, type IpFamily, parseIpAddress } from "../../src/net/ip.ts";
import { classesOf } from "../../src/tools/prove/classes.ts";
import { fateText } from "../../src/tools/prove/fate.ts";
import { rootClasses } from "../../src/tools/prove/proof.ts";
import { rulesSide } from "../../src/tools/prove/sides.ts";
import { type Dump, recogniseDumps } from "../../src/trace/dump/recognise.ts";
import { newPacket } from "../../src/trace/packet.ts";
import { PACKET_FIELDS } from "../../src/trace/question.ts";
import { seededRandom } from "../../src/trace/seeded-random.ts";
import { historyRuns } from "../../testkit/support/fast-check.ts";
import { prove } from "../../testkit/support/prove.ts";
import { caseFile, caseNames, caseState, SERVICE_CIDR_OBJECT } from "../conformance/conformance-case.ts";
import { NODE_NAME } from "./cluster-arbitrary.ts";
import { clusterFor, PLACES, settingsFor } from "./prove-states.ts";
import { differencesIn, provedAgainst, provedCluster, VARIANTS, type Variant } from "./prove-support.ts";

/** One Service's endpoints are more than a thousand kinds of clients, which takes minutes: in `test:all` only. */
const SLOW = process.env.KPTS_PROPERTY_SCALE === undefined ? /more-than-1000/ : /(?!)/;
/** Of each family: 300 states; in `test:all`, 10,000. */
const RUNS = historyRuns("KPTS_PROVE_RUNS", process.env.KPTS_PROPERTY_SCALE === undefined ? 150 : 500);
const FIRST = Number(process.env.KPTS_PROPERTY_SEED ?? Date.now() % 1_000_000);
for (const family of IP_FAMILIES) {
  test(`${RUNS} states, ${family}: in every mode all packets meet what Services mean`, async (t) => {
    let classes = 0;
    for (let seed = FIRST; seed < FIRST + RUNS; seed += 1) {
      const cluster = clusterFor(family, seed);
      for (const variant of VARIANTS) {
        const proved = await provedCluster(variant, cluster, family, settingsFor(family, seed), NODE_NAME);
        const proof = provedAgainst(proved, proved.dumps);
        assert.deepEqual(differencesIn(proof), [], `${variant.name}, KPTS_PROPERTY_SEED=${seed}`);
        classes += proof.classes;
      }
    }
    t.diagnostic(`${classes} classes of packets in ${VARIANTS.length} modes`);
  });
}

function variantNamed(name: string): Variant {
  const found = VARIANTS.find((variant) => variant.name === name);
  assert.ok(found);
  return found;
}

test("both layouts of the nftables mode do the same with all packets", async () => {
  for (const family of IP_FAMILIES) {
    for (let seed = FIRST; seed < FIRST + RUNS; seed += 1) {
      const sides = [];
      for (const name of ["nftables", "flat"]) {
        const settings = settingsFor(family, seed);
        const { dumps, node } = await provedCluster(
          variantNamed(name),
          clusterFor(family, seed),
          family,
          settings,
          NODE_NAME,
        );
        sides.push(rulesSide(name, dumps, family, node.hostAddresses));
      }
      const [one, other] = sides;
      assert.ok(one && other);
      const own = [PLACES[family].node, ip(family === "IPv4" ? "127.0.0.1" : "::1")];
      assert.deepEqual(differencesIn(prove(family, own, [one, other])), [], `KPTS_PROPERTY_SEED=${seed}`);
    }
  }
});

test("many endpoints have equal shares in every mode, or nearly so as documented; a share that is gone is found", async () => {
  const family = "IPv4";
  const addresses = Array.from({ length: 100 }, (_, index) => `10.180.1.${index + 1}`);
  const slice = makeSlice({ endpoints: addresses.map((address) => makeEndpointRecord(address)) });
  const service = makeService({ clusterIP: "10.96.0.1", clusterIPs: ["10.96.0.1"] });
  const cluster = { ...clusterFor(family, 0), services: [service], endpointSlices: [slice] };
  const fewer = { ...cluster, endpointSlices: [{ ...slice, endpoints: slice.endpoints.slice(1) }] };
  for (const variant of VARIANTS) {
    const proved = await provedCluster(variant, cluster, family, {}, NODE_NAME);
    assert.deepEqual(differencesIn(provedAgainst(proved, proved.dumps)), [], variant.name);
    const { dumps } = await provedCluster(variant, fewer, family, {}, NODE_NAME);
    assert.ok(provedAgainst(proved, dumps, 1).differing > 0, variant.name);
  }
});

test("of a Service with a hash, when a table of slots is full: no client gets past it", async () => {
  const ports = [{ name: "p", protocol: "TCP" as const, port: 80, nodePort: 0 }];
  const service = makeService({
    clusterIP: ip("10.96.0.1"),
    clusterIPs: [ip("10.96.0.1")],
    ports,
    balancing: "SourceHash",
  });
  // One table has 8 slots.
  const endpoints = Array.from({ length: 9 }, (_, at) => makeEndpointRecord(`10.180.1.${at + 1}`));
  const cluster = { ...clusterFor("IPv4", 0), services: [service], endpointSlices: [makeSlice({ endpoints })] };
  const proved = await provedCluster(variantNamed("flat"), cluster, "IPv4", {}, NODE_NAME);
  assert.deepEqual(differencesIn(provedAgainst(proved, proved.dumps)), []);
});

test("in ebpf mode, a Service's port at the node's own address goes before a node port of its number", async () => {
  const ingress = { loadBalancerIngress: [{ ip: PLACES.IPv4.node, ipMode: "VIP" as const }] };
  const restricted = { loadBalancerSourceRanges: ["198.51.100.0/24"], ...ingress };
  const parts: readonly [string, IpAddress, number, number, Parameters<typeof makeService>[0]][] = [
    ["balancer", ip("10.96.0.1"), 30_081, 30_081, { type: "LoadBalancer", ...restricted }],
    ["node-port", ip("10.96.0.2"), 80, 30_080, { type: "NodePort" }],
    ["external", ip("10.96.0.3"), 30_080, 0, { externalIPs: [PLACES.IPv4.node] }],
  ];
  const services = parts.map(([name, clusterIP, port, nodePort, more]) => {
    const ports = [{ name: "p", protocol: "TCP" as const, port, nodePort }];
    return makeService({ name, clusterIP, clusterIPs: [clusterIP], ports, ...more });
  });
  const endpointSlices = parts.map(([name], at) =>
    makeSlice({ name, serviceName: name, endpoints: [makeEndpointRecord(`10.180.1.${at + 1}`)] }),
  );
  const cluster = { ...clusterFor("IPv4", 0), services, endpointSlices };
  const proved = await provedCluster(variantNamed("ebpf"), cluster, "IPv4", {}, NODE_NAME);
  assert.deepEqual(differencesIn(provedAgainst(proved, proved.dumps)), []);
});

const WEB = { name: "p", protocol: "TCP", port: 80, nodePort: 0 } as const;

test("a node has an endpoint itself, behind a cluster IP and a node port: default/kubernetes, an ingress on the host's network", async () => {
  for (const family of IP_FAMILIES) {
    const { node, podCIDR } = PLACES[family];
    const clusterIP = family === "IPv4" ? "10.96.0.1" : "fd00:96::1";
    const ports = [{ ...WEB, nodePort: 30_080 }];
    const own = { clusterIP, clusterIPs: [clusterIP], ipFamilies: [family] };
    const endpoints = [makeEndpointRecord(node, { nodeName: NODE_NAME })];
    const endpointSlices = [makeSlice({ addressType: family, endpoints })];
    for (const service of [makeService(own), makeService({ ...own, type: "NodePort", ports })]) {
      const cluster = { ...clusterFor(family, 1), services: [service], endpointSlices };
      for (const variant of VARIANTS) {
        const proved = await provedCluster(variant, cluster, family, { clusterCIDR: podCIDR }, NODE_NAME);
        assert.deepEqual(differencesIn(provedAgainst(proved, proved.dumps)), [], variant.name);
      }
    }
  }
});

test("of two Services with one external IP the first by name answers, also where one name begins with the other", async () => {
  const names = ["web", "web2", "web-3"];
  const services = names.map((name, at) => {
    const clusterIP = `10.96.0.${at + 1}`;
    return makeService({ name, clusterIP, clusterIPs: [clusterIP], ports: [WEB], externalIPs: [ip("203.0.113.1")] });
  });
  const slices = names.map((name, at) => {
    const endpoints = [makeEndpointRecord(`10.180.1.${at + 1}`)];
    return makeSlice({ name, serviceName: name, ports: [{ name: "", protocol: "TCP", port: 8080 }], endpoints });
  });
  for (const [one, other] of [
    [0, 1],
    [0, 2],
    [1, 2],
  ] as const) {
    const endpointSlices = [slices[one], slices[other]].filter((slice) => slice !== undefined);
    const pair = [services[one], services[other]].filter((service) => service !== undefined);
    const cluster = { ...clusterFor("IPv4", 0), services: pair, endpointSlices };
    const proved = await provedCluster(variantNamed("nftables"), cluster, "IPv4", {}, NODE_NAME);
    assert.deepEqual(differencesIn(provedAgainst(proved, proved.dumps)), [], `${names[one]} and ${names[other]}`);
  }
});

test("source ranges at an address of the node, with a port that is a node port's number, its own or another Service's", async () => {
  const restricted = {
    type: "LoadBalancer",
    loadBalancerIngress: [{ ip: PLACES.IPv4.node, ipMode: "VIP" }],
    loadBalancerSourceRanges: ["203.0.113.0/24"],
  } as const;
  const balancerAt = (nodePort: number) => makeService({ ...restricted, ports: [{ ...WEB, port: 30_080, nodePort }] });
  const address = { clusterIP: "10.96.0.2", clusterIPs: ["10.96.0.2"], ports: [{ ...WEB, nodePort: 30_080 }] };
  for (const externalTrafficPolicy of ["Cluster", "Local"] as const) {
    const other = makeService({ ...address, name: "other", type: "NodePort", externalTrafficPolicy });
    const own = { ...balancerAt(30_080), externalTrafficPolicy };
    for (const services of [[own], [balancerAt(30_081), other]]) {
      for (const isServed of [true, false]) {
        const slices = services.map(({ name }, at) => {
          const endpoint = makeEndpointRecord(`10.180.1.${at + 1}`, { ready: isServed, serving: isServed });
          return makeSlice({ name, serviceName: name, endpoints: [endpoint] });
        });
        const cluster = { ...clusterFor("IPv4", 1), services, endpointSlices: slices };
        for (const variant of VARIANTS) {
          const proved = await provedCluster(variant, cluster, "IPv4", {}, NODE_NAME);
          const told = `${variant.name} ${externalTrafficPolicy} ${services.length} ${isServed}`;
          assert.deepEqual(differencesIn(provedAgainst(proved, proved.dumps)), [], told);
        }
      }
    }
  }
});

test("ipvs: a port of a Service that is a node port's number, at each kind of address", async () => {
  const loadBalancerIngress = [{ ip: "203.0.113.1", ipMode: "VIP" }] as const;
  const ports = [{ ...WEB, port: 30_080, nodePort: 30_080 }];
  const named = makeService({ type: "NodePort", clusterIP: "10.96.0.9", clusterIPs: ["10.96.0.9"], ports });
  const kinds = [
    { externalTrafficPolicy: "Local", type: "LoadBalancer", loadBalancerIngress },
    { externalIPs: ["198.51.100.1", "10.96.0.1"] },
    { externalIPs: ["203.0.113.1"], externalTrafficPolicy: "Local", type: "LoadBalancer", loadBalancerIngress },
  ] as const;
  for (const kind of kinds) {
    const other = { clusterIP: "10.96.0.1", clusterIPs: ["10.96.0.1"], name: "other" };
    const service = makeService({ ...other, ports: [{ ...WEB, port: 30_080 }], ...kind });
    const endpoints = [makeEndpointRecord("10.180.7.7", { nodeName: NODE_NAME })];
    const endpointSlices = [named, service].map(({ name }) => makeSlice({ name, serviceName: name, endpoints }));
    const cluster = { ...clusterFor("IPv4", 1), services: [named, service], endpointSlices };
    const proved = await provedCluster(variantNamed("ipvs"), cluster, "IPv4", {}, NODE_NAME);
    assert.deepEqual(differencesIn(provedAgainst(proved, proved.dumps)), [], JSON.stringify(kind));
  }
});

/** What upstream left, as its tools have listed it. */
const LISTED = {
  nftables: (name: string): Dump[] => recogniseDumps(caseFile(name, "nftables/nft.json"), name),
  iptables: (name: string, family: IpFamily): Dump[] =>
    recogniseDumps(caseFile(name, family === "IPv4" ? "iptables/iptables.txt" : "iptables/ip6tables.txt"), name),
} as const;

describe("what upstream left in a kernel does with all packets what Services mean", () => {
  for (const name of caseNames()) {
    for (const [mode, list] of Object.entries(LISTED)) {
      if ((mode === "iptables" || name.startsWith("v1.36")) && SLOW.test(name)) continue;
      test(`${name}, ${mode}`, async (t) => {
        let config: object;
        try {
          config = JSON.parse(caseFile(name, `${mode}/config.yaml`));
        } catch {
          t.skip("no case of this mode");
          return;
        }
        const { services, slices, node } = caseState(name);
        const objects = [...services, ...slices, node, SERVICE_CIDR_OBJECT];
        const cluster = projectObjects(objects);
        for (const family of IP_FAMILIES) {
          const proved = await provedCluster(variantNamed(mode), cluster, family, config, "node-a");
          // Sockets of the proxy are in no dump.
          const sockets = proved.dumps.filter(({ kind }) => kind === "chains");
          assert.deepEqual(differencesIn(provedAgainst(proved, [...list(name, family), ...sockets])), [], family);
        }
      });
    }
  }
});

/** Of each mode and family; in `test:all`, more than a million in all. */
const PACKETS = historyRuns("KPTS_PROVE_PACKETS", 10_000);
const PACKETS_PER_STATE = 500;
/** Those that are compared soonest first. */
const FIELDS = PACKET_FIELDS.toReversed();

describe(`${PACKETS} packets do what the example of their class does, and each is in one class`, () => {
  for (const family of IP_FAMILIES) {
    for (const variant of VARIANTS) {
      test(`${variant.name}, ${family}`, async () => {
        for (let seed = FIRST; (seed - FIRST) * PACKETS_PER_STATE < PACKETS; seed += 1)
          await packetsMeetTheirClasses(variant, family, seed);
      });
    }
  }
});

async function packetsMeetTheirClasses(variant: Variant, family: IpFamily, seed: number): Promise<void> {
  const random = seededRandom(seed);
  const cluster = clusterFor(family, seed);
  const proved = await provedCluster(variant, cluster, family, settingsFor(family, seed), NODE_NAME);
  const rules = rulesSide(variant.name, proved.dumps, family, proved.node.hostAddresses);
  const own = [...new Set([...proved.node.hostAddresses, ...(rules.addresses ?? [])])];
  // One alone: what divides packets for the other must not hide what this one forgets.
  const subject = seed % 4 === 0 ? proved.specification.fates : rules.fates;
  const classes = [...classesOf(family, rootClasses(family, own, rules.hasSocketStage), [subject])];
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T; // no list here is empty
  const { addresses, ports } = literalsOf(cluster, family);
  const nextTo = (address: IpAddress) => ip(address.replace(/[\da-f]+$/, (1 + Math.floor(random() * 98)).toString()));
  const changed = <T>(value: T, others: readonly T[], beside: (value: T) => T): T => {
    if (random() < 0.6) return value;
    const one = others.length === 0 || random() < 0.3 ? value : pick(others);
    return random() < 0.1 ? beside(one) : one;
  };
  let found = 0;
  for (let count = 0; count < PACKETS_PER_STATE; count += 1) {
    // An example, of which some fields are another's, are what the objects have, or are beside that.
    const { example } = pick(classes);
    const [sender, target] = [random() < 0.6 ? example : pick(classes).example, pick(classes).example];
    const packet = newPacket({
      ...{ family, inInterface: sender.inInterface, bridgePort: sender.bridgePort ?? "", origin: sender.origin },
      source: changed(sender.source, addresses, nextTo),
      sourcePort: Math.floor(random() * 65_536),
      udpLength: 9,
      destination: changed(example.destination, [target.destination, ...addresses], nextTo),
      destinationPort: changed(example.destinationPort ?? 0, ports, (port) => (port + 1) % 65_536),
      protocol: changed(example.protocol, ["tcp", "udp", target.protocol], (protocol) => protocol),
    });
    const members = classes.filter(({ packets, example: one }) => {
      return one.origin === packet.origin && FIELDS.every((field) => packets[field].has(packet[field] ?? ""));
    });
    // From an address that no packet comes from, or to the sender itself.
    if (members.length === 0 || packet.source === packet.destination) continue;
    found += 1;
    const text = `${variant.name}, KPTS_PROPERTY_SEED=${seed}: ${JSON.stringify(packet)}`;
    assert.equal(members.length, 1, text);
    const met = subject.fateOf(packet, () => {});
    assert.deepEqual([met].map(fateText), members[0]?.fates.map(fateText), text);
  }
  assert.ok(found > PACKETS_PER_STATE / 3, `${variant.name}, KPTS_PROPERTY_SEED=${seed}: only ${found} packets`);
}

/** What rules may compare packets with, as the objects have it. */
function literalsOf(cluster: object, family: IpFamily) {
  const text = JSON.stringify(cluster);
  const texts = Array.from(text.matchAll(/"([\da-f.:]+)"/g), ([, found = ""]) => parseIpAddress(found));
  return {
    addresses: texts.filter((address) => address !== undefined).filter((address) => familyOf(address) === family),
    ports: Array.from(text.matchAll(/(?<=[Pp]ort":)[1-9]\d*/g), ([found]) => Number(found)),
  };
}
