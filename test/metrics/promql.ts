/** What a PromQL expression names, as far as alerts and dashboards of this project go. */
import type { MetricFamily, MetricsDocument } from "./metrics-document.ts";

/** Names of series in a PromQL expression: words that are no function, label, keyword or number. */
export function seriesOf(expression: string): readonly string[] {
  const bare = expression
    .replaceAll(/"[^"]*"/g, "")
    .replaceAll(/\{[^}]*\}|\[[^\]]*\]/g, " ")
    .replaceAll(/\b(by|without|on|ignoring)\s*\([^)]*\)/g, " ");
  const words = [...bare.matchAll(/(?<![\w.])[a-z_:][\w:]*\b(?!\s*\()/g)].map(([word]) => word);
  return words.filter((word) => !["and", "or", "unless", "sum", "avg", "max", "min"].includes(word));
}

/** Labels in its selectors and groupings. */
function labelsOf(expression: string): readonly string[] {
  return [...expression.matchAll(/\{([^}]*)\}|by \(([^)]*)\)/g)].flatMap(([, inside = "", grouping = ""]) => [
    ...[...inside.matchAll(/(\w+)\s*[=!]/g)].map(([, label = ""]) => label),
    ...grouping.split(/,\s*/).filter((label) => label !== ""),
  ]);
}

/** Labels that a text of an alert, or a legend, mentions. */
function labelsIn(text: string): readonly string[] {
  return [...text.matchAll(/\$labels\.(\w+)|\{\{\s*(\w+)\s*\}\}/g)].map(([, label, legend]) => label ?? legend ?? "");
}

/** What is wrong with an expression and the texts beside it: series and labels that the document does not have. */
export function promqlFaults(
  document: MetricsDocument,
  expression: string,
  texts: readonly string[],
): readonly string[] {
  const suffixes = (family: MetricFamily) =>
    family.type === "histogram" ? ["_bucket", "_sum", "_count"].map((suffix) => family.name + suffix) : [family.name];
  const served = new Set(["up", ...document.families.flatMap(suffixes)]);
  const labels = new Set(["job", "instance", "le", ...document.families.flatMap((family) => family.labels)]);
  const used = seriesOf(expression);
  return [
    ...(used.length > 0 ? [] : ["no series"]),
    ...used.filter((name) => !served.has(name)).map((name) => `no series ${name}`),
    ...[...labelsOf(expression), ...texts.flatMap(labelsIn)]
      .filter((label) => !labels.has(label))
      .map((label) => `no label ${label}`),
  ];
}
