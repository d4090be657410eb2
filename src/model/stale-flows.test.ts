import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { runAtOnce } from "../async/turns.ts";
import type { Flow } from "../net/flow.ts";
import type { IpAddress } from "../net/ip.ts";
import type { Endpoint } from "./endpoint.ts";
import { OwnedServices } from "./owned-services.ts";
import type { ServicePort } from "./service-port.ts";
import { servicePortName } from "./service-port-name.ts";
import { staleFlowTest } from "./stale-flows.ts";
import { ip, makeEndpoint, makeServicePort } from "./testing/records.ts";

function udpPort(name: string, overrides: Partial<ServicePort> = {}): ServicePort {
  return makeServicePort({ protocol: "UDP", port: 53, name: servicePortName("ns1", name, "dns", "UDP"), ...overrides });
}

const DNS = udpPort("dns", {
  loadBalancerVIPs: [ip("5.5.5.5")],
  externalIPs: [ip("9.9.9.9")],
  nodePort: 30053,
});
const SERVING = [
  makeEndpoint("10.0.0.1", 5353),
  // Terminating and not ready, but serving: flows may stay.
  makeEndpoint("10.0.0.2", 5353, { isReady: false, isTerminating: true }),
];
const DEAD = makeEndpoint("10.0.0.3", 5353, { isReady: false, isServing: false, isTerminating: true });

function flow(destination: [string, number], replySource: [string, number]): Flow {
  return {
    protocol: "UDP",
    sourceIP: ip("10.9.9.9"),
    sourcePort: 40000,
    destinationIP: ip(destination[0]),
    destinationPort: destination[1],
    replySourceIP: ip(replySource[0]),
    replySourcePort: replySource[1],
    replyDestinationIP: ip("10.9.9.9"),
    replyDestinationPort: 40000,
  };
}

function stale(
  services: ServicePort[],
  endpoints: Record<string, readonly Endpoint[]>,
  one: Flow,
  gone: readonly string[] = [],
  own: readonly IpAddress[] = [],
): boolean {
  const owned = new OwnedServices();
  const declared = new Map(services.map((port) => [port.name.key, port]));
  runAtOnce(owned.update(declared.keys(), declared));
  const served = { ownerOf: owned.ownerOf.bind(owned), endpoints: new Map(Object.entries(endpoints)) };
  return staleFlowTest(served, new Set(gone), new Set(own))(one);
}

const CLUSTER = { "ns1/dns:dns/UDP": [...SERVING, DEAD] };

