import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../../testkit/support/fast-check.ts";
import { projectEndpointSlice } from "./endpoint-slice.ts";
import { formatProblem } from "./findings.ts";
import { projectNode, projectServiceCidr } from "./kinds.ts";
import { flattenLists, projectObject } from "./project-object.ts";
import { projectService } from "./service.ts";

const SERVICE = {
  apiVersion: "v1",
  kind: "Service",
  metadata: { name: "web" },
  spec: { clusterIP: "10.0.0.1", ports: [{ port: 80 }] },
};

test("kinds are told apart by their API group", () => {
  assert.equal(projectObject(SERVICE).status, "accepted");
  assert.equal(projectObject({ ...SERVICE, apiVersion: "serving.knative.dev/v1" }).status, "ignored");
  assert.equal(projectObject({ apiVersion: "apps/v1", kind: "Deployment" }).status, "ignored");
});

test("an old version of a known kind is refused and the right one is named", () => {
  const projected = projectObject({
    apiVersion: "discovery.k8s.io/v1beta1",
    kind: "EndpointSlice",
    metadata: { name: "a" },
  });
  assert.ok(projected.status === "refused");
  assert.match(projected.problems.map(formatProblem).join(), /apiVersion must be discovery\.k8s\.io\/v1:/);
});

test("a type that is probably meant to be one of ours is named, and a foreign one stays silent", () => {
  const said = (apiVersion: string, kind: string): string => {
    const projected = projectObject({ ...SERVICE, apiVersion, kind });
    return projected.status === "refused"
      ? `${projected.id}: ${projected.problems.map(formatProblem).join()}`
      : projected.status;
  };
  for (const kind of ["Servce", "Services", "service", "Srvice", "Sevrice"]) {
    assert.equal(said("v1", kind), `Service/default/web: kind must probably be Service, got "${kind}"`);
  }
  assert.match(said("v1", "Nod"), /^Node\/-\/web: kind must probably be Node,/);
  assert.match(said("discovery.k8s.io/v1", "EndpointSlices"), /kind must probably be EndpointSlice,/);
  assert.match(said("v2", "Service"), /^Service\/default\/web: apiVersion must be v1: .*, got "v2"$/);
  assert.match(said("v2", "Servce"), /kind must probably be Service/);
  assert.match(said("core/v1", "Service"), /apiVersion must be v1:/);
  assert.match(said("v1", "EndpointSlice"), /apiVersion must be discovery\.k8s\.io\/v1:/);
  assert.match(said("discovery.k8s.io/v2", "EndpointSlice"), /apiVersion must be discovery\.k8s\.io\/v1:/);
  assert.match(said("discovery.k8.io/v1", "EndpointSlice"), /apiVersion must be discovery\.k8s\.io\/v1:/);
  assert.match(said("networking.k8s.io/v1alpha1", "ServiceCIDR"), /apiVersion must be networking\.k8s\.io\/v1:/);
  assert.match(said("v2", "ServiceList"), /apiVersion must be v1:/);
  assert.match(said("v1", "Lst"), /kind must probably be List/);
  for (const [apiVersion, kind] of [
    ["v1", "Pod"],
    ["v1", "PodList"],
    ["v1", "Secret"],
    ["v1", "ConfigMap"],
    ["v1", "ServiceAccount"],
    ["apps/v1", "Deployment"],
    ["networking.k8s.io/v1", "Ingress"],
    ["networking.k8s.io/v1", "NetworkPolicy"],
    ["serving.knative.dev/v1", "Service"],
    ["serving.knative.dev/v1", "Services"],
    ["example.com/v1", "Node"],
    ["monitoring.coreos.com/v1", "ServiceMonitor"],
    ["multicluster.x-k8s.io/v1alpha1", "ServiceImport"],
  ] as const) {
    assert.equal(said(apiVersion, kind), "ignored", `${apiVersion} ${kind}`);
  }
});

test("what is no Kubernetes object is refused", () => {
  for (const raw of [1, "text", [], true, {}, { kind: "Service" }, { apiVersion: "v1" }]) {
    assert.equal(projectObject(raw).status, "refused", JSON.stringify(raw));
  }
});

test("an object that the watches would not show is accepted without a record", () => {
  const projected = projectObject({ ...SERVICE, spec: { clusterIP: "None" } });
  assert.ok(projected.status === "accepted");
  assert.equal(projected.found, undefined);
});

test("a title cannot forge a log line", () => {
  const { title } = projectObject({ ...SERVICE, metadata: { name: "a\nE0101 fake", namespace: 'b" c' } });
  assert.ok(!title.includes("\n"));
  assert.match(title, /^Service "b\\" c"\/"a\\nE0101 fake"$/);
});

test("lists are taken apart, typed lists lend their kind, other lists are left alone", () => {
  const { apiVersion: _, kind: __, ...bare } = SERVICE;
  const list = {
    apiVersion: "v1",
    kind: "List",
    items: [SERVICE, { apiVersion: "v1", kind: "ServiceList", items: [bare, bare] }],
  };
  const flat = [...flattenLists(list)];
  assert.deepEqual(
    flat.map(({ path }) => path),
    ["items[0]", "items[1].items[0]", "items[1].items[1]"],
  );
  for (const { raw, typeMeta } of flat) assert.equal(projectObject(raw, typeMeta).status, "accepted");
  assert.equal([...flattenLists({ apiVersion: "example.com/v1", kind: "AllowList", items: ["a"] })].length, 1);
});

/** Objects of the right outline with any JSON in the fields that are read. */
const anything = fc.jsonValue({ maxDepth: 4 });
const almostObject = fc.record(
  {
    apiVersion: fc.constantFrom("v1", "discovery.k8s.io/v1", "networking.k8s.io/v1", ""),
    kind: fc.constantFrom("Service", "EndpointSlice", "Node", "ServiceCIDR", "List", "ServiceList"),
    metadata: fc.oneof(anything, fc.record({ name: fc.oneof(anything, fc.constant("a")), labels: anything })),
    spec: fc.oneof(
      anything,
      fc.dictionary(fc.constantFrom("ports", "clusterIP", "clusterIPs", "ipFamilies", "podCIDRs", "cidrs"), anything),
      fc.record({ ports: fc.array(fc.oneof(anything, fc.record({ port: anything, name: anything }))) }),
    ),
    endpoints: fc.oneof(anything, fc.array(fc.record({ addresses: anything, hints: anything, conditions: anything }))),
    addressType: fc.oneof(anything, fc.constant("IPv4")),
    ports: anything,
    status: anything,
    items: anything,
  },
  { requiredKeys: [] },
);

test("projecting arbitrary JSON never throws, and every problem can be printed on one line", () => {
  const projections = [projectService, projectEndpointSlice, projectNode, projectServiceCidr];
  fc.assert(
    fc.property(fc.oneof(anything, almostObject), (raw) => {
      for (const project of projections) {
        const result = project(raw);
        for (const problem of result.ok ? result.warnings : result.problems) {
          assert.ok(!formatProblem(problem).includes("\n"));
        }
      }
      for (const { raw: item, typeMeta } of flattenLists(raw)) projectObject(item, typeMeta);
    }),
    { numRuns: 500 },
  );
});

test("JSON nested deeper than the stack is refused, not thrown", () => {
  let deep: unknown = "x";
  for (let level = 0; level < 50_000; level++) deep = [deep];
  const result = projectService({ ...SERVICE, metadata: { name: deep } });
  assert.ok(!result.ok);
  assert.match(result.problems.map(formatProblem).join(), /metadata\.name/);
});
