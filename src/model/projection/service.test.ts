import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../../testkit/support/fast-check.ts";
import { formatProblem } from "./findings.ts";
import { projectService } from "./service.ts";

type Json = Record<string, unknown>;

function service(spec: Json, metadata: Json = {}, status?: Json): Json {
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: "web", namespace: "shop", ...metadata },
    spec: { clusterIP: "10.96.0.1", ports: [{ port: 80 }], ...spec },
    ...(status && { status }),
  };
}

function accepted(raw: unknown) {
  const result = projectService(raw);
  assert.ok(result.ok, result.ok ? "" : result.problems.map(formatProblem).join("; "));
  return result;
}

function refusal(raw: unknown): string {
  const result = projectService(raw);
  assert.ok(!result.ok, "the object must be refused");
  return result.problems.map(formatProblem).join("; ");
}

test("a minimal manifest gets the API server's defaults", () => {
  const { record, warnings } = accepted({
    metadata: { name: "web" },
    spec: { clusterIP: "10.96.0.1", ports: [{ port: 80 }] },
  });
  assert.deepEqual(warnings, []);
  assert.deepEqual(record, {
    namespace: "default",
    name: "web",
    uid: "",
    type: "ClusterIP",
    clusterIP: "10.96.0.1",
    clusterIPs: ["10.96.0.1"],
    ipFamilies: ["IPv4"],
    ports: [{ name: "", protocol: "TCP", port: 80, nodePort: 0 }],
    externalIPs: [],
    loadBalancerSourceRanges: [],
    loadBalancerIngress: [],
    sessionAffinity: "None",
    sessionAffinityTimeoutSeconds: 0,
    internalTrafficPolicy: "Cluster",
    externalTrafficPolicy: "Cluster",
    healthCheckNodePort: 0,
  });
});

test("the annotation that says whether connections are ended is kept, and one that does not say it is told", () => {
  const annotated = (value: unknown) =>
    accepted(service({}, { annotations: { "kube-proxy-ts/end-tcp": value, "kube-proxy-ts/other": "x" } }));
  for (const value of ["Gone", "Never"]) {
    const { record, warnings } = annotated(value);
    assert.deepEqual([record.endTCP, warnings], [value, []]);
  }
  assert.deepEqual(annotated("").warnings, []);
  const { record, warnings } = annotated("gone");
  assert.deepEqual(
    [record.endTCP, ...warnings.map(formatProblem)],
    [
      undefined,
      'metadata.annotations["kube-proxy-ts/end-tcp"] must be "Gone" or "Never"; it does not count, got "gone"',
    ],
  );
});

test("the hash that a Service asks for is read from our annotation, then from Cilium's; a bad one is reported", () => {
  const ours = "kube-proxy-ts/balancing";
  const cilium = "service.cilium.io/lb-algorithm";
  const read = (annotations: Json) => {
    const { record, warnings } = accepted(service({}, { annotations }));
    return [record.balancing, warnings.map(formatProblem).join("; ")] as const;
  };
  assert.deepEqual(read({ [ours]: "SourceHash" }), ["SourceHash", ""]);
  assert.deepEqual(read({ [ours]: "FlowHash" }), ["FlowHash", ""]);
  assert.deepEqual(read({ [cilium]: "maglev" }), ["FlowHash", ""]);
  assert.deepEqual(read({ [ours]: "SourceHash", [cilium]: "maglev" }), ["SourceHash", ""]);
  for (const random of [{}, { [ours]: "" }, { [ours]: "Random", [cilium]: "maglev" }, { [cilium]: "random" }]) {
    assert.deepEqual(read(random), [undefined, ""]);
  }
  for (const bad of ["sourceHash", "maglev", "toString", 7, true]) {
    const [balancing, said] = read({ [ours]: bad, [cilium]: "maglev" });
    assert.equal(balancing, undefined, String(bad));
    assert.match(said, /^metadata\.annotations\["kube-proxy-ts\/balancing"\] must be Random or SourceHash or FlowHash/);
  }
  assert.match(
    read({ [cilium]: "Maglev" })[1],
    /lb-algorithm"\] must be random or maglev; endpoints are chosen at random/,
  );
});

