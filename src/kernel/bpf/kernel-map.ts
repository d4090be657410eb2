/** A map in the kernel, identified by its descriptor. */
import { closeSync } from "node:fs";
import { constants } from "node:os";
import { MAP_BATCH, MAP_CREATE, MAP_ELEMENT } from "./attributes.ts";
import type { BpfMap } from "./bpf.ts";
import { BpfError } from "./bpf-error.ts";
import { encode, putNumber, takeNumber } from "./layout.ts";
import { arrayBytes, type MapDefinition, mapFields } from "./map-definition.ts";
import { addressOf, bpf, failure, fixedBytes, fixedCopy, type MappedMemory, mapMemory, tryBpf } from "./system-call.ts";

const BATCH = 4096;
/** Size of the kernel's cursor: hashes use 4 bytes, arrays a key. */
const CURSOR_BYTES = 8;
const BPF_NOEXIST = 1;
const { EEXIST, ENOENT, ENOSPC } = constants.errno;

export class KernelMap implements BpfMap {
  readonly definition: MapDefinition;
  readonly fd: number;
  /** Buffers for one key and one value, which the attributes of single calls point to. */
  readonly #key: Uint8Array;
  readonly #value: Uint8Array;
  /** Attributes of single-element calls, created once. */
  readonly #attributes: Uint8Array;
  #mapped: MappedMemory | undefined;

  /** @param opened the descriptor of an existing map that matches the definition. @default creates a new map */
  constructor(definition: MapDefinition, opened?: number) {
    this.definition = definition;
    const { keySize, valueSize } = definition;
    this.fd = opened ?? bpf("MAP_CREATE", encode(MAP_CREATE, mapFields(definition)), this.#what);
    this.#key = fixedBytes(keySize);
    this.#value = fixedBytes(valueSize);
    const whole = { mapFd: this.fd, key: addressOf(this.#key), value: addressOf(this.#value) };
    this.#attributes = encode(MAP_ELEMENT, whole);
  }

  lookup(key: Uint8Array): Uint8Array | undefined {
    return this.#read("MAP_LOOKUP_ELEM", key);
  }

  update(key: Uint8Array, value: Uint8Array): void {
    this.#demandSize("value", value, this.definition.valueSize);
    this.#value.set(value);
    bpf("MAP_UPDATE_ELEM", this.#element(key), this.#what);
  }

  delete(key: Uint8Array): boolean {
    this.#demandSize("key", key, this.definition.keySize);
    this.#key.set(key);
    // Fields that a command does not use must be zero.
    const alone = encode(MAP_ELEMENT, { mapFd: this.fd, key: addressOf(this.#key) });
    const { result, errno } = tryBpf("MAP_DELETE_ELEM", alone);
    if (result >= 0) return true;
    if (errno === ENOENT) return false;
    throw failure("MAP_DELETE_ELEM", errno, this.#what);
  }

  take(key: Uint8Array): Uint8Array | undefined {
    return this.#read("MAP_LOOKUP_AND_DELETE_ELEM", key);
  }

  add(key: Uint8Array, value: Uint8Array): boolean {
    this.#demandSize("value", value, this.definition.valueSize);
    this.#value.set(value);
    const attributes = this.#element(key).slice();
    putNumber(attributes, MAP_ELEMENT.fields.flags, BPF_NOEXIST);
    const { result, errno } = tryBpf("MAP_UPDATE_ELEM", attributes);
    if (result >= 0) return true;
    if (errno === EEXIST) return false;
    throw failure("MAP_UPDATE_ELEM", errno, this.#what);
  }

  updateAll(allKeys: Uint8Array, allValues: Uint8Array): void {
    const { keySize, valueSize } = this.definition;
    const all = allKeys.length / keySize;
    this.#demandSize("list of values", allValues, all * valueSize);
    for (let start = 0; start < all; start += BATCH) {
      const end = Math.min(start + BATCH, all);
      const keys = fixedCopy(allKeys.subarray(start * keySize, end * keySize));
      const values = fixedCopy(allValues.subarray(start * valueSize, end * valueSize));
      const attributes = encode(MAP_BATCH, {
        keys: addressOf(keys),
        values: addressOf(values),
        count: end - start,
        mapFd: this.fd,
      });
      bpf("MAP_UPDATE_BATCH", attributes, this.#what);
    }
  }

  entries(): readonly (readonly [Uint8Array, Uint8Array])[] {
    const { keySize, valueSize, maxEntries } = this.definition;
    const found: (readonly [Uint8Array, Uint8Array])[] = [];
    let room = Math.min(BATCH, maxEntries);
    let cursor: Uint8Array | undefined;
    for (;;) {
      const [keys, values] = [fixedBytes(room * keySize), fixedBytes(room * valueSize)];
      const next = fixedBytes(CURSOR_BYTES);
      const attributes = encode(MAP_BATCH, {
        inBatch: cursor === undefined ? 0 : addressOf(cursor),
        outBatch: addressOf(next),
        keys: addressOf(keys),
        values: addressOf(values),
        count: room,
        mapFd: this.fd,
      });
      const { result, errno } = tryBpf("MAP_LOOKUP_BATCH", attributes);
      if (result < 0 && errno === ENOSPC) {
        // A bucket has more elements than fit into the buffer.
        room *= 2;
        continue;
      }
      if (result < 0 && errno !== ENOENT) throw failure("MAP_LOOKUP_BATCH", errno, this.#what);
      const count = takeNumber(attributes, MAP_BATCH.fields.count);
      for (let index = 0; index < count; index++) {
        const value = values.slice(index * valueSize, (index + 1) * valueSize);
        found.push([keys.slice(index * keySize, (index + 1) * keySize), value]);
      }
      if (result < 0) return found;
      cursor = next;
    }
  }

  words(): BigUint64Array {
    this.#mapped ??= mapMemory(this.fd, arrayBytes(this.definition), this.#what);
    return new BigUint64Array(this.#mapped.buffer);
  }

  close(): void {
    this.#mapped?.release();
    this.#mapped = undefined;
    closeSync(this.fd);
  }

  get #what(): string {
    return `map ${this.definition.name}`;
  }

  #read(command: "MAP_LOOKUP_ELEM" | "MAP_LOOKUP_AND_DELETE_ELEM", key: Uint8Array): Uint8Array | undefined {
    const { result, errno } = tryBpf(command, this.#element(key));
    if (result >= 0) return this.#value.slice();
    if (errno === ENOENT) return undefined;
    throw failure(command, errno, this.#what);
  }

  #element(key: Uint8Array): Uint8Array {
    this.#demandSize("key", key, this.definition.keySize);
    this.#key.set(key);
    return this.#attributes;
  }

  #demandSize(part: string, bytes: Uint8Array, size: number): void {
    if (bytes.length === size) return;
    throw new BpfError("invalid", `bpf: ${this.#what}: a ${part} has ${size} bytes, not ${bytes.length}`);
  }
}
