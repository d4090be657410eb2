/** Everything that is known to have stopped the program once, done to a fresh daemon. */
import { readFileSync } from "node:fs";
import { signalChild } from "../../src/kernel/child-process.ts";
import type { NetworkNamespace } from "../../testkit/net/network-namespace.ts";
import { ProxyDaemon } from "../../testkit/support/proxy-daemon.ts";
import { daemonOptions } from "../kernel/faults/fault-node.ts";
import { Attacker, type Probe } from "./attackers.ts";

const HEALTH_CHECK_PORT = 32_100;
/** The ports of a daemon. In nftables mode health checks are answered on the node's own address alone. */
const PORTS = [
  ["127.0.0.1", 10256],
  ["127.0.0.1", 10249],
  ["10.200.0.2", HEALTH_CHECK_PORT],
] as const;
const IDLE = 2000;
const PIPELINED = 1000;

export type AttackedMode = "iptables" | "nftables" | "userspace";

function service(name: string, clusterIP: string): readonly unknown[] {
  const ports = [{ name: "web", port: 80, protocol: "TCP" }];
  const local = { type: "LoadBalancer", externalTrafficPolicy: "Local", healthCheckNodePort: HEALTH_CHECK_PORT };
  return [
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { name, namespace: "default" },
      spec: { clusterIP, clusterIPs: [clusterIP], ports, ...(name === "first" ? local : {}) },
    },
    {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: { name: `${name}-1`, namespace: "default", labels: { "kubernetes.io/service-name": name } },
      addressType: "IPv4",
      endpoints: [{ addresses: ["10.180.0.5"], nodeName: "node-a", conditions: { ready: true } }],
      ports: [{ name: "web", port: 8080, protocol: "TCP" }],
    },
  ];
}

const FIRST = service("first", "172.30.0.10");
const SECOND_IP = "172.30.0.77";
const node = daemonOptions({}).objects;

/** A daemon with a Service that has a health-check node port. @param openFiles its limit. */
export async function victim(
  namespace: NetworkNamespace,
  mode: AttackedMode,
  openFiles?: number,
): Promise<ProxyDaemon> {
  // Without the right to raise the limit again, which userspace mode would use.
  const capped = ["setpriv", "--bounding-set=-sys_resource", "prlimit", `--nofile=${openFiles}:${openFiles}`] as const;
  return await ProxyDaemon.start(namespace, {
    ...daemonOptions({ objects: FIRST, config: { mode, [mode]: { syncPeriod: "30s", minSyncPeriod: "10ms" } } }),
    ...(openFiles === undefined ? {} : { wrapper: [...capped] }),
  });
}

async function rules(daemon: ProxyDaemon, mode: AttackedMode): Promise<string> {
  const command = mode === "nftables" ? (["nft", "list", "ruleset"] as const) : (["iptables-save"] as const);
  return (await daemon.namespace.exec([...command])).stdout;
}

function residentMb(daemon: ProxyDaemon): number {
  const [, kilobytes] = /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${daemon.pid}/status`, "utf8")) ?? [];
  return Math.round(Number(kilobytes) / 1024);
}

const startProbe = ({ namespace, pid = 0 }: ProxyDaemon, path: string): Promise<Attacker> =>
  Attacker.start(namespace, "probe", "127.0.0.1", 10256, path, pid);

export interface IdleOutcome {
  readonly probe: Probe;
  /** From the edit to the rule. */
  readonly changeMs: number;
}

/** Holds idle connections on every port, and changes Services meanwhile. */
export async function holdIdleConnections(daemon: ProxyDaemon, mode: AttackedMode): Promise<IdleOutcome> {
  const attackers: Attacker[] = [];
  try {
    for (const [host, port] of PORTS) {
      attackers.push(await Attacker.start(daemon.namespace, "idle", host, port, IDLE));
    }
    const probe = await startProbe(daemon, "/healthz");
    attackers.push(probe);
    const startMs = performance.now();
    daemon.writeObjects([...node, ...FIRST, ...service("second", SECOND_IP)]);
    await daemon.until("the rule of a new Service", async () => (await rules(daemon, mode)).includes(SECOND_IP));
    const changeMs = performance.now() - startMs;
    daemon.writeObjects([...node, ...FIRST]);
    await daemon.until("the rule to go", async () => !(await rules(daemon, mode)).includes(SECOND_IP));
    for (const [host, port] of PORTS) {
      const { status, body } = await daemon.fetch(`http://${host}:${port}/healthz`);
      if (status !== 200) throw new Error(`port ${port} answers ${status} ${body}\n${daemon.log}`);
    }
    return { probe: await probe.result(), changeMs };
  } finally {
    for (const attacker of attackers) attacker.end();
  }
}

