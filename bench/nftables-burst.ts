/** Endpoint changes at a steady rate, synced when the daemon would sync. */
import { setTimeout as sleep } from "node:timers/promises";
import { BoundedRunner } from "../src/async/bounded-runner.ts";
import { systemClock } from "../src/async/clock.ts";
import type { Burst, NftablesTask } from "./nftables-figures.ts";
import type { NftSubject } from "./nftables-subject.ts";
import { spread } from "./table.ts";

/** `minSyncPeriod` where it is not set. */
const LEAST_REST_MS = 1;
const HOUR_MS = 3_600_000;
const TICK_MS = 1;

/** How long the bench's own timer is measured. */
const TIMER_MS = 2_000;

/** Processor seconds of all threads in a second of the timer that makes the events, while it makes none. */
async function timerCpuPerSecond(): Promise<number> {
  const cpu = process.cpuUsage();
  const startMs = performance.now();
  const ticking = setInterval(() => {}, TICK_MS);
  await sleep(TIMER_MS);
  clearInterval(ticking);
  const { user, system } = process.cpuUsage(cpu);
  return (user + system) / 1e6 / ((performance.now() - startMs) / 1000);
}

/** Events come when they are due, also during a sync; each is done when the sync that took it is committed. */
export async function measureBurst(subject: NftSubject, { burstSeconds, burstRate }: NftablesTask): Promise<Burst> {
  const events = burstSeconds * burstRate;
  const latencies: number[] = [];
  const timerCpu = await timerCpuPerSecond();
  subject.isNoting = false;
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
      // The first is due at the start.
      const due = Math.min(events, Math.floor(((performance.now() - startMs) / 1000) * burstRate) + 1);
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
  const ticking = setInterval(() => runner.request(), TICK_MS);
  await runner.run(end.signal);
  clearInterval(ticking);
  if (failure !== undefined) throw failure;
  const { user, system } = process.cpuUsage(cpu);
  const wallMs = performance.now() - startMs;
  subject.isNoting = true;
  const timerCpuSeconds = (timerCpu * wallMs) / 1000;
  const cpuSeconds = (user + system) / 1e6 - timerCpuSeconds;
  return {
    events,
    latency: spread(latencies),
    syncs,
    cpuShare: (1000 * cpuSeconds) / wallMs,
    cpuSeconds,
    timerCpuSeconds,
  };
}
