/** How many clients of a hash get another endpoint when the endpoints change: exactly, from the odds of what a client meets. */
import { ALL_HASHES, byRank, hashTurns } from "./hash-order.ts";
import { type Placed, type SparseTable, type SparseTables, sparseTables, TABLE_SIZES } from "./sparse-tables.ts";

/** The share of all clients whose endpoint changes between two lists that sparse tables hold. Both have endpoints. */
export function movedShare(before: readonly Placed[], after: readonly Placed[], seed: number): number {
  const [was, is] = [sparseTables(before, seed), sparseTables(after, seed)];
  if (was === undefined || is === undefined) return 1;
  const walk = new Walk();
  for (const size of TABLE_SIZES) {
    const [one, other] = [tableOf(was, size), tableOf(is, size)];
    const [before, after] = [one?.probes ?? 0, other?.probes ?? 0];
    const both = probeOf(size, one?.cells, other?.cells);
    for (let k = 0; k < Math.min(before, after); k++) walk.draw(both);
    const longer = before > after ? probeOf(size, one?.cells, undefined) : probeOf(size, undefined, other?.cells);
    for (let k = Math.min(before, after); k < Math.max(before, after); k++) walk.draw(longer);
  }
  // What is left gets the last choice of both.
  walk.draw([[textOf(was.last), textOf(is.last), 1]]);
  return walk.moved;
}

/** The same where endpoints are asked in turn. */
export function movedInOrder(before: readonly Placed[], after: readonly Placed[], seed: number): number {
  const lists = [before, after].map((list) => new Map(hashTurns(list, seed).map((turn) => [turn.seed, turn])));
  const all = [...new Map(lists.flatMap((list) => [...list])).values()].sort(byRank).reverse();
  const walk = new Walk();
  for (const { seed: own } of all) {
    const [was, is] = lists.map((list) => list.get(own));
    const [one, other] = [was && textOf(was.endpoint), is && textOf(is.endpoint)];
    const [before, after] = [(was?.below ?? 0) / ALL_HASHES, (is?.below ?? 0) / ALL_HASHES];
    const both = Math.min(before, after);
    walk.draw([
      [one, other, both],
      [one, undefined, before - both],
      [undefined, other, after - both],
    ]);
  }
  return walk.moved;
}

function textOf({ ip, port }: Placed): string {
  return `${ip} ${port}`;
}

function tableOf<T>({ tables }: SparseTables<T>, wanted: number): SparseTable<T> | undefined {
  return tables.find(({ size }) => size === wanted);
}

/** What a client may meet: the endpoints before and after, undefined where it is not decided yet, and how likely that is. */
type Outcome = readonly [before: string | undefined, after: string | undefined, odds: number];

/** One probe of a table of this size, by the slots that are taken before or after. */
function probeOf(
  size: number,
  before: ReadonlyMap<number, Placed> = new Map(),
  after: ReadonlyMap<number, Placed> = new Map(),
): Outcome[] {
  return Array.from(new Set([...before.keys(), ...after.keys()]), (slot) => {
    const [was, is] = [before.get(slot), after.get(slot)];
    return [was && textOf(was), is && textOf(is), 1 / size];
  });
}

/** The shares of clients by what is decided. */
class Walk {
  moved = 0;
  #open = 1;
  /** The shares that only the list before has decided, by endpoint; and those that only the list after has. */
  readonly #decided = [new Map<string, number>(), new Map<string, number>()] as const;

  /** All clients meet one of these outcomes, or none. */
  draw(outcomes: readonly Outcome[]): void {
    for (const side of [0, 1] as const) this.#settle(side, outcomes);
    const open = this.#open;
    for (const [was, is, odds] of outcomes) {
      const share = open * odds;
      this.#open -= share;
      if (was !== undefined && is !== undefined) this.moved += was === is ? 0 : share;
      else if (was !== undefined) add(this.#decided[0], was, share);
      else if (is !== undefined) add(this.#decided[1], is, share);
    }
  }

  /** Clients that one list has decided meet what the other decides. */
  #settle(side: 0 | 1, outcomes: readonly Outcome[]): void {
    const decided = this.#decided[side];
    if (decided.size === 0) return;
    const others = new Map<string, number>();
    let sum = 0;
    for (const outcome of outcomes) {
      const [other, odds] = [outcome[1 - side], outcome[2]];
      if (typeof other !== "string") continue;
      sum += odds;
      add(others, other, odds);
    }
    for (const [endpoint, share] of decided) {
      this.moved += share * (sum - (others.get(endpoint) ?? 0));
      decided.set(endpoint, share * (1 - sum));
    }
  }
}

function add(shares: Map<string, number>, key: string, share: number): void {
  shares.set(key, (shares.get(key) ?? 0) + share);
}
