import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../../../../testkit/support/fast-check.ts";
import { isJsonObject } from "../../../../model/projection/fields.ts";
import { JsonIdentity } from "./json-identity.ts";

/** What is found in a text that arrives in chunks of this size. */
function identityIn(text: string, size = 65_536) {
  const identity = new JsonIdentity();
  const all = Buffer.from(text, "utf8");
  for (let at = 0; at < all.length; at += size) identity.add(all.subarray(at, at + size));
  return JSON.parse(identity.end().toString());
}

const known = { name: "a", namespace: "n", resourceVersion: "5" };

test("the names in an object or an event, as the API server writes them", () => {
  const of = (metadata: object) =>
    identityIn(JSON.stringify({ type: "MODIFIED", object: { kind: "X", metadata, spec: {} } }));
  const uid = "ddab-1";
  for (const fields of [
    { name: "a", namespace: "n", uid, resourceVersion: "5" },
    { name: "a", generateName: "a-", namespace: "n", uid, resourceVersion: "5" },
  ]) {
    assert.deepEqual(of(fields), { type: "MODIFIED", object: { metadata: known } });
  }
  assert.deepEqual(identityIn(JSON.stringify({ metadata: { name: "a", uid, resourceVersion: "5" } })), {
    metadata: { name: "a", resourceVersion: "5" },
  });
  assert.deepEqual(of({ labels: {} }), { type: "MODIFIED", object: { metadata: {} } });
});

test("the names may come late, amid others that look alike", () => {
  const targetRef = { metadata: { name: "x", namespace: "x", resourceVersion: "9" }, name: "x", resourceVersion: "8" };
  const metadata = {
    annotations: { name: "x", 'a"b': '"metadata":{"name":"x"}', resourceVersion: "7", long: "}".repeat(9_000) },
    ownerReferences: [{ name: "x", namespace: "x" }],
    name: "a",
    labels: { metadata: { name: "x" } },
    resourceVersion: "5",
    namespace: "n",
    uid: "é",
  };
  const object = { apiVersion: "v1", endpoints: [targetRef, [targetRef]], kind: "X", name: "x", metadata };
  for (const space of [undefined, 1]) {
    for (const size of [1, 7, 65_536]) {
      const event = JSON.stringify({ name: "x", object, type: "MODIFIED" }, undefined, space);
      assert.deepEqual(identityIn(event, size), { object: { metadata: known }, type: "MODIFIED" });
      assert.deepEqual(identityIn(JSON.stringify(object, undefined, space), size), { metadata: known });
    }
  }
});

const KEYS = ["metadata", "name", "namespace", "resourceVersion", "object", "type", "spec", "__proto__"];

function namesIn(value: unknown): unknown {
  const metadata = isJsonObject(value) && isJsonObject(value.metadata) ? value.metadata : {};
  return ["name", "namespace", "resourceVersion"].map((key) =>
    typeof metadata[key] === "string" ? metadata[key] : "",
  );
}

test("of any object, what is found is what a parser reads, escaped or not", () => {
  const { tree } = fc.letrec((tie) => ({
    tree: fc.dictionary(
      fc.constantFrom(...KEYS),
      fc.oneof({ maxDepth: 4 }, fc.string(), tie("tree"), fc.array(tie("tree"), { maxLength: 2 })),
    ),
  }));
  const asEscape = (letter: string) => `\\u00${letter.charCodeAt(0).toString(16)}`;
  fc.assert(
    fc.property(tree, fc.integer({ min: 1, max: 20 }), fc.boolean(), (value, size, isEscaped) => {
      const text = JSON.stringify(value);
      const sent = isEscaped ? text.replaceAll(/(?<!\\)[a-z]/g, asEscape) : text;
      const found = identityIn(sent, size);
      const wanted = JSON.parse(text);
      assert.deepEqual(namesIn(found), namesIn(wanted));
      assert.deepEqual(namesIn(found.object), namesIn(wanted.object));
    }),
    { numRuns: 100 },
  );
});
