import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { IpFamily } from "../net/ip.ts";
import type { ServiceRecord } from "./objects.ts";
import { equalServicePorts, type ServicePort, servicePortText } from "./service-port.ts";
import { usesClusterEndpoints, usesLocalEndpoints } from "./service-port-routing.ts";
import { servicePortsOf } from "./service-ports.ts";
import { makeService } from "./testing/records.ts";

interface Computed {
  readonly ports: ReadonlyMap<string, ServicePort> | undefined;
  readonly problems: readonly string[];
}

function compute(overrides: Partial<ServiceRecord>, family: IpFamily = "IPv4", allowExternalIPs = true): Computed {
  const problems: string[] = [];
  const ports = servicePortsOf(makeService(overrides), family, {
    allowExternalIPs,
    onProblem: (_message, facts) => problems.push(`${facts.field}=${facts.value ?? ""}`),
  });
  return { ports, problems };
}

/** The first port of the service; fails if there is none. */
function portOf(overrides: Partial<ServiceRecord>, family: IpFamily = "IPv4", allowExternalIPs = true): ServicePort {
  const [port] = compute(overrides, family, allowExternalIPs).ports?.values() ?? [];
  assert.ok(port !== undefined, "the service has no port in this family");
  return port;
}

const DUAL: Partial<ServiceRecord> = {
  clusterIP: "172.16.0.1",
  clusterIPs: ["172.16.0.1", "fd00::1"],
  ipFamilies: ["IPv4", "IPv6"],
};

describe("which services have ports", () => {
  const skipped: readonly [string, Partial<ServiceRecord>, IpFamily][] = [
    ["an unallocated cluster IP", { clusterIP: "", clusterIPs: [] }, "IPv4"],
    ["a headless service", { clusterIP: "None", clusterIPs: ["None"] }, "IPv4"],
    ["an ExternalName service with a cluster IP", { type: "ExternalName" }, "IPv4"],
    ["a service of the other family", {}, "IPv6"],
    ["ipFamilies with more entries than clusterIPs", { ipFamilies: ["IPv4", "IPv6"] }, "IPv6"],
    ["a legacy object of the other family", { ipFamilies: [], clusterIP: "fd00::1", clusterIPs: [] }, "IPv4"],
    [
      "a legacy IPv6 object with IPv4 ingress",
      {
        ipFamilies: [],
        clusterIP: "fd00::1",
        clusterIPs: [],
        loadBalancerIngress: [{ ip: "1.2.3.4", ipMode: "VIP" }],
      },
      "IPv4",
    ],
  ];
  for (const [name, overrides, family] of skipped) {
    test(`none: ${name}`, () => {
      const { ports, problems } = compute(overrides, family);
      assert.equal(ports, undefined);
      assert.deepEqual(problems, []);
    });
  }

  test("a cluster IP that is no address, or of another family than promised, is a reported skip", () => {
    assert.deepEqual(compute({ clusterIPs: ["172.16.0.1 -j DROP"] }), {
      ports: undefined,
      problems: ["spec.clusterIPs[0]=172.16.0.1 -j DROP"],
    });
    assert.deepEqual(compute({ clusterIPs: ["fd00::1"] }).problems, ["spec.clusterIPs[0]=fd00::1"]);
    assert.deepEqual(compute({ ipFamilies: [], clusterIP: "x" }).problems, ["spec.clusterIP=x"]);
  });

  test("a service without ports has an empty map, which is not the same as none", () => {
    assert.equal(compute({ ports: [] }).ports?.size, 0);
  });

  test("a legacy object uses spec.clusterIP", () => {
    assert.equal(portOf({ ipFamilies: [], clusterIPs: [] }).clusterIP, "172.16.0.1");
  });

  test("each family of a dual-stack service sees its own address, whichever is first", () => {
    assert.equal(portOf(DUAL, "IPv6").clusterIP, "fd00::1");
    const reversed = {
      clusterIP: "fd00::1",
      clusterIPs: ["fd00::1", "172.16.0.1"],
      ipFamilies: ["IPv6", "IPv4"],
    } as const;
    assert.equal(portOf(reversed, "IPv4").clusterIP, "172.16.0.1");
  });

  test("addresses are canonical, never an echo of the object", () => {
    assert.equal(portOf({ clusterIPs: ["172.30.0.041"] }).clusterIP, "172.30.0.41");
  });
});

