/** Files as people have them: what kubectl reads is read, with the same values. */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { test } from "node:test";
import { formatManifestProblem } from "../../../model/manifest-problem.ts";
import type { ClusterRecords, EndpointSliceRecord, ServiceRecord } from "../../../model/objects.ts";
import { readManifests, readManifestText } from "./read-manifests.ts";
import { serviceYaml, sliceYaml, TempFolder } from "./testing/manifest-bench.ts";

const namesOf = ({ services }: ClusterRecords): string[] => services.map(({ name }) => name).sort();
const textsOf = ({ problems }: ClusterRecords): string[] => problems.map(formatManifestProblem);

const serviceJson = (name: string): string =>
  JSON.stringify({ apiVersion: "v1", kind: "Service", metadata: { name }, spec: { ports: [{ port: 80 }] } });

function utf16(text: string, endian: "LE" | "BE"): Buffer {
  const bytes = Buffer.from(`\uFEFF${text}`, "utf16le");
  return endian === "LE" ? bytes : bytes.swap16();
}

for (const endian of ["LE", "BE"] as const) {
  for (const [name, text] of [
    ["web.yaml", serviceYaml("web").replaceAll("\n", "\r\n")],
    ["web.json", serviceJson("web")],
  ] as const) {
    test(`PowerShell's UTF-16 (${endian}) is read by its mark: ${name}`, async () => {
      using temp = new TempFolder();
      writeFileSync(temp.at(name), utf16(text, endian));
      const inFolder = await readManifests(temp.path);
      assert.deepEqual([namesOf(inFolder), textsOf(inFolder)], [["web"], []]);
      assert.deepEqual(namesOf(await readManifests(temp.at(name))), ["web"]);
    });
  }
}

for (const file of ["x.json", "x.yaml"]) {
  test(`events of a watch are read (--output-watch-events), the last of each object counts: ${file}`, async () => {
    const event = (type: string, name: string, port: unknown = 80) => {
      const object = { apiVersion: "v1", kind: "Service", metadata: { name }, spec: { ports: [{ port }] } };
      return JSON.stringify({ type, object }, null, 4);
    };
    const events = [
      ...[event("ADDED", "a"), event("ADDED", "b"), event("ADDED", "c", "none"), event("MODIFIED", "a", 81)],
      ...[event("DELETED", "b"), event("DELETED", "c", "none")],
    ];
    const read = await readManifestText(events.join("\n"), file);
    const { services } = read;
    assert.deepEqual(
      services.map(({ name, ports }) => [name, ports[0]?.port]),
      [["a", 81]],
    );
    assert.deepEqual(textsOf(read), [
      `${file}:35: document 3: Service default/c: object.spec.ports[0].port must be a whole number from 1 to 65535, got "none"`,
    ]);
  });
}

const RAW_SERVICES = `{"kind":"ServiceList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"a"},"spec":{"ports":[{"port":80}]}}]}`;
const RAW_SLICES = `{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","metadata":{},"items":[{"metadata":{"name":"a-1","labels":{"kubernetes.io/service-name":"a"}},"addressType":"IPv4","endpoints":[{"addresses":["10.1.0.1"]}],"ports":[{"port":8080}]}]}`;

for (const file of ["x.json", "x.yaml", "x", "x.jsonl"]) {
  const read = async (text: string) => await readManifestText(text, file);

  test(`several JSON values in ${file} are documents, one after the other or one a line`, async () => {
    for (const between of ["", "\n", "\n\n  ", "\r\n", "\n---\n"]) {
      const found = await read(`${serviceJson("a")}${between}${serviceJson("b")}${between}\n`);
      assert.deepEqual([namesOf(found), textsOf(found)], [["a", "b"], []], JSON.stringify(between));
    }
    const nested = await read(
      `${serviceJson("a").replace('"a"', '"a","annotations":{"x":"}{\\\\\\"["}')}\n${serviceJson("b")}`,
    );
    assert.deepEqual([namesOf(nested), textsOf(nested)], [["a", "b"], []]);
  });

  test(`what kubectl get --raw prints, twice, in ${file}`, async () => {
    const found = await read(`${RAW_SERVICES}\n${RAW_SLICES}\n`);
    assert.deepEqual([namesOf(found), textsOf(found)], [["a"], []]);
    assert.equal(found.endpointSlices[0]?.endpoints.length, 1);
  });

  test(`a bare list of objects in ${file}, as jq '[.items[]]' prints`, async () => {
    const found = await read(`[${serviceJson("a")},${serviceJson("b").replace("80", "0")}]`);
    assert.deepEqual(namesOf(found), ["a"]);
    assert.match(textsOf(found).join(), /Service default\/b: \[1\]\.spec\.ports\[0\]\.port must be a whole number/);
  });
}

