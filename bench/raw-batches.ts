/** Batches as bytes, made beforehand and sent over a plain socket in this thread, with nothing around them. */
import { TABLE } from "../src/dataplane/nftables/names.ts";
import { encodeTransaction } from "../src/kernel/nftables/netlink-transaction.ts";
import { LAYOUTS } from "../src/kernel/nftables/netlink-values.ts";
import type { NftOperation } from "../src/kernel/nftables/nftables.ts";
import type { NftBatch } from "../src/kernel/nftables/wire/batch.ts";
import { openNftables } from "../src/kernel/nftables/wire/nftables-client.ts";
import { ownCpuMs } from "./memory.ts";

export class RawBatches {
  readonly #client = openNftables();
  /** Processor time of all sending so far. */
  cpuMs = 0;

  /** @param isNew nothing in the table is from another process: anonymous sets have the short names of a first load. */
  async encode(operations: Iterable<NftOperation>, isNew = false): Promise<NftBatch> {
    const { batch } = await encodeTransaction({ layout: LAYOUTS.ip, table: TABLE, isNew }, operations);
    batch.finish();
    return batch;
  }

  /** @returns milliseconds from sending to the kernel's answer. Rejects when it is refused. */
  async send(operations: Iterable<NftOperation>): Promise<number> {
    return this.sendEncoded(await this.encode(operations));
  }

  /** See {@link send}. */
  async sendEncoded(batch: NftBatch): Promise<number> {
    const startCpuMs = ownCpuMs();
    const startMs = performance.now();
    const result = await this.#client.commit(batch, { isSlow: false });
    const milliseconds = performance.now() - startMs;
    this.cpuMs += ownCpuMs() - startCpuMs;
    if (!result.committed) throw new Error(result.failures[0]?.message ?? "a batch was refused");
    return milliseconds;
  }

  async close(): Promise<void> {
    await this.#client.close();
  }
}
