/** The array of backends, as this process writes it: words of the kernel's own memory. */
import { type IpFamily, ipBytes, ipFromBytes } from "../../../net/ip.ts";
import type { ListedEndpoint } from "./endpoint-lists.ts";
import { BACKEND_IDENTITY_WORD, BACKEND_VALUE } from "./maps.ts";

const ID_BITS = 32n;

export class BackendArray {
  readonly #memory: BigUint64Array;
  /** Of one backend. */
  readonly #words: number;
  /** Which of its words is the identity, the last. */
  readonly #identity: number;
  readonly #portAt: number;
  readonly #scratch: BigUint64Array;
  readonly #bytes: Uint8Array;

  constructor(family: IpFamily, memory: BigUint64Array) {
    this.#memory = memory;
    this.#words = BACKEND_VALUE[family].size / 8;
    this.#identity = BACKEND_IDENTITY_WORD[family].at / 8;
    this.#portAt = BACKEND_VALUE[family].fields.port.at;
    this.#scratch = new BigUint64Array(this.#identity);
    this.#bytes = new Uint8Array(this.#scratch.buffer);
  }

  /** How many there may be. */
  get capacity(): number {
    return Math.floor(this.#memory.length / this.#words);
  }

  /** Readers find no identity first, and the new one last. */
  write(backend: number, id: number, endpoint: ListedEndpoint): void {
    const at = backend * this.#words;
    const generation = (this.#word(at + this.#identity) >> ID_BITS) + 1n;
    this.clear(backend);
    this.#encode(endpoint);
    for (const [word, value] of this.#scratch.entries()) Atomics.store(this.#memory, at + word, value);
    const identity = BigInt(id) | (generation << ID_BITS);
    Atomics.store(this.#memory, at + this.#identity, BigInt.asUintN(64, identity));
  }

  /** It belongs to no list any more. */
  clear(backend: number): void {
    const at = backend * this.#words + this.#identity;
    Atomics.store(this.#memory, at, (this.#word(at) >> ID_BITS) << ID_BITS);
  }

  /** Equal for equal endpoints. */
  keyAt(backend: number): bigint | string {
    const at = backend * this.#words;
    return keyOf(this.#memory.subarray(at, at + this.#identity));
  }

  keyFor(endpoint: ListedEndpoint): bigint | string {
    this.#encode(endpoint);
    return keyOf(this.#scratch);
  }

  idAt(backend: number): number {
    return Number(BigInt.asUintN(32, this.#word(backend * this.#words + this.#identity)));
  }

  endpointAt(backend: number): ListedEndpoint {
    const at = backend * this.#words;
    this.#scratch.set(this.#memory.subarray(at, at + this.#identity));
    const port = ((this.#bytes[this.#portAt] ?? 0) << 8) | (this.#bytes[this.#portAt + 1] ?? 0);
    return { ip: ipFromBytes(this.#bytes.slice(0, this.#portAt)), port };
  }

  #encode({ ip, port }: ListedEndpoint): void {
    this.#scratch.fill(0n);
    this.#bytes.set(ipBytes(ip));
    this.#bytes[this.#portAt] = port >> 8;
    this.#bytes[this.#portAt + 1] = port & 0xff;
  }

  #word(at: number): bigint {
    return this.#memory[at] ?? 0n;
  }
}

/** One word is a key as it is. */
function keyOf(words: BigUint64Array): bigint | string {
  return words.length === 1 ? (words[0] ?? 0n) : words.join();
}
