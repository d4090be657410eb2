/** Endpoint changes at a steady rate, synced when the daemon would sync. */
import { setTimeout as sleep } from "node:timers/promises";
import { BoundedRunner } from "../src/async/bounded-runner.ts";
import { systemClock } from "../src/async/clock.ts";
import { cpuMsOf } from "./memory.ts";
import type { Subject } from "./subject.ts";
import { spread, timed } from "./table.ts";

/** The default `minSyncPeriod`. */
const LEAST_REST_MS = 1;
const HOUR_MS = 3_600_000;
const TICK_MS = 1;
/** How long the cost of the bench's own timer is measured. */
const TIMER_MS = 2_000;

/** Events come when they are due, also during a sync; each is done when the sync that includes it is committed. */
export async function measureBurst(subject: Subject, rate: number, seconds: number) {
  const events = seconds * rate;
  const latencies: number[] = [];
  const end = new AbortController();
  let [made, syncs, startMs] = [0, 0, 0];
  let failure: unknown;
  const runner = new BoundedRunner({
    periods: { minMs: LEAST_REST_MS, retryMs: HOUR_MS, maxMs: HOUR_MS },
    clock: systemClock,
    restMs: () => subject.backend.restMs ?? 0,
    work: async () => {
      const first = made;
      // The first is due at the start.
      const due = Math.min(events, Math.floor(((performance.now() - startMs) / 1000) * rate) + 1);
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
      for (let event = first; event < due; event += 1) latencies.push(nowMs - (startMs + (event * 1000) / rate));
      if (latencies.length === events) end.abort();
    },
  });
  const ticking = async (
    tick: () => void,
    work: () => Promise<unknown>,
  ): Promise<readonly [wallMs: number, cpuMs: number]> => {
    let wallMs = 0;
    const cpuMs = await cpuMsOf(async () => {
      const timer = setInterval(tick, TICK_MS);
      wallMs = await timed(work);
      clearInterval(timer);
    });
    return [wallMs, cpuMs];
  };
  const [restMs, restCpuMs] = await ticking(
    () => {},
    () => sleep(TIMER_MS),
  );
  startMs = performance.now();
  const [wallMs, allCpuMs] = await ticking(
    () => runner.request(),
    () => runner.run(end.signal),
  );
  if (failure !== undefined) throw failure;
  const timerMs = restCpuMs * (wallMs / restMs);
  const cpuMs = allCpuMs - timerMs;
  // Processor time of all threads, less that of the bench's own timer.
  return {
    latency: spread(latencies),
    changesInSync: events / syncs,
    cpuUs: (1000 * cpuMs) / events,
    timerUs: (1000 * timerMs) / events,
    cpuShare: cpuMs / wallMs,
  };
}
