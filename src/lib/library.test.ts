/** What the library's entries promise about bad input: problems and typed errors, nothing else thrown. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ClusterReadError, clusterFrom, formatProblem, modelOf, readCluster } from "./model.ts";
import { PlanError, type PlanErrorCode, type PlanRequest, plan } from "./plan.ts";

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

test("a folder that is not there is a ClusterReadError", async () => {
  await assert.rejects(readCluster("/nonexistent/manifests"), (error) => {
    assert.ok(error instanceof ClusterReadError);
    return error.path === "/nonexistent/manifests";
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