describe("stale UDP flows", () => {
  const rows: readonly [string, [string, number], [string, number], boolean][] = [
    ["cluster IP, answered by a ready endpoint", ["172.16.0.1", 53], ["10.0.0.1", 5353], false],
    ["cluster IP, answered by a serving one that terminates", ["172.16.0.1", 53], ["10.0.0.2", 5353], false],
    ["cluster IP, answered by one that stopped serving", ["172.16.0.1", 53], ["10.0.0.3", 5353], true],
    ["cluster IP, answered by a vanished endpoint", ["172.16.0.1", 53], ["10.0.0.9", 5353], true],
    ["cluster IP, answered on an old target port", ["172.16.0.1", 53], ["10.0.0.1", 53], true],
    ["cluster IP, never translated", ["172.16.0.1", 53], ["172.16.0.1", 53], true],
    ["load-balancer IP, good", ["5.5.5.5", 53], ["10.0.0.1", 5353], false],
    ["load-balancer IP, vanished", ["5.5.5.5", 53], ["10.0.0.9", 5353], true],
    ["external IP, good", ["9.9.9.9", 53], ["10.0.0.1", 5353], false],
    ["external IP, vanished", ["9.9.9.9", 53], ["10.0.0.9", 5353], true],
    ["node port on any address, good", ["192.168.1.1", 30053], ["10.0.0.1", 5353], false],
    ["node port on any address, vanished", ["192.168.1.1", 30053], ["10.0.0.9", 5353], true],
    ["an unrelated host that uses the node port's number", ["8.8.8.8", 30053], ["8.8.8.8", 30053], true],
    ["service IP, but not a service port", ["172.16.0.1", 54], ["172.16.0.1", 54], false],
    ["service port, but not a service IP", ["8.8.8.8", 53], ["8.8.8.8", 53], false],
  ];
  for (const [name, destination, replySource, expected] of rows) {
    test(`${expected ? "deleted" : "kept"}: ${name}`, () => {
      assert.equal(stale([DNS], CLUSTER, flow(destination, replySource)), expected);
    });
  }

  test("a flow stays with an endpoint that is published unready, to which new ones are led (publishNotReadyAddresses)", () => {
    const published = makeEndpoint("10.0.0.4", 5353, { isServing: false });
    for (const endpoint of [published, { ...published, isTerminating: true }]) {
      const endpoints = { "ns1/dns:dns/UDP": [endpoint] };
      assert.equal(stale([DNS], endpoints, flow(["172.16.0.1", 53], ["10.0.0.4", 5353])), false);
      assert.equal(stale([DNS], endpoints, flow(["192.168.1.1", 30053], ["10.0.0.4", 5353])), false);
      assert.equal(stale([DNS], endpoints, flow(["172.16.0.1", 53], ["10.0.0.1", 5353])), true);
    }
  });

  test("of a service without serving endpoints every flow goes, but those to its node port, and to other hosts' like it", () => {
    for (const endpoints of [{}, { "ns1/dns:dns/UDP": [DEAD] }]) {
      for (const address of ["172.16.0.1", "5.5.5.5", "9.9.9.9"]) {
        assert.equal(stale([DNS], endpoints, flow([address, 53], ["10.0.0.9", 5353])), true, address);
        assert.equal(stale([DNS], endpoints, flow([address, 53], [address, 53])), true, address);
      }
      assert.equal(stale([DNS], endpoints, flow(["172.16.0.1", 30053], ["10.0.0.9", 5353])), false);
      assert.equal(stale([DNS], endpoints, flow(["1.1.1.1", 30053], ["1.1.1.1", 30053])), false);
      assert.equal(stale([DNS], endpoints, flow(["1.1.1.1", 53], ["1.1.1.1", 53])), false);
    }
  });

  test("flows to what a service port had before it went are stale, until another has the address", () => {
    const gone = ["udp 172.16.0.1:53", "udp 5.5.5.5:53"];
    const taker = udpPort("taker", { clusterIP: ip("172.16.0.2"), externalIPs: [ip("5.5.5.5")] });
    const endpoints = { "ns1/taker:dns/UDP": [makeEndpoint("10.0.0.7", 53)] };
    assert.equal(stale([], {}, flow(["172.16.0.1", 53], ["10.0.0.1", 5353]), gone), true);
    assert.equal(stale([], {}, flow(["172.16.0.1", 54], ["10.0.0.1", 5353]), gone), false);
    assert.equal(stale([taker], endpoints, flow(["5.5.5.5", 53], ["10.0.0.7", 53]), gone), false);
    assert.equal(stale([taker], endpoints, flow(["5.5.5.5", 53], ["10.0.0.1", 5353]), gone), true);
    assert.equal(stale([taker], endpoints, flow(["172.16.0.1", 53], ["10.0.0.1", 5353]), gone), true);
  });

  test("of a node port without endpoints or an owner, what was translated at an address of the node is stale", () => {
    const own = [ip("192.168.0.2")];
    const key = "udp *:30053";
    const rows: readonly [string, [string, number], [string, number], boolean][] = [
      ["translated", ["192.168.0.2", 30053], ["10.0.0.9", 5353], true],
      ["never translated, so it may be to a server of the node", ["192.168.0.2", 30053], ["192.168.0.2", 30053], false],
      ["to another host", ["8.8.8.8", 30053], ["10.0.0.9", 5353], false],
      ["to another port", ["192.168.0.2", 30054], ["10.0.0.9", 5353], false],
    ];
    for (const [what, destination, replier, isStale] of rows) {
      const one = flow(destination, replier);
      assert.equal(stale([DNS], {}, one, [], own), isStale, `without endpoints: ${what}`);
      assert.equal(stale([DNS], { "ns1/dns:dns/UDP": [DEAD] }, one, [], own), isStale, `not serving: ${what}`);
      assert.equal(stale([], {}, one, [key], own), isStale, `without an owner: ${what}`);
      assert.equal(stale([], {}, one, [], own), false, what);
    }
    const good = flow(["192.168.0.2", 30053], ["10.0.0.1", 5353]);
    assert.equal(stale([DNS], CLUSTER, good, [key], own), false, "it has an owner again");
  });

  test("services of other protocols have no say", () => {
    for (const protocol of ["TCP", "SCTP"] as const) {
      const name = servicePortName("ns1", "dns", "dns", protocol);
      const port = { ...DNS, protocol, name };
      assert.equal(stale([port], { [name.key]: SERVING }, flow(["172.16.0.1", 53], ["10.0.0.9", 5353])), false);
    }
  });

  test("an association of SCTP stays with an endpoint that does not serve, and goes with one that is gone", () => {
    const name = servicePortName("ns1", "dns", "dns", "SCTP");
    const port = { ...DNS, protocol: "SCTP", name } as const;
    const endpoints = { [name.key]: [...SERVING, DEAD] };
    const to = (ip: string): Flow => ({ ...flow(["172.16.0.1", 53], [ip, 5353]), protocol: "SCTP" });
    assert.equal(stale([port], endpoints, to("10.0.0.1")), false);
    assert.equal(stale([port], endpoints, to("10.0.0.3")), false);
    assert.equal(stale([port], endpoints, to("10.0.0.9")), true);
    assert.equal(stale([port], {}, to("10.0.0.1")), true);
    assert.equal(stale([], {}, to("10.0.0.1"), ["sctp 172.16.0.1:53"]), true);
    assert.equal(stale([], {}, to("10.0.0.1"), ["udp 172.16.0.1:53"]), false);
  });

  test("flows to the number of a node port at addresses that are not the node's are other programs'", () => {
    const own = [ip("192.168.0.2")];
    assert.equal(stale([DNS], CLUSTER, flow(["8.8.8.8", 30053], ["8.8.8.8", 30053]), [], own), false);
    assert.equal(stale([DNS], CLUSTER, flow(["192.168.0.2", 30053], ["192.168.0.2", 30053]), [], own), true);
    assert.equal(stale([DNS], CLUSTER, flow(["192.168.0.2", 30053], ["10.0.0.1", 5353]), [], own), false);
  });

  test("a flow to a cluster IP is also judged by a node port of the same number", () => {
    const other = udpPort("other", { clusterIP: ip("172.16.0.2"), port: 99, nodePort: 53 });
    const endpoints = { ...CLUSTER, "ns1/other:dns/UDP": [makeEndpoint("10.0.0.7", 99)] };
    assert.equal(stale([DNS, other], endpoints, flow(["172.16.0.1", 53], ["10.0.0.1", 5353])), true);
  });

  test("of a frontend that belongs to another port, only the owner's endpoints are right", () => {
    const twin = udpPort("twin", { lostFrontends: new Set(["udp 172.16.0.1:53"]) });
    const endpoints = { ...CLUSTER, "ns1/twin:dns/UDP": [makeEndpoint("10.0.0.7", 53)] };
    assert.equal(stale([DNS, twin], endpoints, flow(["172.16.0.1", 53], ["10.0.0.1", 5353])), false);
    assert.equal(stale([DNS, twin], endpoints, flow(["172.16.0.1", 53], ["10.0.0.7", 53])), true);
  });

  test("IPv6", () => {
    const port = udpPort("six", { clusterIP: ip("fd00::10") });
    const endpoints = { "ns1/six:dns/UDP": [makeEndpoint("fd00:1::1", 5353)] };
    assert.equal(stale([port], endpoints, flow(["fd00::10", 53], ["fd00:1::1", 5353])), false);
    assert.equal(stale([port], endpoints, flow(["fd00::10", 53], ["fd00:1::2", 5353])), true);
  });
});