export interface PipelineOutcome {
  readonly probe: Probe;
  /** Of the daemon that was not attacked, at the same time. */
  readonly spared: Probe | undefined;
  readonly grownMb: number;
}

/**
 * Asks for the metrics page many times on one connection, and reads nothing.
 *
 * @param watchMs how long to look on. @param spared a daemon on another node that is not attacked.
 */
export async function pipelineUnread(
  daemon: ProxyDaemon,
  watchMs: number,
  spared?: ProxyDaemon,
): Promise<PipelineOutcome> {
  const control = spared && (await startProbe(spared, "/healthz"));
  const beforeMb = residentMb(daemon);
  const probe = await startProbe(daemon, "/healthz");
  const flooder = await Attacker.start(daemon.namespace, "pipeline", "127.0.0.1", 10249, PIPELINED, "/metrics");
  try {
    await new Promise((resolve) => setTimeout(resolve, watchMs));
    const [seen, spare] = await Promise.all([probe.result(), control?.result()]);
    return { probe: seen, spared: spare, grownMb: residentMb(daemon) - beforeMb };
  } finally {
    for (const attacker of [flooder, probe, control]) attacker?.end();
  }
}

const MANY_PORTS = 5_000;

/** Two Services of one tenant with 5,000 ports claim the same addresses, again and again. @returns the lines and bytes of the log */
export async function floodLog(
  namespace: NetworkNamespace,
  changes: number,
): Promise<{ readonly lines: number; readonly bytes: number }> {
  const ports = Array.from({ length: MANY_PORTS }, (_, index) => ({ name: `p${index}`, port: index + 1 }));
  const greedy = (name: string, clusterIP: string, externalIPs: readonly string[]) => ({
    ...{ apiVersion: "v1", kind: "Service", metadata: { name, namespace: "tenant" } },
    spec: { clusterIP, clusterIPs: [clusterIP], externalIPs, ports },
  });
  const addresses = ["192.0.2.1", "192.0.2.2"];
  const others = [...node, greedy("a", "10.96.2.1", addresses)];
  const daemon = await ProxyDaemon.start(namespace, {
    ...daemonOptions({ objects: others, config: { mode: "nftables", nftables: { layout: "Flat" } } }),
  });
  try {
    const before = daemon.log.length;
    for (let change = 0; change < changes; change += 1) {
      const sinceMs = Date.now();
      daemon.writeObjects([...others, greedy("b", "10.96.2.2", change % 2 === 0 ? addresses : [])]);
      await daemon.synced(sinceMs, ["IPv4"]);
    }
    const text = daemon.log.slice(before);
    return { lines: text.split("\n").length, bytes: text.length };
  } finally {
    await daemon.dispose();
  }
}

export interface DoorOutcome {
  /** Of the door that is not attacked. */
  readonly probe: Probe;
  readonly grownMb: number;
  /** From SIGTERM to the end. */
  readonly endMs: number;
  /** Lines of the log while it lasted. */
  readonly lines: number;
}

const PAGE_PORT = 10_333;
const API_PORT = 10_444;

