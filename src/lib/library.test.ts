/** What the library's entry points promise about bad input: problems and typed errors, and no other exceptions. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { diff, explain, trace } from "./explain.ts";
import { ClusterReadError, clusterFrom, formatProblem, modelOf, readCluster } from "./model.ts";
import { PlanError, type PlanErrorCode, type PlanRequest, plan } from "./plan.ts";
import { checkedSettings } from "./plan-settings.ts";

const service = (name: string, clusterIP: string) => ({
  apiVersion: "v1",
  kind: "Service",
  metadata: { namespace: "shop", name },
  spec: { clusterIP, clusterIPs: [clusterIP], ipFamilies: ["IPv4"], ports: [{ port: 80 }] },
});

test("an object that JSON cannot hold is a problem with its position, and the others are used", () => {
  const circular: { metadata?: unknown; apiVersion: string; kind: string } = { ...service("a", "10.96.0.1") };
  circular.metadata = { namespace: "shop", name: "a", self: circular };
  const counted = { ...service("b", "10.96.0.2"), status: { count: 1n } };
  const { services, problems } = clusterFrom([null, circular, service("c", "10.96.0.3"), counted, { kind: "Service" }]);
  assert.deepEqual(
    services.map(({ name }) => name),
    ["c"],
  );
  assert.deepEqual(
    problems.map(({ document, severity }) => [document, severity]),
    [1, 2, 4, 5].map((document) => [document, "error"]),
  );
  const [, second] = problems;
  assert.match(
    second === undefined ? "" : formatProblem(second),
    /^objects: document 2: must be plain data .*circular/,
  );
});

test("nothing that could stand in a list throws", () => {
  const odd = [
    undefined,
    1,
    "x",
    [],
    {},
    { kind: 1 },
    () => 1,
    Symbol("x"),
    new Date(),
    new Map(),
    Object.create(null),
  ];
  assert.equal(clusterFrom(odd).services.length, 0);
});

test("one frontend of two service ports: the conflict is told, and the loser does not have it", () => {
  const model = modelOf(clusterFrom([service("b", "10.96.0.1"), service("a", "10.96.0.1")]), { family: "IPv4" });
  assert.deepEqual(
    model.servicePorts.map(({ port, frontends }) => [port.name.text, frontends.length]),
    [
      ["shop/a", 1],
      ["shop/b", 0],
    ],
  );
  assert.equal(model.conflicts.length, 1);
  assert.match(model.warnings.join(), /belongs to shop\/a/);
});

test("an argument that is not what its type says is named, with a code", async () => {
  const wrong = (value: unknown): never => value as never; // callers in plain JavaScript
  const good = clusterFrom([]);
  const calls: readonly (readonly [() => unknown, RegExp])[] = [
    [() => clusterFrom(wrong({})), /^objects must be a list of objects, got object$/],
    [() => modelOf(wrong({}), { family: "IPv4" }), /^cluster\.services must be a list, .*got undefined$/],
    [() => modelOf(good, wrong(undefined)), /^options must be an object with a family, got undefined$/],
    [() => modelOf(good, { family: wrong("ipv4") }), /^options\.family must be "IPv4" or "IPv6", got "ipv4"$/],
    [() => plan(wrong(undefined)), /^request must be an object that has a cluster, got undefined$/],
    [() => plan({ cluster: wrong({}) }), /^cluster\.services must be a list/],
    [() => plan({ cluster: wrong({ ...good, nodes: {} }) }), /^cluster\.nodes must be a list, .*got object$/],
    [() => plan({ cluster: wrong(null) }), /^cluster must be what clusterFrom\(\) or readCluster\(\) gives, got null$/],
    [() => plan({ cluster: good, families: wrong("IPv4") }), /^families must be a list, got "IPv4"$/],
    [() => plan({ cluster: good, families: wrong(["IPv5"]) }), /^families\[0\] must be "IPv4" or "IPv6", got "IPv5"$/],
    [() => plan({ cluster: good, without: wrong(["luck"]) }), /^without\[0\] must be .*got "luck"$/],
    [() => plan({ cluster: good, node: wrong(7) }), /^node must be the name of a node, got number$/],
    [() => plan({ cluster: good, mode: wrong(7) }), /^mode must be the name of a mode, got number$/],
    [() => plan({ cluster: good, config: wrong(7) }), /^config must be a KubeProxyConfiguration: .*got number$/],
    [() => plan({ cluster: good, config: wrong(null) }), /^config must be .*got null$/],
    [() => plan({ cluster: good, config: [] }), /^config must be .*got a list$/],
    [() => plan({ cluster: good, config: Promise.resolve("mode: nftables") }), /^config must be .*got object$/],
    [() => explain(wrong(undefined), "shop/web"), /^request must be an object that has a cluster, got undefined$/],
    [() => explain({ cluster: good, node: wrong(7) }, "shop/web"), /^node must be the name of a node, got number$/],
    [() => trace(wrong(null), { from: "node", to: "10.0.0.1", port: 1 }), /^request must be an object .*got null$/],
    [
      () => trace({ cluster: good }, wrong(undefined)),
      /^packet must be an object with from, to and port, got undefined$/,
    ],
    [() => trace({ cluster: good }, wrong({ from: "node", port: 1 })), /^to must be an IP address, got undefined$/],
    [
      () => trace({ cluster: good }, wrong({ to: "10.0.0.1", port: 1 })),
      /^from must be "pod", "node", "outside" or an IP address, got undefined$/,
    ],
    [() => diff(wrong(undefined), good), /^cluster must be what clusterFrom/],
    [() => diff(good, good, wrong(null)), /^request must be an object, got null$/],
  ];
  for (const [call, message] of calls) {
    await assert.rejects(
      async () => await call(),
      (error) => {
        assert.ok(error instanceof PlanError, String(error));
        assert.match(error.message, message);
        return error.code === "input-invalid";
      },
    );
  }
});

const NODE_A = {
  apiVersion: "v1",
  kind: "Node",
  metadata: { name: "node-a" },
  spec: { podCIDRs: ["10.244.0.0/24"] },
  status: { addresses: [{ type: "InternalIP", address: "192.0.2.1" }] },
};
const slice = (name: string, ...addresses: readonly string[]) => ({
  apiVersion: "discovery.k8s.io/v1",
  kind: "EndpointSlice",
  metadata: { namespace: "shop", name: `${name}-1`, labels: { "kubernetes.io/service-name": name } },
  addressType: "IPv4",
  ports: [{ port: 8080 }],
  endpoints: addresses.map((address) => ({ addresses: [address] })),
});

for (const mode of ["iptables", "nftables", "ipvs", "ebpf"] as const) {
  test(`explain, trace and diff in mode ${mode}`, async () => {
    const cluster = clusterFrom([NODE_A, service("a", "10.96.0.1"), slice("a", "10.244.1.5", "10.244.1.6")]);
    const { servicePorts, because } = await explain({ cluster, mode }, "10.96.0.1:80");
    assert.deepEqual(
      servicePorts.map((one) => [one.mode, one.node, one.servicePort, one.endpoints.length]),
      [[mode, "node-a", "shop/a", 2]],
    );
    assert.match(because.join(), /10\.96\.0\.1/);
    for (const from of ["pod", "node", "203.0.113.9"]) {
      const { node, outcomes } = await trace({ cluster, mode }, { from, to: "10.96.0.1", port: 80 });
      assert.equal(node, "node-a");
      const total = outcomes.reduce((sum, { odds }) => sum + odds, 0);
      assert.ok(Math.abs(total - 1) < 1e-6, `${total}`);
      const reached = new Set(outcomes.map((one) => `${one.fate} ${one.destination}:${one.destinationPort}`));
      assert.deepEqual([...reached].sort(), ["sent 10.244.1.5:8080", "sent 10.244.1.6:8080"], from);
    }
    const after = clusterFrom([NODE_A, service("a", "10.96.0.1")]);
    const { nodes } = await diff(cluster, after, { mode });
    assert.deepEqual(
      nodes.map((one) => one.node),
      ["node-a"],
    );
    assert.match(nodes[0]?.clients.map(({ what }) => what).join() ?? "", /no longer answers.*refused/);
    assert.deepEqual((await diff(cluster, cluster, { mode })).nodes, []);
  });
}

test("diff: a node may be named as plan takes it, in capitals, also where the node alone has changed", async () => {
  const plain = slice("a", "10.244.1.5", "10.244.1.6");
  const endpoints = plain.endpoints.map((one, at) => ({ ...one, hints: { forZones: [{ name: "ab"[at] }] } }));
  const clusterOf = (zone: string) =>
    clusterFrom([
      { ...NODE_A, metadata: { ...NODE_A.metadata, labels: { "topology.kubernetes.io/zone": zone } } },
      service("a", "10.96.0.1"),
      { ...plain, endpoints },
    ]);
  for (const node of ["node-a", "Node-A", " NODE-A "]) {
    const { nodes } = await diff(clusterOf("a"), clusterOf("b"), { mode: "nftables", node });
    assert.deepEqual(
      nodes.map((one) => [one.node, one.rules.length > 0]),
      [["node-a", true]],
      node,
    );
  }
});

test("explain and trace: what is not there, or cannot be, is named", async () => {
  const cluster = clusterFrom([NODE_A, service("a", "10.96.0.1")]);
  const packet = { from: "outside", to: "10.96.0.1", port: 80 } as const;
  const refused: readonly (readonly [() => Promise<unknown>, PlanErrorCode, RegExp])[] = [
    [() => explain({ cluster }, "shop/b"), "target-unknown", /no Service "shop\/b"/],
    [() => explain({ cluster }, ""), "input-invalid", /^what must be/],
    [() => trace({ cluster }, { ...packet, to: "web" }), "input-invalid", /^to must be an IP address, got "web"$/],
    [() => trace({ cluster }, { ...packet, port: 0 }), "input-invalid", /^port must be/],
    [() => trace({ cluster }, { ...packet, from: "fd00::1" }), "input-invalid", /^from must be an IPv4 address/],
    [() => trace({ cluster, mode: "telepathy" as "ipvs" }, packet), "config-invalid", /telepathy/],
  ];
  for (const [call, code, message] of refused) {
    await assert.rejects(call(), (error) => {
      assert.ok(error instanceof PlanError, String(error));
      assert.match(error.message, message);
      return error.code === code;
    });
  }
});

test("a plan as data has the types of its mode", async () => {
  const cluster = clusterFrom([service("web", "10.96.0.1"), NODE_A]);
  const [rules] = await (await plan({ cluster, mode: "iptables" })).data();
  const chains: readonly string[] = rules?.chains.nat ?? [];
  assert.ok(chains.includes("KUBE-SERVICES"));
  assert.deepEqual([rules?.mode, rules?.family, rules?.node], ["iptables", "IPv4", "node-a"]);
  const [nft, nft6, ...more] = await (await plan({ cluster, mode: "nftables" })).data({ service: "shop/web" });
  assert.equal(nft?.table.sets.find(({ set }) => set.name === "cluster-ips")?.elements.length, 1);
  assert.deepEqual([nft6?.family, nft6?.table.family, more], ["IPv6", "ip6", []]);
  const [ebpf] = await (await plan({ cluster, mode: "ebpf", families: ["IPv4"] })).data();
  assert.deepEqual([ebpf?.mode, ebpf?.table.name], ["ebpf", "kube-proxy"]);
  // The configuration may name the mode, too; the plan then says which it is.
  const [ipvs] = await (await plan({ cluster, config: { mode: "ipvs" }, families: ["IPv4"] })).data();
  assert.ok(ipvs?.mode === "ipvs");
  assert.deepEqual(
    ipvs.virtualServers.map(({ text }) => text),
    ["10.96.0.1:80/TCP"],
  );
});

test("a folder that is not there is a ClusterReadError", async () => {
  await assert.rejects(readCluster("/nonexistent/manifests"), (error) => {
    assert.ok(error instanceof ClusterReadError);
    return error.code === "cluster-unreadable" && error.path === "/nonexistent/manifests";
  });
});

const CLUSTER = clusterFrom([service("web", "10.96.0.10")]);
const circularConfig: { self?: unknown } = {};
circularConfig.self = circularConfig;

const REFUSED: readonly (readonly [string, Omit<PlanRequest, "cluster">, PlanErrorCode, RegExp])[] = [
  ["a text that is no YAML", { config: "{" }, "config-decode", /failed to decode/],
  ["another kind", { config: { kind: "Pod" } }, "config-decode", /no kind/],
  ["an object that contains itself", { config: circularConfig }, "config-decode", /circular/],
  [
    "a mode that does not exist",
    { config: { mode: "telepathy" } },
    "config-invalid",
    /must be iptables, ipvs, nftables/,
  ],
  ["a value out of range", { config: { oomScoreAdj: 5000 } }, "config-invalid", /OOMScoreAdj/],
  ["a blank name of the node", { node: " " }, "config-invalid", /name of the node/],
];

for (const [what, request, code, message] of REFUSED) {
  test(`plan: ${what} is ${code}`, async () => {
    await assert.rejects(plan({ cluster: CLUSTER, ...request }), (error) => {
      assert.ok(error instanceof PlanError, String(error));
      assert.match(error.message, message);
      return error.code === code;
    });
  });
}

test("plan: forms and Services that are not there are named", async () => {
  const rules = await plan({
    cluster: CLUSTER,
    node: "node-a",
    mode: "userspace",
    config: { userspace: { rules: "none" } },
  });
  for (const form of ["netlink", "iptables-save"])
    await assert.rejects(rules.render(form), { code: "form-unavailable" });
  await assert.rejects(rules.render("text", { service: "shop/other" }), { code: "service-unknown" });
  assert.match(rules.warnings.join(), /no Node "node-a"/);
});

test("an empty name of the node is none: the configuration's counts", async () => {
  const config = { hostnameOverride: "node-b" };
  const nodeOf = async (node: string) => (await checkedSettings({ config, node })).config.hostnameOverride;
  assert.deepEqual([await nodeOf(""), await nodeOf("node-c")], ["node-b", "node-c"]);
});

for (const endpoints of [1000, 1001]) {
  test(`iptables rules of ${endpoints} endpoints ${endpoints > 1000 ? "have no" : "have"} comments of the Service`, async () => {
    const slice = {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: { namespace: "shop", name: "a-1", labels: { "kubernetes.io/service-name": "a" } },
      addressType: "IPv4",
      ports: [{ port: 8080 }],
      endpoints: Array.from({ length: endpoints }, (_, n) => ({ addresses: [`10.180.${n >> 8}.${n & 255}`] })),
    };
    const cluster = clusterFrom([service("a", "10.96.0.1"), slice]);
    const planned = await plan({ cluster, node: "node-a", mode: "iptables", families: ["IPv4"] });
    const chosen = (await planned.render("iptables-save"))
      .split("\n")
      .filter((line) => line.startsWith("-A KUBE-SVC-"));
    assert.equal(chosen.length >= endpoints, true);
    assert.equal(
      chosen.some((line) => line.includes("shop/a ->")),
      endpoints <= 1000,
    );
  });
}