test("a broken JSON value is named with its place, and those around it count", async () => {
  const found = await readManifestText(`${serviceJson("a")}\n{"kind": ,}\n${serviceJson("b")}\n`, "x.json");
  assert.deepEqual(namesOf(found), ["a", "b"]);
  assert.match(textsOf(found).join(), /^x\.json:2: document 2: cannot be parsed: /);
  const cut = await readManifestText(`${serviceJson("a")}\n${serviceJson("b").slice(0, 30)}`, "standard input");
  assert.deepEqual(namesOf(cut), ["a"]);
  assert.match(textsOf(cut).join(), /^standard input:2: document 2: cannot be parsed: /);
});

test("JSON and YAML in one file, and YAML that begins with a brace", async () => {
  const mixed = await readManifestText(`${serviceJson("a")}\n---\n${serviceYaml("b")}`, "x.yaml");
  assert.deepEqual([namesOf(mixed), textsOf(mixed)], [["a", "b"], []]);
  const flow = await readManifestText(
    "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 80}]}}",
    "x",
  );
  assert.deepEqual([namesOf(flow), textsOf(flow)], [["a"], []]);
});

async function portOf(written: string): Promise<ServiceRecord["ports"][number]["port"] | undefined | string> {
  const text = serviceYaml("a").replace("port: 80", `port: ${written}`);
  const found = await readManifestText(text, "a.yaml");
  return found.services[0]?.ports[0]?.port ?? textsOf(found).join();
}

test("numbers are those of YAML 1.1, as kubectl reads them", async () => {
  for (const [written, port] of [
    ["0120", 80],
    ["0o120", 80],
    ["0x50", 80],
    ["0b1010000", 80],
    ["1_000", 1000],
    ["+80", 80],
    ["80.0", 80],
    ["8e1", 80],
    ["080", 80],
    ["!!int 80", 80],
  ] as const) {
    assert.equal(await portOf(written), port, written);
  }
  // No base 60, and a quoted number is a text.
  for (const written of ["1:30", "'80'", '"0120"', "2025-01-02", "yes"]) {
    assert.match(
      String(await portOf(written)),
      /ports\[0\]\.port must be a whole number from 1 to 65535, got "/,
      written,
    );
  }
});

async function conditionsOf(ready: string): Promise<EndpointSliceRecord["endpoints"][number] | undefined | string> {
  const text = sliceYaml("a", "a").replace("] }]", `], conditions: {ready: ${ready}} }]`);
  const found = await readManifestText(text, "a.yaml");
  return found.endpointSlices[0]?.endpoints[0] ?? textsOf(found).join();
}

test("yes, on, y and their like are booleans where a boolean is wanted, and a text in names", async () => {
  const yes = await conditionsOf("true");
  const no = await conditionsOf("false");
  assert.notDeepEqual(yes, no);
  for (const word of ["yes", "Yes", "YES", "on", "On", "y", "Y", "True"])
    assert.deepEqual(await conditionsOf(word), yes, word);
  for (const word of ["no", "No", "off", "OFF", "n", "N", "FALSE"])
    assert.deepEqual(await conditionsOf(word), no, word);
  for (const word of ["y", "no", "on"]) {
    assert.deepEqual(namesOf(await readManifestText(serviceYaml(word), "a.yaml")), [word]);
    const { endpointSlices } = await readManifestText(sliceYaml("a", word), "a.yaml");
    assert.equal(endpointSlices[0]?.serviceName, word);
  }
});

test("lines may end with CR alone, and what makes a document unreadable is named", async () => {
  const cr = await readManifestText(`${serviceYaml("a")}---\n${serviceYaml("b")}`.replaceAll("\n", "\r"), "a.yaml");
  assert.deepEqual([namesOf(cr), textsOf(cr)], [["a", "b"], []]);
  const spaces = await readManifestText(serviceYaml("a").replace("  clusterIP", " \u00a0clusterIP"), "a.yaml");
  assert.match(textsOf(spaces).join(), /no-break spaces/);
  const prompt = await readManifestText(`$ kubectl get svc -o yaml\n${serviceYaml("a")}`, "a.yaml");
  assert.match(textsOf(prompt).join(), /a command between its lines/);
});

test("a number of a million digits takes no time", async () => {
  assert.match(String(await portOf("9".repeat(1_000_000))), /must be a whole number/);
  assert.match(String(await portOf(`0x${"f".repeat(1_000_000)}`)), /must be a whole number/);
});
