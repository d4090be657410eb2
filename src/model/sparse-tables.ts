/**
 * Which endpoint a hash chooses: sparse tables. An endpoint has as many slots as cells in each of a few tables that are far larger than
 * the number of cells. A client's hash names a slot; if that is empty, the hash with the next seed decides. Who has which slot
 * depends on the endpoints alone, not on their order or history, and few clients move when an endpoint comes or goes.
 */
import { clientKey, type Hashing } from "../net/balancing.ts";
import { type IpAddress, ipBytes } from "../net/ip.ts";
import { jhash, slotOf } from "../net/jhash.ts";
import { mixed, pair } from "../net/mix.ts";
import { cellsOf } from "./cells.ts";
import type { Endpoint } from "./endpoint.ts";

/** A table, and how often clients ask it before they go on to the next one. */
interface TableUse {
  readonly size: number;
  /** From how many cells on there are how many probes. */
  readonly probes: readonly (readonly [cells: number, probes: number])[];
  /** With more cells it is not used: shares would differ. */
  readonly mostCells: number;
}

/**
 * In the order in which a client asks them. A probe of a table decides for as large a share of clients as the table is full: so a larger
 * table gets its probes one by one while it is nearly empty, and few clients move. Found by simulated annealing, for few probes of a client
 * and few chains of endpoints that move (docs/notes/performance-diary.md).
 */
const TABLES: readonly TableUse[] = [
  {
    size: 4096,
    probes: [...oneByOne(22, 26, 1), [29, 6], [30, 7], [39, 8], [40, 9], [43, 10], [46, 11], [2222, 24]],
    mostCells: Number.POSITIVE_INFINITY,
  },
  { size: 1024, probes: [[6, 2], [7, 4], [8, 5], ...oneByOne(9, 16, 6), [761, 24]], mostCells: 2221 },
  {
    size: 256,
    probes: [
      [3, 5],
      [4, 9],
      [5, 12],
      [6, 13],
      [193, 24],
    ],
    mostCells: 760,
  },
  {
    size: 64,
    probes: [
      [2, 10],
      [21, 24],
    ],
    mostCells: 192,
  },
  {
    size: 32,
    probes: [
      [2, 11],
      [3, 15],
      [4, 16],
      [6, 24],
    ],
    mostCells: 20,
  },
  { size: 8, probes: [[2, 24]], mostCells: 5 },
];

function oneByOne(from: number, to: number, first: number): (readonly [cells: number, probes: number])[] {
  return Array.from({ length: to - from + 1 }, (_, index) => [from + index, first + index] as const);
}

/** The sizes of all tables. */
export const TABLE_SIZES: readonly number[] = TABLES.map(({ size }) => size);

/** From how many cells on other tables or probes are in use: each begins a class. */
export const HASH_CLASSES: readonly number[] = [
  ...new Set(TABLES.flatMap(({ probes, mostCells }) => [...probes.map(([cells]) => cells), mostCells + 1])),
]
  .filter(Number.isFinite)
  .sort((a, b) => a - b);

/** The tables of a class, in the order in which they are asked, and the numbers of probes at which other classes end. */
export function tablesOfClass(cells: number): readonly { readonly size: number; readonly probes: readonly number[] }[] {
  return TABLES.filter(({ mostCells }) => cells <= mostCells).flatMap(({ size, probes }) => {
    const asked = probes.filter(([from]) => from <= cells).map(([, count]) => count);
    return asked.length === 0 ? [] : [{ size, probes: asked }];
  });
}

/** What places an endpoint. */
export type Placed = Pick<Endpoint, "ip" | "port" | "weight">;

export type Chooser<T> = (client: { readonly address: IpAddress; readonly port: number }) => T;

export interface SparseTable<T> {
  /** How many slots it has. */
  readonly size: number;
  /** How many slots a client asks for. */
  readonly probes: number;
  /** The endpoints in slots; the other slots are empty. */
  readonly cells: ReadonlyMap<number, T>;
}

export interface SparseTables<T> {
  readonly seed: number;
  /** One of {@link HASH_CLASSES}: decides which tables are asked how often. */
  readonly hashClass: number;
  /** In the order in which they are asked; none for a single endpoint. */
  readonly tables: readonly SparseTable<T>[];
  /** The choice for a client that met only empty slots. */
  readonly last: T;
}

/** The tables of endpoints, none of which is drained; undefined without endpoints. */
export function sparseTables<T extends Placed>(endpoints: readonly T[], seed: number): SparseTables<T> | undefined {
  const cells = cellsOf(endpoints);
  const proposers = endpoints.map(
    (endpoint, index): Proposer<T> => ({ endpoint, identity: identityOf(endpoint, seed), cells: cells[index] ?? 1 }),
  );
  const [first, ...others] = proposers;
  if (first === undefined) return undefined;
  const last = others.reduce((best, one) => (comesBefore(one, best, LAST) ? one : best), first).endpoint;
  const sum = others.length === 0 ? 0 : cells.reduce((total, count) => total + count, 0);
  const tables = tablesOfClass(sum).map(({ size, probes }) => {
    return { size, probes: probes.at(-1) ?? 0, cells: placed(proposers, sum, size) };
  });
  return { seed, hashClass: HASH_CLASSES.findLast((from) => from <= sum) ?? 0, tables, last };
}

/** The seed of the hash for the probe `k`, from 0, of the table of this size. */
export function probeSeed(seed: number, size: number, k: number): number {
  return pair(seed, size + k);
}

/** Chooses by the tables of endpoints: the endpoint of a client; undefined without endpoints. */
export function chooserOf<T extends Placed>(
  hashing: Hashing,
  endpoints: readonly T[],
  seed: number,
): Chooser<T> | undefined {
  const tables = sparseTables(endpoints, seed);
  if (tables === undefined) return undefined;
  return (client) => {
    const key = clientKey(hashing, client);
    return pick(tables, (probe) => jhash(key, probe));
  };
}