export const FLOODS = ["blank lines", "ADDED", "MODIFIED", "BOOKMARK", "unusable", "deep"] as const;

/** Asks the page what takes long and hangs up, again and again; then asks it properly, and ends the daemon. */
export async function hangUpOnPage(
  namespace: NetworkNamespace,
  watchMs: number,
): Promise<DoorOutcome & { askedMs: number }> {
  const bound = `--inspect-bind-address=127.0.0.1:${PAGE_PORT}`;
  const daemon = await ProxyDaemon.start(namespace, {
    ...daemonOptions({ objects: FIRST, config: { mode: "nftables" } }),
    args: [bound],
  });
  const key = encodeURIComponent("default/first:web/TCP");
  const attack = ["hang-up", "127.0.0.1", PAGE_PORT, `/api/service?key=${key}&traffic`] as const;
  return await watched(daemon, attack, "/healthz", watchMs, async () => {
    const startMs = performance.now();
    // 503 until the last clients are known to be gone.
    const answers = async () => (await daemon.fetch(`http://127.0.0.1:${PAGE_PORT}/api/services`)).status === 200;
    await daemon.until("an answer of the page", answers);
    return { askedMs: performance.now() - startMs };
  });
}

/** An API server that never stops writing. */
export async function floodFromServer(
  namespace: NetworkNamespace,
  what: (typeof FLOODS)[number],
  watchMs: number,
): Promise<DoorOutcome> {
  const server = await Attacker.start(namespace, "flood", "127.0.0.1", API_PORT, what);
  try {
    const daemon = ProxyDaemon.prepare(namespace, {
      ...daemonOptions({ config: { mode: "nftables" } }),
      master: `http://127.0.0.1:${API_PORT}`,
    });
    daemon.spawn();
    await daemon.until("an answer", async () => (await daemon.fetch("http://127.0.0.1:10256/livez")).status !== 0);
    return await watched(daemon, undefined, "/livez", watchMs, async () => ({}));
  } finally {
    server.end();
  }
}

/** Looks on through a door that is not attacked, then ends the daemon. */
async function watched<T>(
  daemon: ProxyDaemon,
  attack: readonly [string, ...(string | number)[]] | undefined,
  path: string,
  watchMs: number,
  then: () => Promise<T>,
): Promise<DoorOutcome & T> {
  const attackers: Attacker[] = [];
  try {
    const beforeMb = residentMb(daemon);
    const probe = await startProbe(daemon, path);
    attackers.push(probe);
    const attacker = attack && (await Attacker.start(daemon.namespace, ...attack));
    if (attacker !== undefined) attackers.push(attacker);
    await new Promise((resolve) => setTimeout(resolve, watchMs));
    const seen = await probe.result();
    attacker?.end();
    const asked = await then();
    const grownMb = residentMb(daemon) - beforeMb;
    const lines = daemon.log.split("\n").length;
    const startMs = performance.now();
    await daemon.stop();
    return { ...asked, probe: seen, grownMb, lines, endMs: performance.now() - startMs };
  } finally {
    for (const one of attackers) one.end();
    await daemon.dispose();
  }
}

/** Sends SIGUSR1. @returns whether a debugger answers, and whether the daemon does. */
export async function askForDebugger(daemon: ProxyDaemon): Promise<{ isOpen: boolean; isAlive: boolean }> {
  const { pid } = daemon;
  if (pid === undefined) throw new Error("the daemon does not run");
  signalChild({ pid, exitCode: null, signalCode: null, kill: (signal) => process.kill(pid, signal) }, "SIGUSR1");
  // The thread that would open it needs a moment; the answer of the health port comes after the signal's handler.
  await new Promise((resolve) => setTimeout(resolve, 500));
  const isAlive = (await daemon.fetch("http://127.0.0.1:10256/healthz")).status === 200;
  return { isOpen: (await daemon.fetch("http://127.0.0.1:9229/json")).status !== 0, isAlive };
}
