/** JSON files with more problems than the process has memory for. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { readManifestText } from "./read-manifests.ts";
import { manifestBench, serviceYaml } from "./testing/manifest-bench.ts";

const serviceJson = (ports: string): string =>
  `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":{"ports":[${ports}]}}`;
const listOf = (item: string, count: number): string =>
  `{"apiVersion":"v1","kind":"List","items":[${`${item},`.repeat(count - 1)}${item}]}`;

test("a hostile object of many bad fields is refused, names its first problems and leaves the other files alone", async () => {
  using it = await manifestBench({ "a.yaml": serviceYaml("a"), "web.json": serviceJson('{"port":80}') });
  it.temp.write("web.json", serviceJson(`${"{},".repeat(50_000)}{}`));
  it.temp.write("a.yaml", serviceYaml("a", 81));
  assert.deepEqual(await it.settle(), ["update services/default/a"]);
  assert.equal(it.servicePort("web"), 80, "the good version stays");
  const problems = it.problems();
  assert.equal(problems.length, 101);
  assert.match(problems[99] ?? "", /spec\.ports\[99\]\.port must be a whole number from 1 to 65535, got nothing$/);
  assert.equal(problems[100], "Service default/web: the object has more problems, which are not listed");
});

test("an object larger than any that an API server stores is refused before its fields are read", async () => {
  const { problems } = await readManifestText(serviceJson(`${"{},".repeat(1_500_000)}{}`), "-");
  const messages = problems.map(({ object, message }) => `${object}: ${message}`);
  assert.deepEqual(messages, [
    "Service default/web: the object must have at most 4194304 characters of JSON, got 4500084",
  ]);
});

test("a file of more values than any cluster has is refused without parsing it", async () => {
  using it = await manifestBench({ "web.json": serviceJson('{"port":80}') });
  it.temp.write("web.json", listOf("{}", 8_000_001));
  assert.deepEqual(await it.settle(), []);
  assert.equal(it.servicePort("web"), 80, "the good version stays");
  assert.deepEqual(it.problems(), [": is not parsed: it has more than 8000000 values; split it"]);
});

test("a list of many bad objects names its first problems", async () => {
  const { problems } = await readManifestText(listOf("1", 5_000), "-");
  assert.equal(problems.length, 1_001);
  assert.equal(problems.at(-1)?.message, "has more than 1000 errors; the others are not listed");
});

test("a name too long for any object is cut in messages", async () => {
  const { problems } = await readManifestText(
    `{"apiVersion":"v1","kind":"Service","metadata":{"name":"${"a".repeat(100_000)}"}}`,
    "-",
  );
  assert.ok(problems.every(({ object }) => object.length < 200));
});
