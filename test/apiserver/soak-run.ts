/**
 * The soak test: the whole program with an API server whose objects keep changing and that always has some fault. Runs
 * in the caller's network namespace.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { KUBE_PROXY } from "../../testkit/needs/built-program.ts";
import { ApiDaemon, startClusterServer } from "./api-daemon.ts";
import { service, slice } from "./example-objects.ts";
import { CONFIG_CONF } from "./kubeadm-files.ts";
import { SOAK_FAULTS } from "./soak-faults.ts";
import { KERNEL_VIEWS, type KernelView, type SoakMode } from "./soak-kernel.ts";
import type { TestApiServer } from "./test-api-server.ts";

export interface SoakOptions {
  readonly mode: SoakMode;
  /** The time in which faults start; the run waits for the last one. */
  readonly seconds: number;
  readonly seed: number;
  /** Includes faults that the program needs minutes to notice. */
  readonly hasLongFaults: boolean;
  readonly onProgress?: (line: string) => void;
}

/** The recovery times of one fault: from its end until a change made then is in the kernel. */
export interface Recovery {
  readonly fault: string;
  readonly milliseconds: readonly number[];
}

export interface Footprint {
  readonly fileDescriptors: number;
  readonly activeResources: number;
  readonly rssMb: number;
}

export interface SoakReport {
  readonly recoveries: readonly Recovery[];
  readonly changes: number;
  /** While idle: before the first fault, and after the last. */
  readonly before: Footprint;
  readonly after: Footprint;
  /** Sampled every five seconds. */
  readonly rssMb: readonly number[];
  readonly rules: string;
  /** The rules that a fresh program writes for the same objects. */
  readonly freshRules: string;
  /** The longest response time of /livez. */
  readonly livezMs: number;
}

/** Services that never change: their rules must always be there. */
const PERMANENT = 50;
const PERMANENT_FROM = 1_000;
/** Services that come, change and go. */
const CHANGING = 150;
const CHANGE_EVERY_MS = 20;
/** Services that show that all earlier changes have arrived. */
const MARKERS_FROM = 2_000;
/** A request without a response is abandoned after 75 s, and waits grow to a minute. */
const RECOVERY_LIMIT_MS = 240_000;

/** Runs the test. @throws if the program exits, does not recover, loses a rule temporarily, or stops responding. */
export async function soak(options: SoakOptions): Promise<SoakReport> {
  const cleanups: (() => Promise<void>)[] = [];
  try {
    return await runSoak(options, { after: (callback) => void cleanups.push(callback) });
  } finally {
    for (const cleanUp of cleanups.reverse()) await cleanUp();
  }
}

/** Measures the recovery from each fault with a fresh program, whose backoff is still short. */
export async function recoverFromEach(
  mode: SoakMode,
  seed: number,
  onProgress: (line: string) => void,
): Promise<readonly Recovery[]> {
  const random = randomNumbers(seed);
  const view = KERNEL_VIEWS[mode];
  const recoveries: Recovery[] = [];
  for (const fault of SOAK_FAULTS) {
    const cleanups: (() => Promise<void>)[] = [];
    try {
      const server = await startClusterServer({ after: (callback) => void cleanups.push(callback) });
      const daemon = start(server, mode);
      cleanups.push(() => daemon.dispose());
      await daemon.synced();
      await arrival(server, daemon, view, MARKERS_FROM);
      await sleep(1_500);
      await fault.strike({ server, daemon, random });
      const tookMs = await arrival(server, daemon, view, MARKERS_FROM + 1);
      onProgress(`${fault.name}: ${(tookMs / 1000).toFixed(1)} s`);
      recoveries.push({ fault: fault.name, milliseconds: [tookMs] });
    } finally {
      for (const cleanUp of cleanups.reverse()) await cleanUp();
      await view.flush();
    }
  }
  return recoveries;
}

interface Lifetime {
  after(callback: () => Promise<void>): void;
}

async function runSoak(options: SoakOptions, lifetime: Lifetime): Promise<SoakReport> {
  const { mode, seconds, seed, hasLongFaults, onProgress = () => {} } = options;
  const random = randomNumbers(seed);
  const view = KERNEL_VIEWS[mode];
  const server = await startClusterServer(lifetime);
  for (let index = 0; index < PERMANENT; index++) put(server, PERMANENT_FROM + index, 0);
  let daemon = start(server, mode);
  lifetime.after(() => daemon.dispose());
  await daemon.synced();
  await sleep(3_000);
  const before = await footprintOf(daemon);
  const watched = watchOver(daemon, view);
  const churn = changeObjects(server, random);
  const milliseconds = new Map<string, number[]>();
  const faults = SOAK_FAULTS.filter(({ isLong }) => hasLongFaults || isLong !== true);
  const end = Date.now() + seconds * 1000;
  let marker = MARKERS_FROM;
  try {
    // Even a short run must include an expired version.
    for (let queue = faults.filter(({ name }) => name.startsWith("410")); Date.now() < end; ) {
      if (queue.length === 0) queue = shuffled(faults, random);
      const fault = queue.pop();
      if (fault === undefined) break;
      await Promise.all([fault.strike({ server, daemon, random }), loseForGood(server, marker - 1)]);
      const tookMs = await arrival(server, daemon, view, marker++);
      milliseconds.set(fault.name, [...(milliseconds.get(fault.name) ?? []), tookMs]);
      onProgress(`${fault.name}: ${(tookMs / 1000).toFixed(1)} s`);
      watched.check();
    }
  } finally {
    churn.stop();
  }
  await arrival(server, daemon, view, marker++);
  await sleep(5_000);
  const { rssMb, livezMs } = await watched.stop();
  const after = await footprintOf(daemon);
  const rules = await view.rules();
  await daemon.dispose();
  await view.flush();
  daemon = start(server, mode);
  await daemon.synced();
  const freshRules = await view.rules();
  const recoveries = Array.from(milliseconds, ([fault, each]) => ({ fault, milliseconds: each }));
  return { recoveries, changes: churn.count(), before, after, rssMb, livezMs, rules, freshRules };
}