describe("fields of a service port", () => {
  test("one port per entry, keyed over name and protocol", () => {
    const ports = [
      { name: "dns", protocol: "UDP", port: 53, nodePort: 0 },
      { name: "dns-tcp", protocol: "TCP", port: 53, nodePort: 30053 },
      { name: "", protocol: "SCTP", port: 99, nodePort: 0 },
    ] as const;
    const found = compute({ ports }).ports;
    assert.deepEqual([...(found?.keys() ?? [])], ["ns1/svc1:dns/UDP", "ns1/svc1:dns-tcp/TCP", "ns1/svc1/SCTP"]);
    assert.deepEqual([...(found?.values() ?? [])].map(servicePortText), [
      "172.16.0.1:53/UDP",
      "172.16.0.1:53/TCP",
      "172.16.0.1:99/SCTP",
    ]);
    assert.deepEqual(
      [...(found?.values() ?? [])].map((port) => port.isExternallyAccessible),
      [false, true, false],
    );
  });

  test("external IPs: this family only, order and duplicates kept, bad ones reported, blank ones silent", () => {
    const externalIPs = ["9.9.9.9", " ", "fd00::9", "junk", "1.1.1.1", "9.9.9.9"];
    const { ports, problems } = compute({ ...DUAL, externalIPs });
    assert.deepEqual(ports?.get("ns1/svc1:p/TCP")?.externalIPs, ["9.9.9.9", "1.1.1.1", "9.9.9.9"]);
    assert.deepEqual(problems, ["spec.externalIPs[3]=junk"]);
    assert.deepEqual(portOf({ ...DUAL, externalIPs }, "IPv6").externalIPs, ["fd00::9"]);
  });

  test("special addresses are reported and skipped; a load balancer may be on the link of the node", () => {
    const externalIPs = ["127.0.0.1", "169.254.1.1", "9.9.9.9", "224.0.0.1"];
    const loadBalancerIngress = ["0.0.0.0", "169.254.1.2", "255.255.255.255"].map((ip) => ({
      ip,
      ipMode: "VIP" as const,
    }));
    const { ports, problems } = compute({ externalIPs, loadBalancerIngress });
    const port = ports?.get("ns1/svc1:p/TCP");
    assert.deepEqual(port?.externalIPs, ["9.9.9.9"]);
    assert.deepEqual(port?.loadBalancerVIPs, ["169.254.1.2"]);
    assert.deepEqual(problems, [
      "spec.externalIPs[0]=127.0.0.1",
      "spec.externalIPs[1]=169.254.1.1",
      "spec.externalIPs[3]=224.0.0.1",
      "status.loadBalancer.ingress[0]=0.0.0.0",
      "status.loadBalancer.ingress[2]=255.255.255.255",
    ]);
  });

  test("with the gate off external IPs are hidden, but the port stays externally accessible", () => {
    const port = portOf({ externalIPs: ["9.9.9.9"] }, "IPv4", false);
    assert.deepEqual(port.externalIPs, []);
    assert.equal(port.isExternallyAccessible, true);
  });

  test("load-balancer VIPs: ipMode Proxy and the other family vanish", () => {
    const loadBalancerIngress = [
      { ip: "1.2.3.4", ipMode: "VIP" },
      { ip: "1.2.3.5", ipMode: "Proxy" },
      { ip: "fd00::5", ipMode: "VIP" },
    ] as const;
    const port = portOf({ loadBalancerIngress });
    assert.deepEqual(port.loadBalancerVIPs, ["1.2.3.4"]);
    assert.equal(port.isExternallyAccessible, true);
    assert.equal(portOf({ loadBalancerIngress: loadBalancerIngress.slice(1) }).isExternallyAccessible, false);
  });

  test("node ports, external IPs and ingress count on plain ClusterIP services too", () => {
    assert.equal(portOf({ ports: [{ name: "p", protocol: "TCP", port: 80, nodePort: 30080 }] }).nodePort, 30080);
  });

  const ranges: readonly [string, readonly string[], IpFamily, readonly string[]][] = [
    [
      "host bits are cleared and blanks trimmed",
      [" 10.1.2.3/28", "10.9.0.0/016 "],
      "IPv4",
      ["10.1.2.0/28", "10.9.0.0/16"],
    ],
    ["a zero prefix lifts the restriction", ["10.0.0.0/8", "0.0.0.0/0"], "IPv4", []],
    ["half of the address space does not", ["0.0.0.0/1"], "IPv4", ["0.0.0.0/1"]],
    ["an IPv6 zero prefix does not lift IPv4's", ["10.0.0.0/8", "::/0"], "IPv4", ["10.0.0.0/8"]],
    ["ranges of the other family only are no restriction", ["fd00::/8"], "IPv4", []],
    ["a list of which nothing can be read lets no client in", ["10.0.0.0/33", "10.0.0.1"], "IPv4", ["0.0.0.0/32"]],
    ["so does one whose other ranges are of the other family", ["10.0.0.0/33", "fd00::/8"], "IPv4", ["0.0.0.0/32"]],
    ["blanks are no list", ["", " "], "IPv6", []],
    ["IPv6 sees its own", ["10.0.0.0/8", "fd00::1/8"], "IPv6", ["fd00::/8"]],
  ];
  for (const [name, loadBalancerSourceRanges, family, expected] of ranges) {
    test(`source ranges: ${name}`, () => {
      assert.deepEqual(portOf({ ...DUAL, loadBalancerSourceRanges }, family).loadBalancerSourceRanges, expected);
    });
  }

  test("a source range that is no prefix is reported and skipped", () => {
    const { ports, problems } = compute({ loadBalancerSourceRanges: ["10.0.0.1", "10.0.0.0/8"] });
    assert.deepEqual(ports?.get("ns1/svc1:p/TCP")?.loadBalancerSourceRanges, ["10.0.0.0/8"]);
    assert.deepEqual(problems, ["spec.loadBalancerSourceRanges[0]=10.0.0.1"]);
  });

  test("affinity has its timeout, no affinity has none", () => {
    const sticky = portOf({ sessionAffinity: "ClientIP", sessionAffinityTimeoutSeconds: 10800 });
    assert.deepEqual([sticky.sessionAffinity, sticky.stickyMaxAgeSeconds], ["ClientIP", 10800]);
    assert.equal(portOf({ sessionAffinity: "None", sessionAffinityTimeoutSeconds: 99 }).stickyMaxAgeSeconds, 0);
  });

  const externalLocal: readonly [string, Partial<ServiceRecord>, boolean][] = [
    ["LoadBalancer", { type: "LoadBalancer" }, true],
    ["NodePort", { type: "NodePort" }, true],
    ["ClusterIP without external IPs", { type: "ClusterIP" }, false],
    ["ClusterIP with external IPs", { type: "ClusterIP", externalIPs: ["1.1.1.1"] }, true],
    ["ClusterIP with external IPs of the other family", { type: "ClusterIP", externalIPs: ["fd00::9"] }, true],
    ["empty type", { type: "", externalIPs: ["1.1.1.1"] }, false],
    ["LoadBalancer with policy Cluster", { type: "LoadBalancer", externalTrafficPolicy: "Cluster" }, false],
  ];
  for (const [name, overrides, expected] of externalLocal) {
    test(`externalTrafficPolicy Local on ${name}: ${expected}`, () => {
      const port = portOf({ externalTrafficPolicy: "Local", healthCheckNodePort: 1, ...overrides });
      assert.equal(port.externalPolicyLocal, expected);
    });
  }

  test("the health-check node port counts for LoadBalancer with externalTrafficPolicy Local only", () => {
    const local = { externalTrafficPolicy: "Local", healthCheckNodePort: 31000 } as const;
    assert.equal(portOf({ ...local, type: "LoadBalancer" }).healthCheckNodePort, 31000);
    assert.equal(portOf({ ...local, type: "NodePort" }).healthCheckNodePort, 0);
    assert.equal(portOf({ ...local, type: "LoadBalancer", externalTrafficPolicy: "Cluster" }).healthCheckNodePort, 0);
    const missing = compute({ type: "LoadBalancer", externalTrafficPolicy: "Local" });
    assert.deepEqual(missing.problems, ["spec.healthCheckNodePort="]);
  });

  test("internalTrafficPolicy Local", () => {
    assert.equal(portOf({ internalTrafficPolicy: "Local" }).internalPolicyLocal, true);
    assert.equal(portOf({}).internalPolicyLocal, false);
  });
});

