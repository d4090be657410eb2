/**
 * What the kernel takes for the batches of a first load of the nftables mode. Arguments: services, endpoints of each, layout.
 * Writes `sent` and the milliseconds from sending to the kernel's answer, of all batches together. The table must not be there, and is
 * left behind.
 *
 * In the load itself the next batch is planned and encoded while the kernel has one, and its answer waits for that. So the
 * batches are taken from a load, and sent again to the kernel as it was before, with nothing beside.
 */
import { layoutNameOf } from "../src/dataplane/nftables/layout-name.ts";
import type { NftOperation } from "../src/kernel/nftables/nftables.ts";
import type { NftBatch } from "../src/kernel/nftables/wire/batch.ts";
import { NftSubject } from "./nftables-subject.ts";
import { RawBatches } from "./raw-batches.ts";

const [services, endpointsEach, layout = ""] = process.argv.slice(2);

async function operationsOfLoad(): Promise<readonly (readonly NftOperation[])[]> {
  const transactions: (readonly NftOperation[])[] = [];
  const subject = new NftSubject(Number(endpointsEach), layoutNameOf(layout));
  subject.isNoting = false;
  subject.onTransaction = (operations) => transactions.push(operations);
  subject.load(Number(services));
  await subject.fullSync(false);
  await subject.close();
  return transactions;
}

const transactions = await operationsOfLoad();
const raw = new RawBatches();
await raw.send([{ kind: "delete-table" }]);
// The kernel frees what is deleted later, in a thread of its own. Meanwhile all is encoded.
const batches: NftBatch[] = [];
for (const operations of transactions) batches.push(await raw.encode(operations, true));
let sentMs = 0;
for (const batch of batches) sentMs += await raw.sendEncoded(batch);
process.stdout.write(`sent ${sentMs}\n`);
await raw.close();