/** The endpoint of a client. @param hash of the client with a seed: the kernel's jhash. */
export function pick<T>({ seed, tables, last }: SparseTables<T>, hash: (seed: number) => number): T {
  for (const { size, probes, cells } of tables) {
    for (let k = 0; k < probes; k++) {
      const endpoint = cells.get(slotOf(hash(probeSeed(seed, size, k)), size));
      if (endpoint !== undefined) return endpoint;
    }
  }
  return last;
}

/** An endpoint that looks for slots. */
interface Proposer<T> {
  readonly endpoint: T;
  /** A hash of its address, without its port: a client meets the same pod at every port of a Service. */
  readonly identity: number;
  readonly cells: number;
}

const LAST = 77;

/** A hash of an endpoint's address. */
export function identityOf({ ip }: Pick<Endpoint, "ip">, seed: number): number {
  let identity = seed;
  const bytes = ipBytes(ip);
  let word = 0;
  for (let at = 0; at < bytes.length; at++) {
    word = (word << 8) | (bytes[at] ?? 0);
    if (at % 4 === 3) identity = pair(identity, word);
  }
  return identity;
}

/** Whether one proposer goes before another in an order that all nodes share. @param salt chooses one of many such orders. */
function comesBefore<T extends Placed>(one: Proposer<T>, other: Proposer<T>, salt: number): boolean {
  const [mine, theirs] = [mixed(one.identity ^ salt), mixed(other.identity ^ salt)];
  if (mine !== theirs) return mine < theirs;
  const { endpoint: a } = one;
  const { endpoint: b } = other;
  return a.ip === b.ip ? a.port < b.port : a.ip < b.ip;
}

/**
 * Gives out the slots of a table by deferred acceptance. An endpoint asks for its slots in its own order until it has one for each
 * cell; a slot keeps the better of two that ask. All preferences are strict and do not change, so that only one outcome is stable, and
 * the order in which they ask does not matter. They ask in rounds: once a round leaves no slot empty, a later one would change nothing.
 */
function placed<T extends Placed>(proposers: readonly Proposer<T>[], sum: number, size: number): Map<number, T> {
  const all = proposers.map((proposer, index) => {
    const { identity, cells } = proposer;
    // A full table turns most down: they ask for some of the slots only.
    const most = sum > size ? Math.min(size, 64 + 8 * cells) : size;
    return { proposer, index, cells, most, slotAt: slotOrder(identity, size), rank: 0, held: 0 };
  });
  let waiting = [...all];
  let taken = 0;
  for (let round = 1; waiting.length > 0 && taken < size; round++) {
    const later: typeof waiting = [];
    for (let one = waiting.pop(); one !== undefined; one = waiting.pop()) {
      const { cells, most } = one;
      const end = Math.min(most, round * cells);
      for (; one.held < cells && one.rank < end; one.rank++) {
        const slot = one.slotAt(one.rank);
        const urgency = one.rank / cells;
        const best = RANKS[slot] ?? 0;
        if (urgency > best) continue;
        const other = best === EMPTY ? undefined : all[HOLDERS[slot] ?? 0];
        if (other === undefined) {
          TAKEN[taken++] = slot;
        } else {
          if (urgency === best && !isPreferred(one.proposer, other.proposer, slot, size)) continue;
          if (other.held === other.cells) waiting.push(other);
          other.held -= 1;
        }
        HOLDERS[slot] = one.index;
        RANKS[slot] = urgency;
        one.held += 1;
      }
      if (one.held < cells && one.rank < most) later.push(one);
    }
    waiting = later;
  }
  const cells = new Map<number, T>();
  for (const slot of TAKEN.subarray(0, taken).sort()) {
    const one = proposers[HOLDERS[slot] ?? 0];
    if (one !== undefined) cells.set(slot, one.endpoint);
    RANKS[slot] = EMPTY;
  }
  return cells;
}

const EMPTY = Number.POSITIVE_INFINITY;
/** While slots are given out: the holder of each, and its rank by cell. Between two calls all are empty. */
const HOLDERS = new Int32Array(4096);
const RANKS = new Float64Array(4096).fill(EMPTY);
const TAKEN = new Int32Array(4096);

/** Which of two that ask for a slot with the same rank gets it. */
function isPreferred<T extends Placed>(one: Proposer<T>, other: Proposer<T>, slot: number, size: number): boolean {
  const [mine, theirs] = [rankHash(one.identity, slot, size), rankHash(other.identity, slot, size)];
  if (mine !== theirs) return mine < theirs;
  return one.identity === other.identity ? comesBefore(one, other, 0) : one.identity < other.identity;
}

function rankHash(identity: number, slot: number, size: number): number {
  return pair(inTable(identity, size), slot + 11);
}

/** The order in which an endpoint asks for the slots of a table: each of them once. */
function slotOrder(identity: number, size: number): (rank: number) => number {
  const x = inTable(identity, size);
  const mask = size - 1;
  const shift = Math.max(1, Math.floor((Math.log2(size) + 1) / 2));
  const a = pair(x, 1);
  const b = pair(x, 2) | 1;
  const d = pair(x, 3) | 1;
  const f = pair(x, 4);
  return (rank) => {
    let slot = (rank + a) & mask;
    slot = Math.imul(slot, b) & mask;
    slot ^= slot >>> shift;
    slot = Math.imul(slot, d) & mask;
    slot ^= slot >>> shift;
    return (slot + f) & mask;
  };
}

function inTable(identity: number, size: number): number {
  return identity ^ Math.imul(size, 0x9e3779b1);
}
