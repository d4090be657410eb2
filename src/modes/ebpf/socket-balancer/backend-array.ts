/** The array of backends as this process writes it: words in the kernel's memory. */
import { type IpAddress, type IpFamily, ipBytes, ipFromBytes, ipv4Word } from "../../../net/ip.ts";
import { BACKEND_IDENTITY_WORD, BACKEND_VALUE, HELD } from "./maps.ts";

const ID_BITS = 32n;
const PORTS = 2 ** 16;

export interface ListedEndpoint {
  readonly ip: IpAddress;
  readonly port: number;
}

/** Writes whole words, because programs read whole words; reads halves, because a 32-bit number needs no allocation. */
export class BackendArray {
  readonly #memory: BigUint64Array;
  readonly #halves: Uint32Array;
  /** Words per backend. */
  readonly #words: number;
  /** Index of the identity word, which is the last. */
  readonly #identity: number;
  /** Byte offset of the port. */
  readonly #portAt: number;
  /** The endpoint being written. */
  readonly #scratch: BigUint64Array;
  readonly #scratchHalves: Uint32Array;
  readonly #bytes: Uint8Array;

  constructor(family: IpFamily, memory: BigUint64Array) {
    this.#memory = memory;
    this.#halves = new Uint32Array(memory.buffer, memory.byteOffset, 2 * memory.length);
    this.#words = BACKEND_VALUE[family].size / 8;
    this.#identity = BACKEND_IDENTITY_WORD[family].at / 8;
    this.#portAt = BACKEND_VALUE[family].fields.port.at;
    this.#scratch = new BigUint64Array(this.#identity);
    this.#scratchHalves = new Uint32Array(this.#scratch.buffer);
    this.#bytes = new Uint8Array(this.#scratch.buffer);
  }

  /** Maximum number of backends. */
  get capacity(): number {
    return Math.floor(this.#memory.length / this.#words);
  }

  /** Clears the identity first and writes the new one last, for readers. */
  write(backend: number, id: number, endpoint: ListedEndpoint): void {
    const at = backend * this.#words;
    const identity = at + this.#identity;
    const generation = BigInt((this.#halves[2 * identity + 1] ?? 0) + 1);
    this.clear(backend);
    this.#encode(endpoint);
    for (let word = 0; word < this.#identity; word++) Atomics.store(this.#memory, at + word, this.#scratch[word] ?? 0n);
    Atomics.store(this.#memory, identity, BigInt.asUintN(64, BigInt(id) | (generation << ID_BITS)));
  }

  /** Removes the backend from its list. */
  clear(backend: number): void {
    const at = backend * this.#words + this.#identity;
    if (this.#halves[2 * at] === 0) return;
    Atomics.store(this.#memory, at, BigInt(this.#halves[2 * at + 1] ?? 0) << ID_BITS);
  }

  /** Sets whether it only serves existing flows. */
  hold(backend: number, isHeld: boolean): void {
    const at = backend * this.#words + this.#identity;
    const now = this.#memory[at] ?? 0n;
    const word = isHeld ? now | HELD : now & ~HELD;
    if (word !== now) Atomics.store(this.#memory, at, word);
  }

  /** A key that is equal for equal endpoints. */
  keyAt(backend: number): number | string {
    return this.#key(this.#halves, 2 * backend * this.#words);
  }

  /** See {@link keyAt}. */
  keyFor(endpoint: ListedEndpoint): number | string {
    this.#encode(endpoint);
    return this.#key(this.#scratchHalves, 0);
  }

  /** Whether new clients of this list may be sent there. */
  isOffered(backend: number, id: number): boolean {
    return this.#halves[2 * (backend * this.#words + this.#identity)] === id;
  }

  idAt(backend: number): number {
    return (this.#halves[2 * (backend * this.#words + this.#identity)] ?? 0) & ~Number(HELD);
  }

  endpointAt(backend: number): ListedEndpoint {
    const at = backend * this.#words;
    this.#scratch.set(this.#memory.subarray(at, at + this.#identity));
    const port = ((this.#bytes[this.#portAt] ?? 0) << 8) | (this.#bytes[this.#portAt + 1] ?? 0);
    return { ip: ipFromBytes(this.#bytes.slice(0, this.#portAt)), port };
  }

  #encode({ ip, port }: ListedEndpoint): void {
    const isIPv4 = this.#portAt === 4;
    if (isIPv4) this.#scratchHalves[0] = ipv4Word(ip);
    else this.#bytes.set(ipBytes(ip));
    // The port in network byte order, followed by zeros.
    this.#scratchHalves[this.#portAt / 4] = (port >> 8) | ((port & 0xff) << 8);
  }

  /** An IPv4 address and port fit into a number, which costs a tenth of a string. */
  #key(halves: Uint32Array, at: number): number | string {
    const port = halves[at + this.#portAt / 4] ?? 0;
    if (this.#portAt === 4) return (halves[at] ?? 0) * PORTS + port;
    return `${halves[at]},${halves[at + 1]},${halves[at + 2]},${halves[at + 3]},${port}`;
  }
}
