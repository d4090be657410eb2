/**
 * How often each endpoint stands among those that a new connection draws from: its cells. Every mode draws from the same ones, so
 * an endpoint has the same share in all of them. Without weights, each has one cell.
 */
import type { Endpoint } from "./endpoint.ts";

/** The weight of an endpoint whose slice names none while another one does; Cilium has the same. */
export const DEFAULT_WEIGHT = 100;
/** Up to this weight, cells are weights. */
const MOST_EXACT = 16;
/** Larger weights are halved until the mean is below this. */
const MOST_ON_AVERAGE = 32;
/** The most cells of a service port, unless it has more endpoints. */
export const MOST_CELLS = 4096;

/** An endpoint whose slice has weight 0 gets no new connections; open ones stay. */
export function isDrained({ weight }: Pick<Endpoint, "weight">): boolean {
  return weight === 0;
}

/** The endpoints that are not drained; the same list if none is. */
export function undrained(endpoints: readonly Endpoint[]): readonly Endpoint[] {
  return endpoints.some(isDrained) ? endpoints.filter((endpoint) => !isDrained(endpoint)) : endpoints;
}

/**
 * The cells of each endpoint, none of which is drained. Weights are halved, all alike, until there are few enough cells. They are
 * not divided by a common divisor: the cells of the others should stay when one endpoint comes or goes.
 */
export function cellsOf(endpoints: readonly Pick<Endpoint, "weight">[]): readonly number[] {
  if (endpoints.length <= 1 || endpoints.every(({ weight }) => weight === undefined)) return endpoints.map(() => 1);
  for (let unit = 1; ; unit *= 2) {
    let sum = 0;
    let largest = 0;
    const cells = endpoints.map(({ weight = DEFAULT_WEIGHT }) => Math.max(1, Math.floor(weight / unit + 0.5)));
    for (const count of cells) {
      sum += count;
      largest = Math.max(largest, count);
    }
    const isFew = largest <= MOST_EXACT || sum < MOST_ON_AVERAGE * endpoints.length;
    if (largest === 1 || (isFew && sum <= MOST_CELLS)) return cells;
  }
}

/** The share of new connections that each endpoint gets. */
export function sharesOf(endpoints: readonly Pick<Endpoint, "weight">[]): readonly number[] {
  const cells = cellsOf(endpoints);
  const sum = cells.reduce((total, count) => total + count, 0);
  return cells.map((count) => count / sum);
}

/** Each endpoint as often as it has cells, its copies side by side; the same list if each has one. */
export function inCells<T extends Pick<Endpoint, "weight">>(endpoints: readonly T[]): readonly T[] {
  // Nearly all have none, and flat plans ask with every change.
  if (endpoints.every(({ weight }) => weight === undefined)) return endpoints;
  const cells = cellsOf(endpoints);
  if (cells.every((count) => count === 1)) return endpoints;
  return endpoints.flatMap((endpoint, index) => Array<T>(cells[index] ?? 1).fill(endpoint));
}

/** Whether some endpoints get more connections than others, by weight. */
export function isWeighted(endpoints: readonly Pick<Endpoint, "weight">[]): boolean {
  return inCells(endpoints) !== endpoints;
}
