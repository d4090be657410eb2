import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../../../testkit/support/fast-check.ts";
import { formatManifestProblem } from "../../../model/manifest-problem.ts";
import { recordKey } from "../../../model/objects.ts";
import { parseManifest, serviceYaml, sliceYaml } from "./testing/manifest-bench.ts";

function parse(text: string, file = "a.yaml") {
  const parsed = parseManifest(text, file);
  return {
    ...parsed,
    titles: Array.from(parsed.objects.values(), (object) => object.title),
    texts: parsed.problems.map(formatManifestProblem),
  };
}

test("documents, lists and JSON give the same objects", () => {
  const titles = ["Service default/a", "Service default/b"];
  const yaml = parse(`# two\n---\n${serviceYaml("a")}---\n---\n${serviceYaml("b")}---\n`);
  assert.deepEqual(yaml.titles, titles);
  assert.deepEqual(yaml.texts, []);
  const object = (name: string) => ({
    apiVersion: "v1",
    kind: "Service",
    metadata: { name },
    spec: { ports: [{ port: 1 }] },
  });
  const list = JSON.stringify({ apiVersion: "v1", kind: "List", items: [object("a"), object("b")] });
  assert.deepEqual(parse(list, "a.json").titles, titles);
  assert.deepEqual(parse(`\uFEFF${list}`, "a.json").titles, titles);
  assert.deepEqual(parse(list, "a.yaml").titles, titles);
  assert.deepEqual(parse("", "a.json").texts, []);
});

test("a bad field is named with file, line, document, object, field, value and what is allowed", () => {
  const { texts, titles, refusedIds } = parse(`${serviceYaml("a")}---\n${serviceYaml("b", 65536)}`);
  assert.deepEqual(titles, ["Service default/a"]);
  assert.deepEqual([...refusedIds], ["Service/default/b"]);
  assert.deepEqual(texts, [
    "a.yaml:17: document 2: Service default/b: spec.ports[0].port must be a whole number from 1 to 65535, got 65536",
  ]);
});

test("a field in a list is named with its place in the list", () => {
  const item = serviceYaml("b", 0).trim().replaceAll("\n", "\n    ");
  const { problems } = parse(`apiVersion: v1\nkind: ServiceList\nitems:\n  - ${item}\n`);
  assert.deepEqual([problems[0]?.field, problems[0]?.line], ["items[0].spec.ports[0].port", 11]);
});

test("a broken document is named with its line, and the documents around it count", () => {
  const { titles, texts, isIncomplete } = parse(`${serviceYaml("a")}---\na: [\n---\n${serviceYaml("b")}`);
  assert.deepEqual(titles, ["Service default/a", "Service default/b"]);
  assert.equal(texts.length, 1);
  assert.match(texts[0] ?? "", /^a\.yaml:11: document 2: cannot be parsed: /);
  assert.equal(isIncomplete, true);
});

test("a broken document is named as the object it seems to be", () => {
  const { problems } = parse(`${serviceYaml("a")}spec: {}\n`);
  assert.equal(problems[0]?.object, "Service default/a");
  assert.match(problems[0]?.message ?? "", /unique/);
});

test("a template that was not rendered is called one", () => {
  const name = "metadata:\n  name: {{ .Release.Name }}-web\n";
  const { texts } = parse(`apiVersion: v1\nkind: Service\n${name}`);
  assert.match(texts[0] ?? "", /cannot be parsed: .*; it looks like a template: render it first \(helm template\)$/);
});

test("broken JSON is quoted where it breaks, on one line", () => {
  const { texts } = parse('{\n"kind": ,\n}', "a.json");
  assert.match(texts[0] ?? "", /^a\.json: document 1: cannot be parsed: .*"kind": ,.*$/);
});

test("an object defined twice in a file is taken from the first definition", () => {
  const { objects, texts } = parse(`${serviceYaml("a", 1)}---\n${serviceYaml("a", 2)}`);
  const record = objects.get("Service/default/a")?.found?.record;
  assert.ok(record !== undefined && "clusterIP" in record);
  assert.equal(record.ports[0]?.port, 1);
  assert.match(texts[0] ?? "", /^a\.yaml:10: document 2: Service default\/a: is defined twice: the one in line 1/);
});

test("other kinds are ignored, garbage is not", () => {
  const { ignored, texts } = parse("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n---\njust words\n");
  assert.deepEqual(ignored, ["Deployment default/d"]);
  assert.equal(texts.length, 1);
  assert.match(
    texts[0] ?? "",
    /document 2: document: the object must be a Kubernetes object, as kubectl get -o yaml prints, got "just words"/,
  );
});

test("a bomb of aliases is refused", () => {
  const levels = Array.from(
    { length: 12 },
    (_, i) =>
      `l${i}: &l${i} [${Array(10)
        .fill(i === 0 ? "x" : `*l${i - 1}`)
        .join(",")}]`,
  );
  const { texts } = parse(`${levels.join("\n")}\n`);
  assert.match(texts[0] ?? "", /cannot be parsed: .*alias/i);
});

test("arbitrary text never throws", () => {
  const pieces = fc.constantFrom(
    "---\n",
    "- ",
    ": ",
    "{",
    "}",
    "[",
    "]",
    '"',
    "'",
    "|\n",
    "&a ",
    "*a",
    "\t",
    "\n",
    "!!binary ",
    "%YAML 1.1\n",
    "\u0000",
    "? ",
    "<<: ",
    "__proto__: 1\n",
    serviceYaml("a"),
    sliceYaml("b", "a"),
  );
  const text = fc.oneof(
    fc.string({ unit: "binary" }),
    fc.array(fc.oneof(pieces, fc.string())).map((parts) => parts.join("")),
  );
  fc.assert(
    fc.property(text, fc.constantFrom("a.yaml", "a.json"), (content, file) => {
      const { problems, objects } = parseManifest(content, file);
      for (const problem of problems) assert.ok(problem.message.length > 0);
      for (const { found } of objects.values()) {
        if (found !== undefined) assert.match(recordKey(found.record), /^[-a-z0-9./]+$/);
      }
    }),
    { numRuns: 300 },
  );
});

test("nesting deeper than the stack is one bad document", () => {
  const { texts } = parse(`${serviceYaml("a")}---\n${"[".repeat(20_000)}`);
  assert.ok(texts.length > 0);
});
