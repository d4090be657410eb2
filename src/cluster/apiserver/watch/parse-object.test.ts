/** JSON of objects without who last wrote which field. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parseObject } from "./list-reader.ts";

const ENTRY = {
  manager: "kubelet",
  operation: "Update",
  apiVersion: "v1",
  time: "2026-01-01T00:00:00Z",
  fieldsType: "FieldsV1",
  fieldsV1: { "f:spec": { 'k:{"port":80,"protocol":"TCP"}': { ".": {}, "f:port": {} } } },
};

function service(metadata: object): object {
  return { kind: "Service", metadata: { name: "a", ...metadata }, spec: { ports: [{ port: 80 }] } };
}

test("managed fields are left out, and nothing else", () => {
  const labels = { labels: { app: "a" }, finalizers: ["b"] };
  for (const managedFields of [[ENTRY], [ENTRY, ENTRY], [{}]]) {
    const text = JSON.stringify(service({ ...labels, managedFields }));
    assert.deepEqual(parseObject(text), service(labels));
    const event = `{"type":"ADDED","object":${text}}`;
    assert.deepEqual(parseObject(event), { type: "ADDED", object: service(labels) });
  }
});

test("where they are not as the API server writes them, all is parsed", () => {
  const whole = [
    service({ managedFields: [] }),
    service({ managedFields: [ENTRY], labels: {} }),
    service({ managedFields: [ENTRY], ownerReferences: [{ uid: "1" }] }),
    service({ managedFields: [{ fieldsV1: { "f:a}]}": {}, "f:b": {} } }] }),
    service({ managedFields: [{ fieldsV1: { "f:a}]},": {}, "f:b": {} } }] }),
    service({ managedFields: [{ lists: [{}] }] }),
    service({ annotations: { a: ',"managedFields":[{}]}' } }),
    { metadata: { managedFields: [ENTRY] } },
  ];
  for (const object of whole) assert.deepEqual(parseObject(JSON.stringify(object)), object, JSON.stringify(object));
  assert.throws(() => parseObject('{"metadata":{"name":"a","managedFields":[{}]}'), SyntaxError);
  assert.throws(() => parseObject(""), SyntaxError);
});

test("all else that an object says is the same as without a shorter text", () => {
  // No backslash: V8 13.6 takes the key '"' for the key "\\" of an object that it has parsed before.
  const words = fc.array(fc.constantFrom('"', "}", "]", "}]}", "}]", ",", ":", "{", "[", "managedFields", "a"));
  const text = words.map((list) => list.join(""));
  const fields = fc.dictionary(text, fc.dictionary(text, fc.constant({})));
  fc.assert(
    fc.property(fields, fields, fields, text, (annotations, fieldsV1, spec, name) => {
      const object = (rest: object) => ({ metadata: { name, annotations, ...rest }, spec });
      const parsed = parseObject(JSON.stringify(object({ managedFields: [{ ...ENTRY, fieldsV1 }] })));
      // Keys that no API server lets through may make it parse everything.
      assert.ok(
        isOneOf(parsed, [object({}), object({ managedFields: [{ ...ENTRY, fieldsV1 }] })]),
        JSON.stringify(parsed),
      );
    }),
    { numRuns: 2000 },
  );
});

function isOneOf(value: unknown, wanted: readonly unknown[]): boolean {
  const text = JSON.stringify(value);
  return wanted.some((one) => JSON.stringify(one) === text);
}
