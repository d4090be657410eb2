/** Figures as aligned text, and their targets. */

/** Of single samples. */
export interface Spread {
  readonly count: number;
  readonly p50: number;
  readonly p99: number;
  readonly worst: number;
}

/** Whether a target is met. */
export interface Verdict {
  readonly passed: boolean;
  readonly text: string;
}

/** Milliseconds, unless its name says otherwise; for samples p50 / p99 / worst. `wanted` is an upper limit, for samples on their p50. */
export interface Figure {
  readonly value: number | Spread | string;
  readonly wanted?: number;
}

/** By name, in the order in which they were measured. */
export type Figures = Readonly<Record<string, Figure>>;

/** What a worker measured. */
export class Notes {
  readonly figures: Record<string, Figure> = {};

  /** @param value undefined, or not a finite number: not measured. @param wanted upper limit. */
  add(name: string, value: Figure["value"] | undefined, wanted?: number): void {
    if (name in this.figures) throw new Error(`${name} has been measured`);
    if (value === undefined || (typeof value === "number" && !Number.isFinite(value))) return;
    this.figures[name] = { value, ...(wanted !== undefined && { wanted }) };
  }
}

/** The number that stands for a figure; undefined if it is not a number. */
export function numberOf(figure: Figure | undefined): number | undefined {
  if (figure === undefined || typeof figure.value === "string") return undefined;
  return typeof figure.value === "object" ? figure.value.p50 : figure.value;
}

const namesOf = (all: readonly Figures[]): readonly string[] => [...new Set(all.flatMap((one) => Object.keys(one)))];

/** For each figure, the middle of all runs that have it. */
export function middleOf(runs: readonly Figures[]): Figures {
  const [only = {}, another] = runs;
  if (another === undefined) return only;
  return Object.fromEntries(
    namesOf(runs).map((name) => {
      const found = runs.flatMap((run) => run[name] ?? []);
      const [first = { value: 0 }] = found;
      const numbers = found.flatMap((figure) => numberOf(figure) ?? []);
      return [name, numbers.length < 2 ? first : { ...first, value: median(numbers) }];
    }),
  );
}

/** Each figure of the one relative to the other's. */
export function ratioOf(one: Figures, other: Figures): Figures {
  const notes = new Notes();
  for (const [name, figure] of Object.entries(one)) {
    const [value, than] = [numberOf(figure), numberOf(other[name])];
    if (value !== undefined && than !== undefined) notes.add(name, value / than);
  }
  return notes.figures;
}

/** If there are more columns than fit on a screen, they become rows. */
const MOST_COLUMNS = 6;

/** A column for each result, by its title; a row if there are many. */
export function figuresTable(head: string, columns: Readonly<Record<string, Figures>>): string {
  const results = Object.values(columns);
  const textOf = (figure: Figure | undefined): string => {
    if (figure === undefined) return "–";
    const { value } = figure;
    if (typeof value === "string") return value;
    return typeof value === "object" ? [value.p50, value.p99, value.worst].map(ms).join(" / ") : ms(value);
  };
  const names = namesOf(results);
  if (results.length > MOST_COLUMNS) {
    const rows = Object.entries(columns).map(([title, figures]) => [
      title,
      ...names.map((name) => textOf(figures[name])),
    ]);
    return table([head, ...names.map((name) => name.trim())], rows);
  }
  const rows = names.map((name) => [name, ...results.map((figures) => textOf(figures[name]))]);
  return table([head, ...Object.keys(columns)], rows);
}

/** One for each figure with a target. */
export function judgeFigures(columns: Readonly<Record<string, Figures>>): readonly Verdict[] {
  return Object.entries(columns).flatMap(([column, figures]) =>
    Object.entries(figures).flatMap(([name, figure]) => {
      const value = numberOf(figure);
      return value === undefined || figure.wanted === undefined
        ? []
        : [atMost(`${column}: ${name.trim()}`, value, figure.wanted)];
    }),
  );
}

/** The cost of a figure in the last column, relative to the cheapest other. */
export function judgeGrowth(
  name: string,
  columns: Readonly<Record<string, Figures>>,
  limit: number,
): readonly Verdict[] {
  const values = Object.values(columns).flatMap((figures) => numberOf(figures[name]) ?? []);
  const last = values.pop();
  if (last === undefined || values.length === 0) return [];
  const what = `${name}: ${Object.keys(columns).at(-1)}, of the cheapest other size`;
  return [atMost(what, last / Math.min(...values), limit)];
}

/** A target with an upper limit. */
export function atMost(what: string, value: number, limit: number, text: (value: number) => string = ms): Verdict {
  return { passed: value <= limit, text: `${what}: ${text(value)}, at most ${text(limit)} wanted` };
}

/** Columns as wide as their widest cell; the first one left-aligned, numbers right-aligned. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((title, at) => Math.max(title.length, ...rows.map((row) => (row[at] ?? "").length)));
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, at) => (at === 0 ? cell.padEnd(widths[at] ?? 0) : cell.padStart(widths[at] ?? 0)))
      .join("  ")
      .trimEnd();
  return [line(head), line(widths.map((width) => "─".repeat(width))), ...rows.map(line)].join("\n");
}

/** With as many decimals as matter. */
export function ms(value: number): string {
  if (Number.isInteger(value)) return String(value);
  return value < 0.1
    ? value.toFixed(4)
    : value >= 100
      ? value.toFixed(0)
      : value >= 10
        ? value.toFixed(1)
        : value.toFixed(2);
}

/** Bytes as `17.8 MB`, `3.1 kB`. */
export function size(bytes: number): string {
  if (bytes >= 1e6) return `${(bytes / 1e6).toFixed(1)} MB`;
  return bytes >= 1000 ? `${(bytes / 1000).toFixed(1)} kB` : `${bytes} B`;
}

export function megabytes(value: number): string {
  return value.toFixed(0);
}

/** The value below which the given part of the sorted samples lies; 0 without samples. @param part 0 to 1. */
export function quantile(samples: readonly number[], part: number): number {
  const sorted = [...samples].sort((a, b) => a - b);
  const last = sorted.length - 1;
  const at = Math.min(Math.max(part, 0), 1) * last;
  const low = sorted[Math.floor(at)] ?? 0;
  const high = sorted[Math.ceil(at)] ?? low;
  return low + (high - low) * (at - Math.floor(at));
}

/** The middle sample. */
export function median(samples: readonly number[]): number {
  return quantile(samples, 0.5);
}

export function spread(samples: readonly number[]): Spread {
  const [p50, p99, worst] = [quantile(samples, 0.5), quantile(samples, 0.99), quantile(samples, 1)];
  return { count: samples.length, p50, p99, worst };
}

/** With this many decimals. */
export const fixed =
  (digits: number) =>
  (value: number): string =>
    value.toFixed(digits);

export async function timed(work: () => Promise<unknown>): Promise<number> {
  const startMs = performance.now();
  await work();
  return performance.now() - startMs;
}