test("whether endpoints that do not answer are left out is read from an annotation; a bad one is reported", () => {
  const read = (value: unknown) => {
    const { record, warnings } = accepted(service({}, { annotations: { "kube-proxy-ts/leave-unanswered": value } }));
    return [record.leaveUnanswered, ...warnings.map(formatProblem)];
  };
  assert.deepEqual([read("true"), read("false"), read("")], [[true], [false], [undefined]]);
  const rule =
    'metadata.annotations["kube-proxy-ts/leave-unanswered"] must be "true" or "false"; it does not count, got';
  for (const bad of ["True", "yes", true, 1])
    assert.deepEqual(read(bad), [undefined, `${rule} ${JSON.stringify(bad)}`]);
});

test("a full object keeps every field that counts", () => {
  const { record } = accepted(
    service(
      {
        type: "LoadBalancer",
        clusterIP: "10.96.0.1",
        clusterIPs: ["10.96.0.1", "fd00::1"],
        ipFamilies: ["IPv4", "IPv6"],
        ports: [
          { name: "dns", protocol: "UDP", port: 53, nodePort: 30053 },
          { name: "dns-tcp", protocol: "TCP", port: 53 },
        ],
        externalIPs: ["192.0.2.1", "not an address"],
        loadBalancerSourceRanges: [" 10.0.0.0/8", "nonsense"],
        sessionAffinity: "ClientIP",
        sessionAffinityConfig: { clientIP: { timeoutSeconds: 60 } },
        internalTrafficPolicy: "Local",
        externalTrafficPolicy: "Local",
        healthCheckNodePort: 32000,
      },
      {},
      { loadBalancer: { ingress: [{ ip: "192.0.2.9" }, { hostname: "lb" }, { ip: "192.0.2.10", ipMode: "Proxy" }] } },
    ),
  );
  assert.deepEqual(record.clusterIPs, ["10.96.0.1", "fd00::1"]);
  assert.deepEqual(record.ports[0], { name: "dns", protocol: "UDP", port: 53, nodePort: 30053 });
  assert.deepEqual(record.externalIPs, ["192.0.2.1", "not an address"], "the model skips what does not parse");
  assert.deepEqual(record.loadBalancerSourceRanges, [" 10.0.0.0/8", "nonsense"]);
  assert.deepEqual(record.loadBalancerIngress, [
    { ip: "192.0.2.9", ipMode: "VIP" },
    { ip: "192.0.2.10", ipMode: "Proxy" },
  ]);
  assert.equal(record.sessionAffinityTimeoutSeconds, 60);
  assert.equal(record.healthCheckNodePort, 32000);
  assert.equal(record.internalTrafficPolicy, "Local");
  assert.ok(Object.isFrozen(record) && Object.isFrozen(record.ports) && Object.isFrozen(record.ports[0]));
});

test("client affinity without a timeout lasts three hours", () => {
  assert.equal(accepted(service({ sessionAffinity: "ClientIP" })).record.sessionAffinityTimeoutSeconds, 10_800);
});

const ADDRESS_CASES: readonly { name: string; spec: Json; expected: Json; warnings: number }[] = [
  {
    name: "clusterIPs alone fill in clusterIP",
    spec: { clusterIP: undefined, clusterIPs: ["fd00::1", "10.0.0.1"] },
    expected: { clusterIP: "fd00::1", clusterIPs: ["fd00::1", "10.0.0.1"], ipFamilies: ["IPv6", "IPv4"] },
    warnings: 0,
  },
  {
    name: "leading zeroes are an address as they are",
    spec: { clusterIP: "172.30.0.041", clusterIPs: ["172.30.0.41"] },
    expected: { clusterIP: "172.30.0.41", clusterIPs: ["172.30.0.41"], ipFamilies: ["IPv4"] },
    warnings: 0,
  },
  {
    name: "a dual-stack Service with one address so far keeps both families",
    spec: { clusterIP: "10.0.0.1", ipFamilies: ["IPv4", "IPv6"] },
    expected: { clusterIP: "10.0.0.1", clusterIPs: ["10.0.0.1"], ipFamilies: ["IPv4", "IPv6"] },
    warnings: 0,
  },
  {
    name: "the address is believed where ipFamilies contradicts it",
    spec: { clusterIP: "10.0.0.1", ipFamilies: ["IPv6"] },
    expected: { clusterIP: "10.0.0.1", clusterIPs: ["10.0.0.1"], ipFamilies: ["IPv4"] },
    warnings: 1,
  },
  {
    name: "both families the wrong way round are put right",
    spec: { clusterIPs: ["10.96.0.1", "fd00::1"], ipFamilies: ["IPv6", "IPv4"] },
    expected: { clusterIP: "10.96.0.1", clusterIPs: ["10.96.0.1", "fd00::1"], ipFamilies: ["IPv4", "IPv6"] },
    warnings: 2,
  },
  {
    name: "no address is no address",
    spec: { clusterIP: "" },
    expected: { clusterIP: "", clusterIPs: [], ipFamilies: [] },
    warnings: 0,
  },
  {
    name: "headless needs no ports",
    spec: { clusterIP: "None", ports: undefined },
    expected: { clusterIP: "None", clusterIPs: ["None"], ipFamilies: [] },
    warnings: 0,
  },
];

