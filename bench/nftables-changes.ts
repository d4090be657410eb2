/**
 * Changes in the model and their commits, one at a time and some at once; and in turns with them, so that a machine that
 * gets busier shows in both, what the kernel takes at least.
 */
import type { NftOperation } from "../src/kernel/nftables/nftables.ts";
import type { NftStatement } from "../src/kernel/nftables/ruleset.ts";
import type { ChangeFigures, NftablesTask } from "./nftables-figures.ts";
import type { NftSubject } from "./nftables-subject.ts";
import { RawBatches } from "./raw-batches.ts";
import { spread, timed } from "./table.ts";

export const AT_ONCE = 100;
/** Rounds of a hundred changes in one sync. */
const ROUNDS = 10;
const WARM_UP = 20;
/** Nothing leads to it. */
const CHAIN = "bench";
const SET_MARK: NftStatement = { kind: "mark-set", operation: "or", value: 0x4000 };

/** Each change with what of its time was not the kernel's. */
interface Samples {
  readonly wholeMs: number[];
  readonly ownMs: number[];
  cpuMs: number;
}

async function change(subject: NftSubject, samples: Samples, make: () => void): Promise<void> {
  const { kernelMs } = subject;
  const cpu = process.cpuUsage();
  const wholeMs = await timed(async () => {
    make();
    await subject.syncChanges();
  });
  const { user, system } = process.cpuUsage(cpu);
  samples.cpuMs += (user + system) / 1000;
  samples.wholeMs.push(wholeMs);
  samples.ownMs.push(wholeMs - (subject.kernelMs - kernelMs));
}

function newSamples(): Samples {
  return { wholeMs: [], ownMs: [], cpuMs: 0 };
}

function rewritten(...statements: NftStatement[]): NftOperation[] {
  return [
    { kind: "flush-chain", chain: CHAIN },
    { kind: "add-rule", chain: CHAIN, rule: { statements } },
  ];
}

export async function measureChanges(subject: NftSubject, task: NftablesTask): Promise<ChangeFigures> {
  const { services } = task;
  const one = newSamples();
  const floor = { one: [] as number[], checked: [] as number[], trivial: [] as number[] };
  let floorCpuMs = 0;
  const raw = new RawBatches();
  const replace = (n: number) => () => subject.replaceEndpoint(subject.scattered(n));
  try {
    for (let n = 0; n < WARM_UP; n += 1) await change(subject, newSamples(), replace(n));
    await raw.send([{ kind: "add-chain", chain: { name: CHAIN } }]);
    for (let n = 0; n < task.changes; n += 1) {
      // The second one finds the kernel's data in the processor's caches.
      const isOursFirst = n % 2 === 0;
      if (isOursFirst) await change(subject, one, replace(2 * n));
      const { cpuMs } = raw;
      floor.one.push(await raw.send(await subject.withheld(replace(2 * n + 1))));
      floorCpuMs += raw.cpuMs - cpuMs;
      if (!isOursFirst) await change(subject, one, replace(2 * n));
      floor.checked.push(await raw.send(rewritten(SET_MARK)));
      floor.trivial.push(await raw.send(rewritten()));
    }
    await raw.send([
      { kind: "flush-chain", chain: CHAIN },
      { kind: "delete-chain", chain: CHAIN },
    ]);
  } finally {
    await raw.close();
  }
  const hundred = newSamples();
  for (let round = 0; round < ROUNDS; round += 1) {
    await change(subject, hundred, () => {
      for (let n = 0; n < Math.min(AT_ONCE, services); n += 1) replace(round * AT_ONCE + n)();
    });
  }
  const added = newSamples();
  for (let n = 0; n < task.changes; n += 1) {
    await change(subject, added, () => subject.setService(services + n, "add"));
  }
  for (let n = 0; n < task.changes; n += 1) subject.setService(services + n, "delete");
  await subject.syncChanges();
  return {
    one: spread(one.wholeMs),
    oneOwn: spread(one.ownMs),
    oneCpuMs: one.cpuMs / task.changes,
    floor: {
      one: spread(floor.one),
      checked: spread(floor.checked),
      trivial: spread(floor.trivial),
      oneCpuMs: floorCpuMs / task.changes,
    },
    hundred: spread(hundred.wholeMs),
    serviceAdded: spread(added.wholeMs),
  };
}
