/** docs/metrics.md against the program's definitions, against upstream's list, and against the alerts. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { parse } from "yaml";
import { MODES } from "../../src/modes/registry.ts";
import { definedFamilies } from "./defined-families.ts";
import { type DocumentedFamily, type MetricFamily, readMetricsDocument } from "./metrics-document.ts";
import { promqlFaults } from "./promql.ts";
import { UPSTREAM_FAMILIES, UPSTREAM_GROUPS, UPSTREAM_SLIS } from "./upstream-families.ts";

const document = readMetricsDocument();

const sorted = (families: readonly MetricFamily[]) =>
  families
    .map(({ name, type, labels, buckets }) => ({ name, type, labels, buckets }))
    .sort((one, other) => (one.name < other.name ? -1 : 1));

test("the document names exactly the families that the program defines", async () => {
  assert.deepEqual(sorted(document.families), sorted(definedFamilies()));
});

test("where a family is to be found is said in words that mean something", () => {
  const places = new Set(["all", ...MODES.map(({ name }) => name), "API server", "nfacct", "where asked for"]);
  const isUnknown = ({ where }: DocumentedFamily) => where.split(", ").some((place) => !places.has(place));
  assert.deepEqual([...document.families, ...document.slis].filter(isUnknown), []);
});

test("each of upstream's families is served as upstream serves it, or is named with the reason why not", () => {
  const isAbsent = ({ name }: MetricFamily) =>
    document.absent.some((entry) => (entry.endsWith("*") ? name.startsWith(entry.slice(0, -1)) : name === entry));
  const isOurs = ({ section }: DocumentedFamily) => section === "Only here";
  assert.deepEqual(
    sorted(document.families.filter((family) => !isOurs(family))),
    sorted(UPSTREAM_FAMILIES.filter((family) => !isAbsent(family))),
  );
  const upstream = new Set(UPSTREAM_FAMILIES.map(({ name }) => name));
  assert.deepEqual(
    document.families.filter((family) => isOurs(family) && upstream.has(family.name)),
    [],
  );
  assert.deepEqual(sorted(document.slis), sorted(UPSTREAM_SLIS));
});

test("what is said not to be here is upstream's", () => {
  const prefixes = document.absent.filter((entry) => !UPSTREAM_GROUPS.includes(entry));
  assert.deepEqual(prefixes, ["rest_client_transport_*"]);
  for (const group of UPSTREAM_GROUPS) assert.ok(document.absent.includes(group), group);
});

test("the alerts use only series that are served, and labels that they have", () => {
  const rule = parse(readFileSync(new URL("../../deploy/prometheus-rule.yaml", import.meta.url), "utf8"));
  assert.deepEqual([rule.apiVersion, rule.kind], ["monitoring.coreos.com/v1", "PrometheusRule"]);
  const alerts: { alert: string; expr: string; annotations: Record<string, string> }[] = rule.spec.groups.flatMap(
    ({ rules }: { rules: unknown[] }) => rules,
  );
  assert.ok(alerts.length >= 10);
  for (const { alert, expr, annotations } of alerts) {
    assert.deepEqual(promqlFaults(document, expr, Object.values(annotations)), [], alert);
    assert.deepEqual(Object.keys(annotations), ["summary", "description", "runbook_url"], alert);
  }
});