describe("which endpoint sets a port needs", () => {
  const rows: readonly [boolean, boolean, boolean, boolean, boolean][] = [
    // internal Local, external Local, accessible → cluster, local
    [false, false, false, true, false],
    [false, false, true, true, false],
    [false, true, false, true, false],
    [false, true, true, true, true],
    [true, false, false, false, true],
    [true, false, true, true, true],
    [true, true, true, true, true],
  ];
  for (const [internalPolicyLocal, externalPolicyLocal, isExternallyAccessible, cluster, local] of rows) {
    test(`iTP Local ${internalPolicyLocal}, eTP Local ${externalPolicyLocal}, external ${isExternallyAccessible}`, () => {
      const port = { ...portOf({}), internalPolicyLocal, externalPolicyLocal, isExternallyAccessible };
      assert.equal(usesClusterEndpoints(port), cluster);
      assert.equal(usesLocalEndpoints(port), local);
    });
  }
});

test("equality looks at every field", () => {
  const base = portOf({});
  const others: Partial<ServicePort>[] = [
    { name: portOf({ name: "other" }).name },
    { clusterIP: portOf({ clusterIPs: ["172.16.0.2"] }).clusterIP },
    { port: 81 },
    { nodePort: 1 },
    { externalIPs: [base.clusterIP] },
    { loadBalancerVIPs: [base.clusterIP] },
    { loadBalancerSourceRanges: portOf({ loadBalancerSourceRanges: ["10.0.0.0/8"] }).loadBalancerSourceRanges },
    { sessionAffinity: "ClientIP" },
    { stickyMaxAgeSeconds: 1 },
    { externalPolicyLocal: true },
    { internalPolicyLocal: true },
    { healthCheckNodePort: 1 },
    { isExternallyAccessible: true },
  ];
  assert.equal(equalServicePorts(base, portOf({})), true);
  for (const other of others)
    assert.equal(equalServicePorts(base, { ...base, ...other }), false, JSON.stringify(other));
  // Protocol is part of the name; every other field must appear above.
  assert.deepEqual(new Set([...others.flatMap(Object.keys), "protocol"]), new Set(Object.keys(base)));
});
