/**
 * Lists of endpoints in the arrays that socket programs read. A list is a run of slots, each with a backend's index.
 * During a change, a reader finds a slot's old endpoint or the new one, or notices that the backend belongs to another
 * list (reference ebpf-operation.md §5.3, §5.4).
 */
import type { IpFamily } from "../../../net/ip.ts";
import { BackendArray, type ListedEndpoint } from "./backend-array.ts";
import { FreeList, powerOfTwo } from "./free-list.ts";

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
  #nextId = 2;
  /** By the ids of an earlier process's lists: their backends, offered ones and others. */
  readonly #former = new Map<number, number[]>();
  /** Backends that readers of old lists may still use. */
  #oldBackends: number[] = [];
  #oldRuns: EndpointList[] = [];

  /** @param memory all zero, unless {@link adopt} follows. @param nowMs monotonic. */
  constructor(family: IpFamily, memory: ListMemory, nowMs: () => number) {
    this.#family = family;
    this.#slots = memory.slots;
    this.#slotHalves = halvesOf(memory.slots);
    this.#backends = new BackendArray(family, memory.backends);
    this.#freeSlots = new FreeList(memory.slots.length, nowMs);
    this.#freeBackends = new FreeList(this.#backends.capacity, nowMs);
  }

  /**
   * Call before the first write: new lists with the ids of an earlier process's lists take over their backends, until
   * {@link forgetFormer}. @param highestId of an earlier list that has no backends any more.
   */
  adopt(highestId: number): void {
    let highest = highestId;
    for (let backend = 0; backend < this.#backends.capacity; backend++) {
      const id = this.#backends.idAt(backend);
      if (id === 0) continue;
      highest = Math.max(highest, id);
      this.#freeBackends.occupy(backend);
      const own = this.#former.get(id);
      if (own === undefined) this.#former.set(id, [backend]);
      else own.push(backend);
    }
    this.#nextId = Math.max(this.#nextId, (highest | 1) + 1);
  }

  /** The backends of lists that were not taken over go with the next {@link settle}. */
  forgetFormer(): void {
    for (const backends of this.#former.values()) this.#oldBackends.push(...backends);
    this.#former.clear();
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
   * @param list undefined if there is none yet. @param serving endpoints to hold if the list had them.
   * @param newId of a new list, which may be a former one's. @default one that was never used. @throws NoRoom
   */
  write(
    list: EndpointList | undefined,
    endpoints: readonly ListedEndpoint[],
    serving: readonly ListedEndpoint[] = [],
    newId = this.#nextId,
  ): EndpointList | undefined {
    const id = list?.id ?? newId;
    const before = list === undefined ? (this.#former.get(id) ?? []) : this.#backendsOf(list);
    if (list === undefined && before.length + endpoints.length === 0) return undefined;
    const changed = this.#change(id, list, before, endpoints, serving);
    this.#former.delete(id);
    if (id === this.#nextId) this.#nextId += 2;
    return changed;
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

  #backendsOf({ base, count, held }: EndpointList): readonly number[] {
    return Array.from({ length: count + held }, (_, at) => this.#slot(base + at));
  }

  #change(
    id: number,
    list: EndpointList | undefined,
    before: readonly number[],
    endpoints: readonly ListedEndpoint[],
    serving: readonly ListedEndpoint[],
  ): EndpointList | undefined {
    const { offered, left, missing } = this.#compare(before, endpoints);
    if (missing.length === 0 && left.length === 0 && list?.held === 0) return list;
    // Copies that are too many hold their flows, too.
    const staying = left.length === 0 ? [] : [...serving, ...endpoints];
    const stays = new Set(staying.map((endpoint) => this.#backends.keyFor(endpoint)));
    const held = left.filter((backend) => stays.has(this.#backends.keyAt(backend)));
    const added = this.#makeBackends(id, missing);
    const all = [...offered, ...added];
    const changed = { id, base: list?.base ?? 0, count: all.length, held: held.length };
    const isEmpty = changed.count + changed.held === 0;
    if (list !== undefined && !isEmpty && lengthOf(changed) === lengthOf(list)) {
      this.#fill(list.base, all);
      this.#fill(list.base + all.length, held);
    } else {
      if (!isEmpty) changed.base = this.#writeRun([...all, ...held], added);
      if (list !== undefined) this.#oldRuns.push(list);
    }
    for (const backend of offered) this.#backends.hold(backend, false);
    for (const backend of held) this.#backends.hold(backend, true);
    this.#oldBackends.push(...left.filter((backend) => !held.includes(backend)));
    return isEmpty ? undefined : changed;
  }

  /** @returns backends of endpoints, other backends, and endpoints without a backend. */
  #compare(before: readonly number[], endpoints: readonly ListedEndpoint[]) {
    const [offered, left]: [number[], number[]] = [[], []];
    if (before.length === 0) return { offered, left, missing: endpoints };
    const wanted = Map.groupBy(endpoints, (endpoint) => this.#backends.keyFor(endpoint));
    for (const backend of before) {
      (wanted.get(this.#backends.keyAt(backend))?.pop() === undefined ? left : offered).push(backend);
    }
    return { offered, left, missing: [...wanted.values()].flat() };
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
