/** Figures as aligned text, and what is wanted of them. Pure. */

/** Of single samples. */
export interface Spread {
  readonly count: number;
  readonly p50: number;
  readonly p99: number;
}

/** Whether a target is met. */
export interface Verdict {
  readonly passed: boolean;
  readonly text: string;
}

/** A row of a table that has a column for each result. Where a value is undefined, it was not measured; `wanted` is the most that is. */
export type Row<F> = readonly [
  title: string,
  of: (figures: F) => number | string | Spread | undefined,
  text?: (value: number) => string,
  wanted?: number | ((figures: F) => number | undefined),
];

/** Rows that no result has are left out. */
export function figuresTable<F>(
  head: string,
  columns: readonly string[],
  results: readonly F[],
  rows: readonly Row<F>[],
): string {
  const cells = rows.map(([title, of, text = ms]) => {
    const values = results.map(of);
    const cellOf = (value: ReturnType<typeof of>): string => {
      if (value === undefined) return "–";
      if (typeof value === "object") return `${text(value.p50)} / ${text(value.p99)}`;
      return typeof value === "string" ? value : text(value);
    };
    return values.every((value) => value === undefined) ? [] : [title, ...values.map(cellOf)];
  });
  return table(
    [head, ...columns],
    cells.filter(({ length }) => length > 0),
  );
}

/** Of each row that something is wanted of, for each result that has it; of a spread p50. */
export function judgeFigures<F>(
  columns: readonly string[],
  results: readonly F[],
  rows: readonly Row<F>[],
): readonly Verdict[] {
  return results.flatMap((figures, at) =>
    rows.flatMap(([title, of, text = ms, wanted]) => {
      const value = of(figures);
      const limit = typeof wanted === "function" ? wanted(figures) : wanted;
      if (value === undefined || typeof value === "string" || limit === undefined) return [];
      return [atMost(`${columns[at]}: ${title.trim()}`, typeof value === "object" ? value.p50 : value, limit, text)];
    }),
  );
}

/** At most so much is wanted. */
export function atMost(what: string, value: number, limit: number, text: (value: number) => string = ms): Verdict {
  return { passed: value <= limit, text: `${what}: ${text(value)}, at most ${text(limit)} wanted` };
}

/** Columns as wide as their widest cell; the first to the left, numbers to the right. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((title, at) => Math.max(title.length, ...rows.map((row) => (row[at] ?? "").length)));
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, at) => (at === 0 ? cell.padEnd(widths[at] ?? 0) : cell.padStart(widths[at] ?? 0)))
      .join("  ")
      .trimEnd();
  return [line(head), line(widths.map((width) => "─".repeat(width))), ...rows.map(line)].join("\n");
}

/** Milliseconds, with as many decimals as matter. */
export function ms(value: number): string {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** Bytes as `17.8 MB`, `3.1 kB`. */
export function size(bytes: number): string {
  if (bytes >= 1e6) return `${(bytes / 1e6).toFixed(1)} MB`;
  return bytes >= 1000 ? `${(bytes / 1000).toFixed(1)} kB` : `${bytes} B`;
}

export function megabytes(value: number): string {
  return value.toFixed(0);
}

/** The value below which the given part of the sorted samples lies; 0 for no samples. @param part 0 to 1. */
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
  return { count: samples.length, p50: quantile(samples, 0.5), p99: quantile(samples, 0.99) };
}

/** With so many decimals. */
export const fixed =
  (digits: number) =>
  (value: number): string =>
    value.toFixed(digits);

export async function timed(work: () => Promise<unknown>): Promise<number> {
  const startMs = performance.now();
  await work();
  return performance.now() - startMs;
}