for (const { name, spec, expected, warnings } of ADDRESS_CASES) {
  test(`cluster IPs: ${name}`, () => {
    const result = accepted(service(spec));
    const { clusterIP, clusterIPs, ipFamilies } = result.record;
    assert.deepEqual({ clusterIP, clusterIPs, ipFamilies }, expected);
    assert.equal(result.warnings.length, warnings);
  });
}

const REFUSED: readonly { name: string; raw: unknown; says: readonly string[] }[] = [
  { name: "port 0", raw: service({ ports: [{ port: 0 }] }), says: ["spec.ports[0].port", "1 to 65535", "got 0"] },
  { name: "port 65536", raw: service({ ports: [{ port: 65536 }] }), says: ["spec.ports[0].port", "got 65536"] },
  { name: "a port in words", raw: service({ ports: [{ port: "80" }] }), says: ["spec.ports[0].port", 'got "80"'] },
  { name: "half a port", raw: service({ ports: [{ port: 80.5 }] }), says: ["spec.ports[0].port", "got 80.5"] },
  { name: "a node port out of range", raw: service({ ports: [{ port: 80, nodePort: -1 }] }), says: ["nodePort", "-1"] },
  {
    name: "a health check port out of range",
    raw: service({ healthCheckNodePort: 70_000 }),
    says: ["healthCheckNodePort"],
  },
  { name: "no ports", raw: service({ ports: [] }), says: ["spec.ports", "at least one"] },
  {
    name: "an unknown protocol",
    raw: service({ ports: [{ port: 1, protocol: "tcp" }] }),
    says: ["TCP, UDP or SCTP", '"tcp"'],
  },
  { name: "an unknown type", raw: service({ type: "Loadbalancer" }), says: ["spec.type", "Loadbalancer"] },
  { name: "an unknown policy", raw: service({ externalTrafficPolicy: "local" }), says: ["spec.externalTrafficPolicy"] },
  { name: "an unknown affinity", raw: service({ sessionAffinity: "Cookie" }), says: ["spec.sessionAffinity"] },
  {
    name: "an affinity timeout of no time",
    raw: service({ sessionAffinity: "ClientIP", sessionAffinityConfig: { clientIP: { timeoutSeconds: 0 } } }),
    says: ["timeoutSeconds", "1 to 86400", "got 0"],
  },
  {
    name: "a cluster IP that is none",
    raw: service({ clusterIP: "10.96.0.256" }),
    says: ["spec.clusterIP", "10.96.0.256"],
  },
  { name: "two different cluster IPs", raw: service({ clusterIPs: ["10.96.0.2"] }), says: ["spec.clusterIPs[0]"] },
  {
    name: "two cluster IPs of one family",
    raw: service({ clusterIP: undefined, clusterIPs: ["10.0.0.1", "10.0.0.2"] }),
    says: ["spec.clusterIPs[1]", "other IP family"],
  },
  {
    name: "two ports without names",
    raw: service({ ports: [{ port: 80 }, { port: 81 }] }),
    says: ["spec.ports[1].name", "unique"],
  },
  {
    name: "two ports of one number",
    raw: service({
      ports: [
        { port: 80, name: "a" },
        { port: 80, name: "b" },
      ],
    }),
    says: ["spec.ports[1].port", "unique", "TCP"],
  },
  { name: "no name", raw: service({}, { name: undefined }), says: ["metadata.name", "got nothing"] },
  { name: "no metadata", raw: { spec: {} }, says: ["metadata", "required"] },
  { name: "a list where an object belongs", raw: service({ ports: { port: 80 } }), says: ["spec.ports", "list"] },
  { name: "numbers where texts belong", raw: service({ externalIPs: [1] }), says: ["spec.externalIPs[0]", "got 1"] },
];

