/**
 * Lists of endpoints in the arrays that socket programs read: a list is a run of slots, each with the number of a backend. While it
 * changes, a reader finds the old endpoint of a slot or the new one, or sees that the backend is not its own any more (reference
 * ebpf-operation.md §5.3, §5.4).
 */
import type { IpFamily } from "../../../net/ip.ts";
import { BackendArray, type ListedEndpoint } from "./backend-array.ts";
import { FreeList, powerOfTwo, type Run } from "./free-list.ts";

/** An id above this is none of ours: so many service ports were never made between two starts of a machine. */
const MOST_IDS = 2 ** 31;

/** Where a list is: its frontends say so to the programs. The run of slots is as long as the next power of two of all that it has. */
export interface EndpointList {
  /** The two lists of a service port differ in the lowest bit: a flow is one of both. */
  readonly id: number;
  readonly base: number;
  /** Endpoints from which new clients choose. */
  readonly count: number;
  /** Endpoints behind them that are not offered any more, and serve: flows of datagrams stay with them. */
  readonly held: number;
}

/** The memory of the two arrays. */
interface ListMemory {
  readonly slots: BigUint64Array;
  readonly backends: BigUint64Array;
}

/** Thrown when an array is full; readers see nothing of the attempt. */
export class NoRoom extends Error {
  override readonly name = "NoRoom";
}

export class EndpointLists {
  readonly #family: IpFamily;
  #slots: BigUint64Array;
  /** The same, for reading: nothing is allocated for a number of 32 bits. */
  #slotHalves: Uint32Array;
  #backends: BackendArray;
  readonly #freeSlots: FreeList;
  readonly #freeBackends: FreeList;
  #nextId: number;
  /** What readers of old lists may still look at. */
  #oldBackends: number[] = [];
  #oldRuns: EndpointList[] = [];

  /** @param memory all zero, unless its lists are told to {@link adopt}. @param nowMs monotonic. @param firstId of a new list. */
  constructor(family: IpFamily, memory: ListMemory, nowMs: () => number, firstId = 2) {
    this.#nextId = Math.max(2, firstId + (firstId % 2));
    this.#family = family;
    this.#slots = memory.slots;
    this.#slotHalves = halvesOf(memory.slots);
    this.#backends = new BackendArray(family, memory.backends);
    this.#freeSlots = new FreeList(memory.slots.length, nowMs);
    this.#freeBackends = new FreeList(this.#backends.capacity, nowMs);
  }

