/** Endpoint changes at a steady rate, synced when the daemon would sync. */
import { BoundedRunner } from "../src/async/bounded-runner.ts";
import { systemClock } from "../src/async/clock.ts";
import type { Burst, NftablesTask } from "./nftables-figures.ts";
import { spread } from "./nftables-samples.ts";
import type { NftSubject } from "./nftables-subject.ts";

/** `minSyncPeriod` where it is not set. */
const LEAST_REST_MS = 1;
const HOUR_MS = 3_600_000;

/** Events come when they are due, also during a sync; each is done when the sync that took it is committed. */
export async function measureBurst(subject: NftSubject, { burstSeconds, burstRate }: NftablesTask): Promise<Burst> {
  const events = burstSeconds * burstRate;
  const latencies: number[] = [];
  const startMs = performance.now();
  const cpu = process.cpuUsage();
  const end = new AbortController();
  let made = 0;
  let syncs = 0;
  let failure: unknown;
  const runner = new BoundedRunner({
    periods: { minMs: LEAST_REST_MS, retryMs: HOUR_MS, maxMs: HOUR_MS },
    clock: systemClock,
    restMs: () => subject.restMs,
    work: async () => {
      const first = made;
      const due = Math.min(events, Math.floor(((performance.now() - startMs) / 1000) * burstRate));
      for (; made < due; made += 1) subject.replaceEndpoint(subject.scattered(made));
      try {
        await subject.syncChanges();
      } catch (error) {
        failure = error;
        end.abort();
        return;
      }
      syncs += 1;
      const nowMs = performance.now();
      for (let event = first; event < due; event += 1) {
        latencies.push(nowMs - (startMs + (event * 1000) / burstRate));
      }
      if (latencies.length === events) end.abort();
    },
  });
  const ticking = setInterval(() => runner.request(), 1);
  await runner.run(end.signal);
  clearInterval(ticking);
  if (failure !== undefined) throw failure;
  const { user, system } = process.cpuUsage(cpu);
  const wallMs = performance.now() - startMs;
  const cpuSeconds = (user + system) / 1e6;
  return { events, latency: spread(latencies), syncs, cpuShare: (1000 * cpuSeconds) / wallMs, cpuSeconds };
}
