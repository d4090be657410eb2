/** The examples are objects that a real API server would store, with namespaces that exist there (docs/manifests.md). */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { CHECKOUT } from "../docs/markdown.ts";
import { serviceFaults, sharedFaults, sliceFaults } from "./api-rules.ts";

const FOLDER = join(CHECKOUT, "examples");
const objects: readonly { readonly file: string; readonly object: Readonly<Record<string, unknown>> }[] = readdirSync(
  FOLDER,
).flatMap((file) =>
  parseAllDocuments(readFileSync(join(FOLDER, file), "utf8")).map((document) => ({ file, object: document.toJS() })),
);
const ofKind = (kind: string) => objects.filter(({ object }) => object.kind === kind);

test("an API server would store every Service and EndpointSlice of the examples", () => {
  const faults = (check: (object: Readonly<Record<string, unknown>>) => readonly string[], kind: string) =>
    ofKind(kind).flatMap(({ file, object }) => check(object).map((fault) => `${file}: ${fault}`));
  assert.ok(ofKind("Service").length >= 12 && ofKind("EndpointSlice").length >= 12);
  assert.deepEqual([...faults(serviceFaults, "Service"), ...faults(sliceFaults, "EndpointSlice")], []);
  assert.deepEqual(sharedFaults(ofKind("Service").map(({ object }) => object)), []);
});

test("the rules know what is wrong", () => {
  const ports = [{ port: 80 }];
  const twoFamilies = {
    clusterIP: "10.0.0.1",
    clusterIPs: ["10.0.0.1", "fd00::1"],
    ipFamilies: ["IPv4", "IPv6"],
    ports,
  };
  assert.match(serviceFaults({ spec: twoFamilies })[0] ?? "", /^ipFamilyPolicy/);
  assert.deepEqual(serviceFaults({ spec: { ...twoFamilies, ipFamilyPolicy: "RequireDualStack" } }), []);
  assert.match(serviceFaults({ spec: { externalTrafficPolicy: "Local", ports } })[0] ?? "", /^externalTrafficPolicy/);
  assert.match(serviceFaults({ spec: { type: "NodePort", ports: [{ nodePort: 80 }] } })[0] ?? "", /not in 30000/);
});
