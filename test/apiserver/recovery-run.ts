/**
 * Measures how soon the first change after an outage reaches the kernel: the whole program with the test API server,
 * which stops and comes back without its history, like a restarted server. Runs in the caller's network namespace.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type NftablesClient, openNftables } from "../../src/kernel/nftables/wire/nftables-client.ts";
import { KUBE_PROXY } from "../../testkit/needs/built-program.ts";
import { BusyClock } from "../../testkit/support/processor-wait.ts";
import { ApiDaemon, POD_TOKEN, POD_USER, startClusterServer } from "./api-daemon.ts";
import { service, slice } from "./example-objects.ts";
import { CONFIG_CONF } from "./kubeadm-files.ts";
import type { TestApiServer } from "./test-api-server.ts";

export interface RecoveryOptions {
  /** The number of Services, with one endpoint each. */
  readonly services: number;
  /** The durations of consecutive outages. */
  readonly outageSeconds: readonly number[];
  /** How long the server refuses the token before the file gets a valid one, each time. */
  readonly badTokenSeconds: readonly number[];
  readonly onProgress?: (line: string) => void;
}

export interface RecoveryReport {
  /** By fault: the time from its end until a change made then is in the kernel, without waits for a CPU. */
  readonly milliseconds: ReadonlyMap<string, number>;
  /** Error lines about an expired version, which need no action from an operator. */
  readonly expiredErrors: readonly string[];
}

/** Above the 65,000 Services that a run may start with. */
const MARKERS_FROM = 65_000;
const LIMIT_MS = 240_000;

const NFPROTO_IPV4 = 2;

interface Scene {
  readonly server: TestApiServer;
  readonly daemon: ApiDaemon;
  readonly kernel: NftablesClient;
}

/** Runs the measurement. @throws if a change does not arrive within minutes. */
export async function measureRecovery(options: RecoveryOptions): Promise<RecoveryReport> {
  const cleanups: (() => Promise<void>)[] = [];
  try {
    return await run(options, { after: (callback) => void cleanups.push(callback) });
  } finally {
    for (const cleanUp of cleanups.reverse()) await cleanUp();
  }
}

async function run(
  { services, outageSeconds, badTokenSeconds, onProgress = () => {} }: RecoveryOptions,
  lifetime: { after(callback: () => Promise<void>): void },
): Promise<RecoveryReport> {
  const server = await startClusterServer(lifetime);
  for (let index = 0; index < services; index++) server.put("services", service(index));
  for (let index = 0; index < services; index++) server.put("endpointslices", slice(index));
  server.store.restart();
  const daemon = new ApiDaemon({
    url: server.url,
    ca: server.authority.certificate,
    config: CONFIG_CONF.replace('mode: ""', "mode: nftables"),
    program: [KUBE_PROXY],
  });
  lifetime.after(() => daemon.dispose());
  const kernel = openNftables();
  lifetime.after(() => kernel.close());
  const scene = { server, daemon, kernel };
  await daemon.synced();
  let marker = MARKERS_FROM;
  await arrival(scene, marker++);
  const milliseconds = new Map<string, number>();
  const note = async (what: string, fault: () => Promise<void>): Promise<void> => {
    // Lets the program become idle, so that the previous change does not wake it.
    await sleep(5_000);
    await fault();
    const tookMs = await arrival(scene, marker++);
    milliseconds.set(what, tookMs);
    onProgress(`${what}: ${(tookMs / 1000).toFixed(2)} s`);
  };
  for (const seconds of outageSeconds) {
    await note(`server away for ${seconds} s`, async () => {
      await server.shutDown();
      await sleep(seconds * 1000);
      await server.restart();
    });
  }
  for (const seconds of badTokenSeconds) {
    await note(`token refused for ${seconds} s`, async () => {
      const token = `${POD_TOKEN}-${seconds}`;
      server.switches.tokens = new Map([[token, POD_USER]]);
      server.cutConnections();
      await sleep(seconds * 1000);
      writeFileSync(join(daemon.folder, "serviceaccount/token"), token);
    });
  }
  return { milliseconds, expiredErrors: daemon.lines(/^E.*(Expired|too old|Gone)/) };
}

/** Adds a service and waits until it is in the kernel. @returns the milliseconds that took. */
async function arrival({ server, daemon, kernel }: Scene, marker: number): Promise<number> {
  const clock = new BusyClock(daemon.pid, "self");
  server.put("services", service(marker));
  server.put("endpointslices", slice(marker));
  const key = `10.96.${(marker >> 8) & 255}.${marker & 255}`;
  // Does not use `nft`, which reads the whole ruleset first and would keep a CPU busy.
  const isThere = async (): Promise<boolean> => {
    const elements = await kernel.elements(NFPROTO_IPV4, "kube-proxy", "service-ips");
    return elements.some((element) => element.key?.value?.subarray(0, 4).join(".") === key);
  };
  await daemon.until("the change in the kernel", isThere, LIMIT_MS);
  return clock.elapsedMs();
}