function start(server: TestApiServer, mode: SoakMode): ApiDaemon {
  const [token = ""] = server.switches.tokens?.keys() ?? [];
  return new ApiDaemon({
    url: server.url,
    ca: server.authority.certificate,
    config: CONFIG_CONF.replace('mode: ""', `mode: ${mode}`),
    program: [KUBE_PROXY],
    token,
  });
}

function put(server: TestApiServer, index: number, generation: number): void {
  server.put("services", service(index));
  server.put("endpointslices", slice(index, 1 + (generation % 4), generation));
}

function clusterIPOf(index: number): string {
  return `10.96.${(index >> 8) & 255}.${index & 255}`;
}

/** Adds a service and waits until it is in the kernel. @returns the milliseconds that took. */
async function arrival(server: TestApiServer, daemon: ApiDaemon, view: KernelView, marker: number): Promise<number> {
  const startMs = performance.now();
  put(server, marker, 0);
  await daemon.until("recovery", async () => (await view.clusterIPs()).has(clusterIPOf(marker)), RECOVERY_LIMIT_MS);
  return performance.now() - startMs;
}

/** Deletes a service during a fault and never mentions it again, so that no later event hides a missed deletion. */
async function loseForGood(server: TestApiServer, index: number): Promise<void> {
  await sleep(100);
  server.delete("services", service(index));
  server.delete("endpointslices", slice(index));
}

/** Changes objects at random until stopped. */
function changeObjects(server: TestApiServer, random: () => number) {
  let count = 0;
  let generation = 0;
  const timer = setInterval(() => {
    const index = Math.floor(random() * CHANGING);
    const choice = random();
    generation++;
    count++;
    if (choice < 0.6) put(server, index, generation);
    else if (choice < 0.7) server.delete("services", service(index));
    else if (choice < 0.8) server.delete("endpointslices", slice(index));
    else if (choice < 0.9) server.put("services", service(index, { sessionAffinity: "ClientIP" }));
    else server.put("services", service(index, { clusterIP: "None", clusterIPs: ["None"] }));
    if (count % 100 === 0) server.sendBookmarks();
  }, CHANGE_EVERY_MS);
  return { count: () => count, stop: () => clearInterval(timer) };
}

/** Keeps checking the invariants. */
function watchOver(daemon: ApiDaemon, view: KernelView) {
  const permanent = Array.from({ length: PERMANENT }, (_, index) => clusterIPOf(PERMANENT_FROM + index));
  const rssMb: number[] = [];
  const problems: string[] = [];
  const stop = new AbortController();
  let livezMs = 0;
  const looking = (async () => {
    for (let second = 0; !stop.signal.aborted; second++) {
      const present = await view.clusterIPs();
      const missing = permanent.filter((ip) => !present.has(ip));
      if (missing.length > 0) problems.push(`the rules of ${missing.length} untouched services were gone`);
      const startMs = performance.now();
      const status = await fetch("http://127.0.0.1:10256/livez").then(
        (answer) => answer.status,
        () => 0,
      );
      livezMs = Math.max(livezMs, performance.now() - startMs);
      if (status !== 200) problems.push(`/livez answered ${status}`);
      if (second % 5 === 0) rssMb.push(rssOf(daemon.pid));
      await sleep(1_000, undefined, { signal: stop.signal }).catch(() => {});
    }
  })();
  const check = (): void => {
    assert.equal(daemon.child.exitCode, null, daemon.log);
    assert.deepEqual(problems, [], daemon.log);
  };
  return {
    check,
    async stop() {
      stop.abort();
      await looking;
      check();
      return { rssMb, livezMs };
    },
  };
}

async function footprintOf(daemon: ApiDaemon): Promise<Footprint> {
  const metrics = await (await fetch("http://127.0.0.1:10249/metrics")).text();
  return {
    fileDescriptors: readdirSync(`/proc/${daemon.pid}/fd`).length,
    activeResources: Number(/^nodejs_active_resources_total (\d+)$/m.exec(metrics)?.[1]),
    rssMb: rssOf(daemon.pid),
  };
}

function rssOf(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;
}

function shuffled<T>(items: readonly T[], random: () => number): T[] {
  return items
    .map((item) => ({ item, at: random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ item }) => item);
}

/** A seeded generator of numbers in [0, 1) (mulberry32). */
function randomNumbers(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
