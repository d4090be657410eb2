/**
 * Lists of endpoints in the arrays that socket programs read. A list is a run of slots, each with a backend's index.
 * During a change, a reader finds a slot's old endpoint or the new one, or notices that the backend belongs to another
 * list (reference ebpf-operation.md §5.3, §5.4).
 */
import type { IpFamily } from "../../../net/ip.ts";
import { BackendArray, type ListedEndpoint } from "./backend-array.ts";
import { FreeList, powerOfTwo, type Run } from "./free-list.ts";

/** A larger id is not ours: no machine creates that many service ports between two boots. */
const MOST_IDS = 2 ** 31;

/** Where a list is; its frontends tell the programs. The run of slots is as long as the next power of two of `count + held`. */
export interface EndpointList {
  /** The ids of a service port's two lists differ in the lowest bit: flows may use either list. */
  readonly id: number;
  readonly base: number;
  /** Endpoints that new clients choose from. */
  readonly count: number;
  /** Endpoints after those that are no longer offered but still serve: flows of datagrams stay with them. */
  readonly held: number;
}

/** The memory of the two arrays. */
interface ListMemory {
  readonly slots: BigUint64Array;
  readonly backends: BigUint64Array;
}

/** Thrown if an array is full; readers see nothing of the attempt. */
export class NoRoom extends Error {
  override readonly name = "NoRoom";
}

export class EndpointLists {
  readonly #family: IpFamily;
  #slots: BigUint64Array;
  /** The same for reading: a 32-bit number needs no allocation. */
  #slotHalves: Uint32Array;
  #backends: BackendArray;
  readonly #freeSlots: FreeList;
  readonly #freeBackends: FreeList;
  #nextId: number;
  /** Backends that readers of old lists may still use. */
  #oldBackends: number[] = [];
  #oldRuns: EndpointList[] = [];

  /** @param memory all zero, unless {@link adopt} follows. @param nowMs monotonic. @param firstId of a new list. */
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
   * Call before the first write if the memory has lists of an earlier process that frontends refer to. Frees everything
   * else.
   * @param found lists with unique ids. @returns the intact lists; the others are freed.
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

  /** Clears backends without an owner. @returns runs of the others: no object per backend, as there are hundreds of thousands. */
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

  /** Assigns a list its backends if each of its slots refers to one that carries its id, and no two to the same. */
  #own(list: EndpointList, owners: Uint32Array): boolean {
    const { id, base, count, held } = list;
    if (id === 0 || id >= MOST_IDS || count + held === 0 || base + lengthOf(list) > this.#slots.length) return false;
    for (let at = base; at < base + count + held; at++) {
      const backend = this.#slot(at);
      if (backend < owners.length && owners[backend] === 0 && this.#backends.idAt(backend) === id) {
        owners[backend] = id;
        continue;
      }
      // Undo: the backends assigned so far had no other owner.
      for (let before = base; before < at; before++) owners[this.#slot(before)] = 0;
      return false;
    }
    return true;
  }

  /** Switches to longer arrays that have the old ones' content. */
  moveTo(memory: ListMemory): void {
    this.#slots = memory.slots;
    this.#slotHalves = halvesOf(memory.slots);
    this.#backends = new BackendArray(this.#family, memory.backends);
    this.#freeSlots.grow(memory.slots.length);
    this.#freeBackends.grow(this.#backends.capacity);
  }

  /**
   * Makes a list hold these endpoints, in any order. One that stands several times gets as many backends: it is chosen as
   * often. If the result differs from the list, the frontends must be updated. {@link settle} must follow.
   * @param serving endpoints to hold if the list had them. @param sibling the other list of the service port. @throws NoRoom
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

  /** Frees what was replaced, once no frontend refers to it. @returns whether that included an endpoint. */
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
    const wanted = Map.groupBy(endpoints, (endpoint) => this.#backends.keyFor(endpoint));
    const offered: number[] = [];
    const left: number[] = [];
    for (let at = list.base; at < list.base + list.count + list.held; at++) {
      const backend = this.#slot(at);
      (wanted.get(this.#backends.keyAt(backend))?.pop() === undefined ? left : offered).push(backend);
    }
    const missing = [...wanted.values()].flat();
    if (missing.length === 0 && left.length === 0 && list.held === 0) return list;
    // Copies that are too many hold their flows, too.
    const staying = left.length === 0 ? [] : [...serving, ...endpoints];
    const stays = new Set(staying.map((endpoint) => this.#backends.keyFor(endpoint)));
    const held = left.filter((backend) => stays.has(this.#backends.keyAt(backend)));
    const added = this.#makeBackends(id, missing);
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

  /** Fills a run of slots with these backends; those already in it keep their slots. */
  #fill(base: number, backends: readonly number[]): void {
    const missing = new Set(backends);
    const free: number[] = [];
    for (let at = base; at < base + backends.length; at++) if (!missing.delete(this.#slot(at))) free.push(at);
    let next = 0;
    for (const backend of missing) this.#setSlot(free[next++] ?? base, backend);
  }

  /** @param made those of them to free if there is no room. */
  #writeRun(backends: readonly number[], made: readonly number[]): number {
    const base = this.#freeSlots.take(powerOfTwo(backends.length));
    if (base === undefined) {
      this.#giveUp(made);
      throw new NoRoom("all slots are taken");
    }
    for (const [at, backend] of backends.entries()) this.#setSlot(base + at, backend);
    return base;
  }

  /** Creates all or none. */
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

  /** No reader has seen them. */
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
