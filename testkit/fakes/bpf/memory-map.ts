/** A map's elements in memory, for the interpreter and the kernel in memory. */
import { arrayBytes, type MapDefinition } from "../../../src/kernel/bpf/map-definition.ts";
import { MemoryRegion } from "./memory-region.ts";

/** The kernel's result of a write: 0 or an errno. */
export type MapWriteResult = 0 | 2 | 7 | 17 | 22;
const ENOENT = 2;
const E2BIG = 7;
const EEXIST = 17;
const EINVAL = 22;

/** As the helpers define it: 0 writes, 1 only creates, 2 only replaces. */
export type UpdateFlags = 0 | 1 | 2;

export class MemoryMap {
  readonly definition: MapDefinition;
  /** For an array: all elements, one after the other. */
  readonly memory: ArrayBuffer;
  readonly #elements = new Map<string, { readonly key: Uint8Array; readonly value: MemoryRegion }>();

  constructor(definition: MapDefinition) {
    this.definition = definition;
    this.memory = new ArrayBuffer(definition.type === "array" ? arrayBytes(definition) : 0);
  }

  /** The value itself: writing to it writes to the map. */
  lookup(key: Uint8Array): MemoryRegion | undefined {
    if (this.definition.type === "array") return this.#arrayElement(key);
    const id = hex(key);
    const found = this.#elements.get(id);
    if (found !== undefined && this.definition.type === "lru-hash") {
      this.#elements.delete(id);
      this.#elements.set(id, found);
    }
    return found?.value;
  }

  update(key: Uint8Array, value: Uint8Array, flags: UpdateFlags = 0): MapWriteResult {
    if (this.definition.type === "array") {
      const element = this.#arrayElement(key);
      if (element === undefined) return E2BIG;
      if (flags === 1) return EEXIST;
      // An array's elements stay in place and are overwritten.
      element.bytes.set(value);
      return 0;
    }
    const exists = this.#elements.has(hex(key));
    if (exists && flags === 1) return EEXIST;
    if (!exists && flags === 2) return ENOENT;
    if (!exists && this.#elements.size >= this.definition.maxEntries) {
      if (this.definition.type !== "lru-hash") return E2BIG;
      const [oldest] = this.#elements.keys();
      if (oldest !== undefined) this.#elements.delete(oldest);
    }
    // A slice of a Buffer is not a copy.
    this.#put(key, Uint8Array.from(value));
    return 0;
  }

  delete(key: Uint8Array): MapWriteResult {
    if (this.definition.type === "array") return EINVAL;
    return this.#elements.delete(hex(key)) ? 0 : ENOENT;
  }

  /** Copies of all elements. */
  entries(): readonly (readonly [Uint8Array, Uint8Array])[] {
    const { type, maxEntries } = this.definition;
    if (type === "array") {
      return Array.from({ length: maxEntries }, (_, index) => [
        new Uint8Array(Uint32Array.of(index).buffer),
        this.#arrayBytes(index).slice(),
      ]);
    }
    return [...this.#elements.values()].map(({ key, value }) => [key.slice(), value.bytes.slice()]);
  }

  /** Created on first use: arrays are large, and tests make many. */
  #arrayElement(key: Uint8Array): MemoryRegion | undefined {
    const index = Buffer.from(key).readUInt32LE();
    if (index >= this.definition.maxEntries) return undefined;
    const known = this.#elements.get(hex(key));
    if (known !== undefined) return known.value;
    return this.#put(key, this.#arrayBytes(index));
  }

  #arrayBytes(index: number): Uint8Array {
    const { maxEntries, valueSize } = this.definition;
    return new Uint8Array(this.memory, index * (this.memory.byteLength / maxEntries), valueSize);
  }

  #put(key: Uint8Array, bytes: Uint8Array): MemoryRegion {
    const value = MemoryRegion.of(`a value of ${this.definition.name}`, bytes);
    this.#elements.set(hex(key), { key: Uint8Array.from(key), value });
    return value;
  }
}

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");
