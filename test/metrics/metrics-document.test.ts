/** docs/metrics.md against the program's definitions, against upstream's list, and against the alerts. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { parse } from "yaml";
import { MODES } from "../../src/dataplane/registry.ts";
import { definedFamilies } from "./defined-families.ts";
import { type DocumentedFamily, type MetricFamily, readMetricsDocument } from "./metrics-document.ts";
import { UPSTREAM_FAMILIES, UPSTREAM_GROUPS, UPSTREAM_SLIS } from "./upstream-families.ts";

const document = readMetricsDocument();

const sorted = (families: readonly MetricFamily[]) =>
  families
    .map(({ name, type, labels, buckets }) => ({ name, type, labels, buckets }))
    .sort((one, other) => (one.name < other.name ? -1 : 1));

test("the document names exactly the families that the program defines", async () => {
  assert.deepEqual(sorted(document.families), sorted(await definedFamilies()));
});

test("where a family is to be found is said in words that mean something", () => {
  const places = new Set(["all", ...MODES.map(({ name }) => name), "API server", "nfacct"]);
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

/** Names of series in a PromQL expression: words that are no function, label, keyword or number. */
function seriesOf(expression: string): readonly string[] {
  const bare = expression
    .replaceAll(/"[^"]*"/g, "")
    .replaceAll(/\{[^}]*\}|\[[^\]]*\]/g, " ")
    .replaceAll(/\b(by|without|on|ignoring)\s*\([^)]*\)/g, " ");
  const words = [...bare.matchAll(/(?<![\w.])[a-z_:][\w:]*\b(?!\s*\()/g)].map(([word]) => word);
  return words.filter((word) => !["and", "or", "unless", "sum", "avg", "max", "min"].includes(word));
}

test("the alerts use only series that are served, and labels that they have", () => {
  const rule = parse(readFileSync(new URL("../../deploy/prometheus-rule.yaml", import.meta.url), "utf8"));
  assert.deepEqual([rule.apiVersion, rule.kind], ["monitoring.coreos.com/v1", "PrometheusRule"]);
  const suffixes = (family: MetricFamily) =>
    family.type === "histogram" ? ["_bucket", "_sum", "_count"].map((suffix) => family.name + suffix) : [family.name];
  const served = new Set(["up", ...document.families.flatMap(suffixes)]);
  const labels = new Set(["job", "instance", "le", ...document.families.flatMap((family) => family.labels)]);
  const alerts: { alert: string; expr: string; annotations: Record<string, string> }[] = rule.spec.groups.flatMap(
    ({ rules }: { rules: unknown[] }) => rules,
  );
  assert.ok(alerts.length >= 8);
  for (const { alert, expr, annotations } of alerts) {
    const used = seriesOf(expr);
    assert.ok(used.length > 0, alert);
    for (const name of used) assert.ok(served.has(name), `${alert} uses ${name}`);
    const selectors = [...expr.matchAll(/\{([^}]*)\}|by \(([^)]*)\)/g)].flatMap(([, inside = "", grouping = ""]) => [
      ...[...inside.matchAll(/(\w+)[=!]/g)].map(([, label = ""]) => label),
      ...grouping.split(/,\s*/).filter((label) => label !== ""),
    ]);
    const texts = Object.values(annotations).join(" ");
    const mentioned = [...texts.matchAll(/\$labels\.(\w+)/g)].map(([, label = ""]) => label);
    for (const label of [...selectors, ...mentioned]) assert.ok(labels.has(label), `${alert} uses label ${label}`);
    assert.deepEqual(Object.keys(annotations), ["summary", "description"], alert);
  }
});