for (const { name, raw, says } of REFUSED) {
  test(`refused: ${name}`, () => {
    const message = refusal(raw);
    for (const part of says) assert.ok(message.includes(part), `${JSON.stringify(part)} is missing in: ${message}`);
  });
}

const SMUGGLED = [
  "web -j ACCEPT",
  'web" -j ACCEPT',
  "web\n-A INPUT -j ACCEPT",
  "web\n",
  "-j",
  "--flush",
  "web;reboot",
  "web'",
  "web\u0000",
  "wëb",
  "web$(id)",
  "a".repeat(64),
];

for (const text of SMUGGLED) {
  test(`nothing is smuggled in as ${JSON.stringify(text)}`, () => {
    assert.match(refusal(service({}, { name: text })), /metadata\.name must be a DNS label/);
    assert.match(refusal(service({}, { namespace: text })), /metadata\.namespace must be a DNS label/);
    assert.match(refusal(service({ ports: [{ port: 80, name: text }] })), /spec\.ports\[0\]\.name must be a DNS label/);
    assert.match(refusal(service({ clusterIP: text })), /spec\.clusterIP must be an IP address/);
    assert.match(refusal(service({ ports: [{ port: 80, protocol: text }] })), /spec\.ports\[0\]\.protocol must be/);
    assert.ok(!refusal(service({}, { name: text })).includes("\n"), "a message is one line");
  });
}

test("every problem of an object is named at once", () => {
  const message = refusal(service({ clusterIP: "x", type: "y", ports: [{ port: 0, name: "Z" }] }));
  for (const field of ["clusterIP", "type", "ports[0].port", "ports[0].name"])
    assert.ok(message.includes(`spec.${field}`));
});

test("an ingress of an unknown mode is left out with a warning", () => {
  const ingress = [{ ip: "192.0.2.1", ipMode: "Magic" }, { ip: "192.0.2.2" }];
  const { record, warnings } = accepted(service({}, {}, { loadBalancer: { ingress } }));
  assert.deepEqual(record.loadBalancerIngress, [{ ip: "192.0.2.2", ipMode: "VIP" }]);
  assert.equal(warnings[0]?.field, "status.loadBalancer.ingress[0].ipMode");
});

test("accepted names are DNS labels for any input", () => {
  const name = fc.oneof(fc.string(), fc.stringMatching(/^[-a-z0-9 ."']{1,70}$/));
  fc.assert(
    fc.property(name, name, name, (serviceName, namespace, portName) => {
      const raw = service({ ports: [{ port: 80, name: portName }] }, { name: serviceName, namespace });
      const result = projectService(raw);
      if (!result.ok) return;
      for (const text of [result.record.name, result.record.namespace]) assert.match(text, /^[a-z0-9][-a-z0-9]{0,62}$/);
      assert.match(result.record.ports[0]?.name ?? "x", /^[-a-z0-9]{0,63}$/);
    }),
  );
});

test("a cluster IP that is not one of a Service CIDR refuses the Service: what it had before stays in force", () => {
  const specials = ["127.0.0.1", "::1", "0.0.0.0", "169.254.1.1", "224.0.0.1", "255.255.255.255", "::ffff:127.0.0.1"];
  for (const clusterIP of specials) {
    assert.match(
      refusal(service({ clusterIP })),
      /^spec\.clusterIP must be an address of a Service CIDR, not a special one \([a-z-]+\), got "/,
    );
  }
  const second = refusal(service({ clusterIP: "10.96.0.1", clusterIPs: ["10.96.0.1", "fe80::1"] }));
  assert.match(second, /^spec\.clusterIPs\[1\] must .*\(link-local\), got "fe80::1"$/);
});
