/**
 * Memory that sockets read into. A large read costs a fraction of many small ones, but every connection needs its own
 * buffer for as long as it lives: so each starts with a small one, and busy ones borrow a larger one from a bounded
 * pool. Measured in docs/notes/performance-diary.md.
 */

interface Tier {
  readonly sizeBytes: number;
  /** How many may be lent at a time. */
  readonly limit: number;
}

/** What a connection has at least, per direction. */
export const SMALL_READ_BYTES = 4096;

/** In order of preference: at most 32 MB, then 64 MB. */
const TIERS: readonly Tier[] = [
  { sizeBytes: 262_144, limit: 128 },
  { sizeBytes: 32_768, limit: 2048 },
];

/** Small buffers allocated at once, and kept spare. */
const SLAB_BUFFERS = 16;
const SPARE_SMALL_BUFFERS = 1024;
/** Larger buffers kept spare, per tier. */
const SPARE_LARGE_BUFFERS = 8;

export class ReadBuffers {
  readonly #small: Buffer[] = [];
  readonly #tiers = TIERS.map((tier) => ({ ...tier, lent: 0, spare: [] as Buffer[] }));

  /** A small buffer of undefined content. */
  takeSmall(): Buffer {
    const spare = this.#small.pop();
    if (spare !== undefined) return spare;
    const slab = Buffer.allocUnsafeSlow(SLAB_BUFFERS * SMALL_READ_BYTES);
    for (let index = 1; index < SLAB_BUFFERS; index++) {
      this.#small.push(slab.subarray(index * SMALL_READ_BYTES, (index + 1) * SMALL_READ_BYTES));
    }
    return slab.subarray(0, SMALL_READ_BYTES);
  }

  /** The largest buffer available, or `undefined` if all are lent. */
  takeLarge(): Buffer | undefined {
    const tier = this.#tiers.find(({ lent, limit }) => lent < limit);
    if (tier === undefined) return undefined;
    tier.lent++;
    return tier.spare.pop() ?? Buffer.allocUnsafeSlow(tier.sizeBytes);
  }

  /** Takes back a buffer, which must no longer be read into or written from. */
  giveBack(buffer: Buffer): void {
    if (buffer.length === SMALL_READ_BYTES) {
      if (this.#small.length < SPARE_SMALL_BUFFERS) this.#small.push(buffer);
      return;
    }
    const tier = this.#tiers.find(({ sizeBytes }) => sizeBytes === buffer.length);
    if (tier === undefined) throw new RangeError(`a buffer of ${buffer.length} bytes is none of ours`);
    tier.lent--;
    if (tier.spare.length < SPARE_LARGE_BUFFERS) tier.spare.push(buffer);
  }

  /** How many buffers are lent, small ones not counted. */
  get lentLarge(): number {
    return this.#tiers.reduce((sum, { lent }) => sum + lent, 0);
  }
}