  /**
   * Before the first write: the memory has lists of an earlier process, to which frontends lead. What belongs to none of them can be
   * used for others.
   * @param found with ids of their own. @returns those that are whole; of the others nothing is kept.
   */
  adopt(found: readonly EndpointList[]): readonly EndpointList[] {
    const owners = new Uint32Array(this.#backends.capacity);
    const whole: EndpointList[] = [];
    let end = 0;
    for (const list of found.toSorted((one, other) => one.base - other.base)) {
      if (list.base < end || !this.#own(list, owners)) continue;
      end = list.base + lengthOf(list);
      whole.push(list);
    }
    this.#freeBackends.occupy(this.#keepOwned(owners), 1);
    for (const { base, count, held } of whole) {
      for (let at = 0; at < count + held; at++) this.#backends.hold(this.#slot(base + at), at >= count);
    }
    const runs = whole.map((list) => ({ base: list.base, length: lengthOf(list) }));
    this.#freeSlots.occupy(runs, this.#slots.length);
    return whole;
  }

  /** Clears backends without an owner. @returns runs of the others. Without an object for each: there are hundreds of thousands. */
  #keepOwned(owners: Uint32Array): readonly Run[] {
    const used: Run[] = [];
    let from = 0;
    for (let backend = 0; backend <= owners.length; backend++) {
      if (backend < owners.length) {
        const id = this.#backends.idAt(backend);
        if (id !== 0 && id < MOST_IDS) this.#nextId = Math.max(this.#nextId, (id | 1) + 1);
        if (owners[backend] !== 0) continue;
        if (id !== 0) this.#backends.clear(backend);
      }
      if (from < backend) used.push({ base: from, length: backend - from });
      from = backend + 1;
    }
    return used;
  }

  /** Makes a list the owner of its backends when each of its slots leads to one that is its own, and no two to the same. */
  #own(list: EndpointList, owners: Uint32Array): boolean {
    const { id, base, count, held } = list;
    if (id === 0 || id >= MOST_IDS || count + held === 0 || base + lengthOf(list) > this.#slots.length) return false;
    for (let at = base; at < base + count + held; at++) {
      const backend = this.#slot(at);
      if (backend < owners.length && owners[backend] === 0 && this.#backends.idAt(backend) === id) {
        owners[backend] = id;
        continue;
      }
      // What it has got until now was no other's.
      for (let before = base; before < at; before++) owners[this.#slot(before)] = 0;
      return false;
    }
    return true;
  }

  /** Goes on in longer arrays, which have got the contents of the old ones. */
  moveTo(memory: ListMemory): void {
    this.#slots = memory.slots;
    this.#slotHalves = halvesOf(memory.slots);
    this.#backends = new BackendArray(this.#family, memory.backends);
    this.#freeSlots.grow(memory.slots.length);
    this.#freeBackends.grow(this.#backends.capacity);
  }

  /**
   * Makes a list hold these endpoints, in any order; none of them twice. When the result is not what it was, its frontends must
   * be told. Then {@link settle} is due.
   * @param serving what was in the list and is among these is held. @param sibling the other list of the service port. @throws NoRoom
   */
  write(
    list: EndpointList | undefined,
    endpoints: readonly ListedEndpoint[],
    serving: readonly ListedEndpoint[] = [],
    sibling?: EndpointList,
  ): EndpointList | undefined {
    if (list !== undefined) return this.#change(list, endpoints, serving);
    return endpoints.length === 0 ? undefined : this.#writeNew(endpoints, sibling);
  }

  /** The endpoints of a list, as the programs read them. */
  read({ id, base, count }: EndpointList): readonly ListedEndpoint[] {
    const backends = Array.from({ length: count }, (_, at) => this.#slot(base + at));
    return backends
      .filter((backend) => this.#backends.isOffered(backend, id))
      .map((backend) => this.#backends.endpointAt(backend));
  }

  /** No frontend leads to what was replaced: it can be used for others. @returns whether there was an endpoint among it. */
  settle(): boolean {
    const hasEndpoints = this.#oldBackends.length > 0;
    for (const backend of this.#oldBackends) {
      this.#backends.clear(backend);
      this.#freeBackends.giveBack(backend, 1);
    }
    for (const list of this.#oldRuns) this.#freeSlots.giveBack(list.base, lengthOf(list));
    this.#oldBackends = [];
    this.#oldRuns = [];
    return hasEndpoints;
  }

  #writeNew(endpoints: readonly ListedEndpoint[], sibling: EndpointList | undefined): EndpointList {
    const id = sibling === undefined ? this.#nextId : sibling.id ^ 1;
    if (sibling === undefined) this.#nextId += 2;
    const backends = this.#makeBackends(id, endpoints);
    return { id, base: this.#writeRun(backends, backends), count: backends.length, held: 0 };
  }

  #change(
    list: EndpointList,
    endpoints: readonly ListedEndpoint[],
    serving: readonly ListedEndpoint[],
  ): EndpointList | undefined {
    const { id } = list;
    const wanted = new Map(endpoints.map((endpoint) => [this.#backends.keyFor(endpoint), endpoint]));
    const offered: number[] = [];
    const left: number[] = [];
    for (let at = list.base; at < list.base + list.count + list.held; at++) {
      const backend = this.#slot(at);
      (wanted.delete(this.#backends.keyAt(backend)) ? offered : left).push(backend);
    }
    if (wanted.size === 0 && left.length === 0 && list.held === 0) return list;
    const stays = new Set(left.length === 0 ? [] : serving.map((endpoint) => this.#backends.keyFor(endpoint)));
    const held = left.filter((backend) => stays.has(this.#backends.keyAt(backend)));
    const added = this.#makeBackends(id, [...wanted.values()]);
    offered.push(...added);
    const changed = { id, base: list.base, count: offered.length, held: held.length };
    if (changed.count + changed.held === 0) this.#oldRuns.push(list);
    else if (lengthOf(changed) === lengthOf(list)) {
      this.#fill(list.base, offered);
      this.#fill(list.base + offered.length, held);
    } else {
      changed.base = this.#writeRun([...offered, ...held], added);
      this.#oldRuns.push(list);
    }
    for (const backend of offered) this.#backends.hold(backend, false);
    for (const backend of held) this.#backends.hold(backend, true);
    this.#oldBackends.push(...left.filter((backend) => !held.includes(backend)));
    if (changed.count + changed.held === 0) return undefined;
    return changed;
  }

  /** Makes a run of slots hold these backends; those that are there stay where they are. */
  #fill(base: number, backends: readonly number[]): void {
    const missing = new Set(backends);
    const free: number[] = [];
    for (let at = base; at < base + backends.length; at++) if (!missing.delete(this.#slot(at))) free.push(at);
    let next = 0;
    for (const backend of missing) this.#setSlot(free[next++] ?? base, backend);
  }

  /** @param made those of them to give up when there is no room. */
  #writeRun(backends: readonly number[], made: readonly number[]): number {
    const base = this.#freeSlots.take(powerOfTwo(backends.length));
    if (base === undefined) {
      this.#giveUp(made);
      throw new NoRoom("all slots are taken");
    }
    for (const [at, backend] of backends.entries()) this.#setSlot(base + at, backend);
    return base;
  }

  /** All, or none. */
  #makeBackends(id: number, endpoints: readonly ListedEndpoint[]): readonly number[] {
    const made: number[] = [];
    for (const endpoint of endpoints) {
      const backend = this.#freeBackends.take(1);
      if (backend === undefined) {
        this.#giveUp(made);
        throw new NoRoom("all backends are taken");
      }
      this.#backends.write(backend, id, endpoint);
      made.push(backend);
    }
    return made;
  }

  /** No reader has been led to them. */
  #giveUp(made: readonly number[]): void {
    for (const backend of made) {
      this.#backends.clear(backend);
      this.#freeBackends.giveBack(backend, 1, true);
    }
  }

  #slot(at: number): number {
    return this.#slotHalves[2 * at] ?? 0;
  }

  #setSlot(at: number, backend: number): void {
    Atomics.store(this.#slots, at, BigInt(backend));
  }
}

const lengthOf = ({ count, held }: EndpointList): number => powerOfTwo(count + held);

const halvesOf = (words: BigUint64Array): Uint32Array =>
  new Uint32Array(words.buffer, words.byteOffset, 2 * words.length);
