/** The rules in both forms, the runbook that they lead to, and the dashboard. */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { parse, stringify } from "yaml";
import { CommandError, runCommand } from "../../testkit/net/run-command.ts";
import { anchorsOf, CHECKOUT } from "../docs/markdown.ts";
import { readMetricsDocument } from "../metrics/metrics-document.ts";
import { promqlFaults } from "../metrics/promql.ts";
import { findPromtool } from "./promtool.ts";

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly annotations: { readonly runbook_url: string };
}

interface RuleFile {
  readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[];
}

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly targets?: readonly { readonly refId: string; readonly expr: string; readonly legendFormat: string }[];
}

const RULES = join(CHECKOUT, "deploy/chart/files/rules.yaml");
const RUNBOOK = "https://kube-proxy-ts.example/docs/operations.md";
const rules: RuleFile = parse(readFileSync(RULES, "utf8"));
const dashboard: {
  readonly uid: string;
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly { readonly name: string }[] };
} = JSON.parse(readFileSync(join(CHECKOUT, "deploy/chart/files/dashboard.json"), "utf8"));

/** Has Prometheus' own tool read a rule file, or try one. */
const checkRules = (t: TestContext, path: string) => promtool(t, "check", path);

async function promtool(t: TestContext, command: "check" | "test", path: string): Promise<void> {
  let program: string;
  try {
    program = await findPromtool();
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    t.skip(`promtool, of the Debian package prometheus, cannot be had: ${error.message}`);
    return;
  }
  await runCommand([program, command, "rules", path]);
}

test("the rule file and the PrometheusRule are the same rules", () => {
  const resource = parse(readFileSync(join(CHECKOUT, "deploy/prometheus-rule.yaml"), "utf8"));
  assert.deepEqual(resource.spec, rules);
});

test("each alert leads to its own heading in the operations guide", () => {
  const anchors = anchorsOf("docs/operations.md");
  for (const { alert, annotations } of rules.groups.flatMap((group) => group.rules)) {
    assert.equal(annotations.runbook_url, `${RUNBOOK}#${alert.toLowerCase()}`);
    assert.ok(anchors.has(alert.toLowerCase()), `docs/operations.md has no heading ${alert}`);
  }
});

test("one page for many nodes that are down, and one when nothing is scraped", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-rules-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const series = (down: number) =>
    Array.from({ length: 200 }, (_, index) => ({
      series: `up{job="kube-proxy", instance="node-${index}"}`,
      values: `${index < down ? 0 : 1}x10`,
    }));
  const alerting = (share: string, labels: object) => ({
    exp_labels: { severity: "critical", ...labels },
    exp_annotations: {
      ...rules.groups[0]?.rules[0]?.annotations,
      summary: `kube-proxy does not answer on ${share} of the nodes`,
    },
  });
  const job = { job: "kube-proxy" };
  const cases = [
    { input_series: series(1), exp_alerts: [] },
    { input_series: series(50), exp_alerts: [alerting("25%", job)] },
    { input_series: [], exp_alerts: [alerting("100%", job)] },
  ];
  const path = join(folder, "test.yaml");
  const tests = cases.map(({ input_series, exp_alerts }) => ({
    interval: "1m",
    input_series,
    alert_rule_test: [{ eval_time: "8m", alertname: "KubeProxyDown", exp_alerts }],
  }));
  writeFileSync(path, stringify({ rule_files: [RULES], tests }));
  await promtool(t, "test", path);
});

test("one alert for a cluster of many nodes, with the number of those concerned", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-fleet-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const nodes = Array.from({ length: 400 }, (_, index) => `job="kube-proxy", instance="node-${index}"`);
  const series = (name: string, labels: string, valuesOf: (index: number) => string) =>
    nodes.map((node, index) => ({ series: `${name}{${node}${labels}}`, values: valuesOf(index) }));
  const input_series = [
    ...series("kubeproxy_ts_source_last_heard_timestamp_seconds", ', resource="services"', (at) =>
      at < 7 ? "0x60" : "0+60x60",
    ),
    ...series("kubeproxy_ts_source_last_heard_timestamp_seconds", ', resource="nodes"', () => "0+60x60"),
    ...series("process_resident_memory_bytes", "", (at) => (at < 3 ? "500000000x60" : "180000000x60")),
    ...series("kubeproxy_sync_proxy_rules_nftables_sync_failures_total", ', ip_family="IPv4"', (at) =>
      at < 2 ? "0+1x60" : "0x60",
    ),
    ...series("kubeproxy_conntrack_entries", "", (at) => (at < 5 ? "950x60" : "100x60")),
    ...series("kubeproxy_conntrack_max_entries", "", () => "1000x60"),
    // Full, and it has lost something: still one node.
    ...series("kubeproxy_conntrack_lost_total", ', reason="table_full"', (at) => (at < 1 ? "0+1x60" : "0x60")),
  ];
  const alert_rule_test = Object.entries({
    KubeProxySourceSilent: 7,
    KubeProxyMemoryHigh: 3,
    KubeProxyRulesRefused: 2,
    KubeProxyConntrackFull: 5,
  }).map(([alertname, count]) => {
    const rule = rules.groups[0]?.rules.find(({ alert }) => alert === alertname) ?? assert.fail(alertname);
    const exp_annotations = Object.fromEntries(
      Object.entries(rule.annotations).map(([name, text]) => [name, text.replace("{{ $value }}", String(count))]),
    );
    return {
      eval_time: "50m",
      alertname,
      exp_alerts: [{ exp_labels: { severity: "warning", job: "kube-proxy" }, exp_annotations }],
    };
  });
  const path = join(folder, "test.yaml");
  writeFileSync(path, stringify({ rule_files: [RULES], tests: [{ interval: "1m", input_series, alert_rule_test }] }));
  await promtool(t, "test", path);
});

test("promtool takes the rule file", async (t) => {
  await checkRules(t, RULES);
});

const queries = dashboard.panels.flatMap(({ title, targets = [] }) => targets.map((target) => ({ title, ...target })));

test("the dashboard shows only series that are served, and labels that they have", () => {
  assert.ok(queries.length >= 15);
  const document = readMetricsDocument();
  for (const { title, expr, legendFormat } of queries) {
    assert.deepEqual(promqlFaults(document, expr, [legendFormat]), [], title);
    const variables = [...expr.matchAll(/\$(\w+)/g)].map(([, name = ""]) => name);
    const known = ["__rate_interval", ...dashboard.templating.list.map(({ name }) => name)];
    for (const name of variables) assert.ok(known.includes(name), `${title} uses $${name}`);
  }
});

test("promtool takes every query of the dashboard", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-dashboard-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const recorded = queries.map(({ expr }, index) => ({
    record: `query_${index}`,
    expr: expr.replaceAll("$__rate_interval", "5m").replaceAll(/\$\w+/g, ".*"),
  }));
  const path = join(folder, "queries.yaml");
  writeFileSync(path, stringify({ groups: [{ name: "queries", rules: recorded }] }));
  await checkRules(t, path);
});

test("the panels of the dashboard have ids of their own and do not overlap", () => {
  const ids = dashboard.panels.map(({ id }) => id);
  assert.equal(new Set(ids).size, ids.length);
  const taken = new Set<string>();
  for (const { title, gridPos } of dashboard.panels) {
    assert.ok(gridPos.x + gridPos.w <= 24, title);
    for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++) {
      for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
        assert.ok(!taken.has(`${x} ${y}`), `${title} overlaps`);
        taken.add(`${x} ${y}`);
      }
    }
  }
});
