/** Buffers for receiving many datagrams with one system call: a call for each costs more than reading its contents. */
import { type ByteReader, byteReader } from "./attributes.ts";
import { systemError } from "./errors.ts";
import type { Libc } from "./libc.ts";

/**
 * Notifications of many set elements can be this large. Memory that was never written is not resident. Not a power of two, so
 * that datagrams do not evict each other from the processor's caches.
 */
const SLOT_BYTES = 65_536 + 576;
const SLOTS = 64;
/** `struct mmsghdr` of 64-bit Linux: name · name length · iovec · iovec count · control · control length · u32 flags · u32 received. */
const HEADER_BYTES = 64;
const [VECTOR_AT, VECTORS_AT, FLAGS_AT, RECEIVED_AT] = [16, 24, 48, 56] as const;
/** `struct iovec`: address · length. */
const VECTOR_BYTES = 16;
const MSG_TRUNC = 0x20;
/** The most failures in a row. */
const MOST_FAILURES = 8;

export class DatagramSlots {
  readonly #libc: Libc;
  readonly #headers = Buffer.alloc(SLOTS * HEADER_BYTES);
  readonly #numbers = new Uint32Array(this.#headers.buffer, this.#headers.byteOffset, this.#headers.length / 4);
  readonly #vectors = new BigUint64Array((SLOTS * VECTOR_BYTES) / 8);
  readonly #slots: readonly ByteReader[];
  #failures = 0;

  constructor(libc: Libc) {
    this.#libc = libc;
    const bytes = Buffer.alloc(SLOTS * SLOT_BYTES);
    const words = new BigUint64Array(this.#headers.buffer, this.#headers.byteOffset, this.#headers.length / 8);
    const vectorsAt = libc.addressOf(new Uint8Array(this.#vectors.buffer));
    const bytesAt = libc.addressOf(bytes);
    this.#slots = Array.from({ length: SLOTS }, (_, slot) => {
      this.#vectors.set([bytesAt + BigInt(slot * SLOT_BYTES), BigInt(SLOT_BYTES)], (slot * VECTOR_BYTES) / 8);
      words[(slot * HEADER_BYTES + VECTOR_AT) / 8] = vectorsAt + BigInt(slot * VECTOR_BYTES);
      words[(slot * HEADER_BYTES + VECTORS_AT) / 8] = 1n;
      return byteReader(bytes.subarray(slot * SLOT_BYTES, (slot + 1) * SLOT_BYTES));
    });
  }

  /**
   * Receives queued datagrams, as many as there are slots for; at least one must be queued.
   *
   * @param visit called for each datagram; the next call overwrites the bytes.
   * @returns whether something was lost. @throws NetlinkError when the call keeps failing.
   */
  receive(fd: number, visit: (input: ByteReader, length: number) => void): boolean {
    const count = this.#libc.recvmmsg(fd, this.#headers, SLOTS, 0, null);
    this.#failures = count < 0 ? this.#failures + 1 : 0;
    // A single failure reports an overrun; reporting it clears it.
    if (this.#failures > MOST_FAILURES) throw systemError("recvmmsg", this.#libc.errno());
    let isLost = count < 0;
    for (let slot = 0; slot < count; slot += 1) {
      const at = slot * HEADER_BYTES;
      const input = this.#slots[slot];
      if (input === undefined || ((this.#numbers[(at + FLAGS_AT) / 4] ?? 0) & MSG_TRUNC) !== 0) isLost = true;
      else visit(input, this.#numbers[(at + RECEIVED_AT) / 4] ?? 0);
    }
    return isLost;
  }
}
