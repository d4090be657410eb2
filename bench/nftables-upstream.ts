/** The same changes, made once more by the `nft` program with what upstream would send. */
import { writeFileSync } from "node:fs";
import { TABLE } from "../src/dataplane/nftables/names.ts";
import { toolsCpuMs } from "./memory.ts";
import { nftScript, runNft, timeUpstreamListing } from "./nft-program.ts";
import { AT_ONCE } from "./nftables-changes.ts";
import type { NftablesTask, Spread, UpstreamFigures } from "./nftables-figures.ts";
import type { NftSubject } from "./nftables-subject.ts";
import { spread } from "./table.ts";

/** A listing takes many seconds from here on. */
const LARGE = 10_000;

/** Makes a change, then does once more with `nft -f` what the last transaction did. */
async function repeat(
  subject: NftSubject,
  task: NftablesTask,
  file: string,
  rounds: number,
  change: (round: number) => Promise<void>,
): Promise<Spread | undefined> {
  const samples: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    await change(round);
    writeFileSync(file, nftScript(TABLE, subject.lastOperations));
    const ms = await runNft(file, task.limitMs);
    if (ms === undefined) break;
    samples.push(ms);
  }
  return samples.length === 0 ? undefined : spread(samples);
}

/** Watching must be over. @param file for what nft reads. */
export async function measureUpstream(subject: NftSubject, task: NftablesTask, file: string): Promise<UpstreamFigures> {
  const { services, nftChanges } = task;
  const atOnce = Math.min(AT_ONCE, services);
  const replaceMany = (count: number) => async (round: number) => {
    for (let n = 0; n < count; n += 1) subject.replaceEndpoint(subject.scattered(round * count + n));
    await subject.syncChanges();
  };
  const startCpuMs = toolsCpuMs();
  const listings = Array.from({ length: services > LARGE ? 1 : 3 }, () => timeUpstreamListing(TABLE));
  const listedCpuMs = toolsCpuMs();
  const one = await repeat(subject, task, file, nftChanges, replaceMany(1));
  const oneCpuMs = (toolsCpuMs() - listedCpuMs) / nftChanges;
  const hundred = await repeat(subject, task, file, Math.min(2, nftChanges), replaceMany(atOnce));
  const serviceAdded = await repeat(subject, task, file, nftChanges, async (round) => {
    const index = 2 * services + round;
    subject.setService(index, "add");
    await subject.syncChanges();
    const operations = subject.lastOperations;
    subject.setService(index, "delete");
    await subject.syncChanges();
    subject.lastOperations = operations;
  });
  const listingCpuMs = (listedCpuMs - startCpuMs) / listings.length;
  return { one, hundred, serviceAdded, listing: spread(listings), oneCpuMs, listingCpuMs };
}
