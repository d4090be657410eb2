/** How many clients of a hash get another endpoint when the endpoints change. */
import { type Placed, type SparseTable, type SparseTables, sparseTables, TABLE_SIZES } from "./sparse-tables.ts";

/**
 * The share of all clients whose endpoint changes between two lists, exactly: it follows the probabilities of what a client has met in
 * both, and draws none. Both lists have endpoints.
 */
export function movedShare(before: readonly Placed[], after: readonly Placed[], seed: number): number {
  const [was, is] = [sparseTables(before, seed), sparseTables(after, seed)];
  if (was === undefined || is === undefined) return 1;
  const walk = new Walk();
  for (const size of TABLE_SIZES) {
    const [one, other] = [tableOf(was, size), tableOf(is, size)];
    const [before, after] = [one?.probes ?? 0, other?.probes ?? 0];
    const both = jointSlots(one?.cells, other?.cells);
    for (let k = 0; k < Math.min(before, after); k++) walk.probe(both, size);
    const longer = before > after ? jointSlots(one?.cells, undefined) : jointSlots(undefined, other?.cells);
    for (let k = Math.min(before, after); k < Math.max(before, after); k++) walk.probe(longer, size);
  }
  // What is left gets the last choice of both.
  walk.probe(new Map([[0, [textOf(was.last), textOf(is.last)]]]), 1);
  return walk.moved;
}

function textOf({ ip, port }: Placed): string {
  return `${ip} ${port}`;
}

function tableOf<T>({ tables }: SparseTables<T>, wanted: number): SparseTable<T> | undefined {
  return tables.find(({ size }) => size === wanted);
}

/** The endpoints before and after; undefined: not decided. */
type Pair = readonly [before: string | undefined, after: string | undefined];

/** The slots that are taken before or after. */
function jointSlots(
  before: ReadonlyMap<number, Placed> = new Map(),
  after: ReadonlyMap<number, Placed> = new Map(),
): Map<number, Pair> {
  const slots = new Map<number, Pair>();
  for (const slot of new Set([...before.keys(), ...after.keys()])) {
    const [was, is] = [before.get(slot), after.get(slot)];
    slots.set(slot, [was && textOf(was), is && textOf(is)]);
  }
  return slots;
}

/** The shares of clients by what is decided. */
class Walk {
  moved = 0;
  #open = 1;
  /** The shares that only the list before has decided, by endpoint; and those that only the list after has. */
  readonly #decided = [new Map<string, number>(), new Map<string, number>()] as const;

  /** One probe of a table. */
  probe(slots: ReadonlyMap<number, Pair>, size: number): void {
    for (const side of [0, 1] as const) this.#settle(side, slots, size);
    const each = this.#open / size;
    for (const [was, is] of slots.values()) {
      this.#open -= each;
      if (was !== undefined && is !== undefined) this.moved += was === is ? 0 : each;
      else if (was !== undefined) add(this.#decided[0], was, each);
      else if (is !== undefined) add(this.#decided[1], is, each);
    }
  }

  /** Clients that one list has decided meet a slot of the other. */
  #settle(side: 0 | 1, slots: ReadonlyMap<number, Pair>, size: number): void {
    const decided = this.#decided[side];
    if (decided.size === 0) return;
    const counts = new Map<string, number>();
    let taken = 0;
    for (const pair of slots.values()) {
      const other = pair[1 - side];
      if (other === undefined) continue;
      taken += 1;
      add(counts, other, 1);
    }
    for (const [endpoint, share] of decided) {
      this.moved += (share * (taken - (counts.get(endpoint) ?? 0))) / size;
      decided.set(endpoint, share * (1 - taken / size));
    }
  }
}

function add(shares: Map<string, number>, key: string, share: number): void {
  shares.set(key, (shares.get(key) ?? 0) + share);
}
