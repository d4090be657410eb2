/** docs/metrics.md as data. */
import { readFileSync } from "node:fs";

/** A family as a table, a definition or a scrape shows it. */
export interface MetricFamily {
  readonly name: string;
  readonly type: string;
  /** Sorted. */
  readonly labels: readonly string[];
  /** Upper bounds but for +Inf; empty for what is no histogram. */
  readonly buckets: readonly number[];
}

export interface DocumentedFamily extends MetricFamily {
  /** The heading it stands under. */
  readonly section: string;
  /** `all`, a mode, or what else has to be there. */
  readonly where: string;
}

export interface MetricsDocument {
  /** Of `/metrics`. */
  readonly families: readonly DocumentedFamily[];
  /** Of `/metrics/slis`. */
  readonly slis: readonly DocumentedFamily[];
  /** Upstream's that are not served: names, or beginnings of names that end in `*`. */
  readonly absent: readonly string[];
}

const SLIS = "`/metrics/slis`";

export function readMetricsDocument(): MetricsDocument {
  const text = readFileSync(new URL("../../docs/metrics.md", import.meta.url), "utf8");
  const buckets = new Map<string, readonly number[]>([["", []]]);
  const families: DocumentedFamily[] = [];
  const absent: string[] = [];
  let section = "";
  let columns = 0;
  for (const line of text.split("\n")) {
    if (line.startsWith("## ")) section = line.slice(3);
    const cells = /^\|(.*)\|$/
      .exec(line)?.[1]
      ?.split("|")
      .map((cell) => cell.trim());
    if (cells === undefined) columns = 0;
    else if (columns === 0 || cells.every((cell) => /^-+$/.test(cell))) columns = cells.length;
    else {
      if (cells.length !== columns) throw new Error(`a row of ${cells.length} cells in a table of ${columns}: ${line}`);
      const [first = "", second = "", labels = "", set = "", where = ""] = cells;
      const name = first.replaceAll("`", "");
      if (columns === 6) {
        const bounds = buckets.get(set);
        if (bounds === undefined) throw new Error(`no buckets "${set}": ${line}`);
        families.push({ name, type: second, labels: sortedList(labels), buckets: bounds, section, where });
      } else if (section === "") buckets.set(name, readBounds(second));
      else absent.push(name);
    }
  }
  return {
    families: families.filter((family) => family.section !== SLIS),
    slis: families.filter((family) => family.section === SLIS),
    absent,
  };
}

function sortedList(text: string): readonly string[] {
  return text === "" ? [] : text.split(", ").sort();
}

/** `0.25, 1 to 59 by 1` and the like. */
function readBounds(text: string): readonly number[] {
  return text.split(", ").flatMap((part) => {
    const [from = Number.NaN, to = from, step = 1] = part.split(/ to | by /).map(Number);
    return Array.from({ length: (to - from) / step + 1 }, (_, index) => from + index * step);
  });
}
