/**
 * The daemon as a whole: how long after a new service became known a connection through its cluster IP succeeds, with a
 * client that tries all the time. Measured is what is built (`dist`), as it is started (`bin/kube-proxy`).
 */
import type { ChildProcess } from "node:child_process";
import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { LayoutName } from "../src/dataplane/nftables/layout-name.ts";
import { signalChild } from "../src/kernel/child-process.ts";
import { NetworkNamespace, removeNamespacesNow } from "../testkit/net/network-namespace.ts";
import { newRunName } from "../testkit/net/run-name.ts";
import { ProxyDaemon } from "../testkit/support/proxy-daemon.ts";
import { benchService } from "./cluster.ts";
import type { ProgramTask } from "./connection-api-process.ts";
import {
  type ClusterSize,
  clusterObjects,
  nodeObject,
  type ProgramReport,
  type StartReport,
  serviceObjects,
} from "./connection-cluster.ts";
import { atExit } from "./namespace.ts";
import type { ConnectionFigures, Spread } from "./nftables-figures.ts";
import { spread } from "./table.ts";

const CLIENT = fileURLToPath(new URL("./connection-client.ts", import.meta.url));
const API = fileURLToPath(new URL("./connection-api-process.ts", import.meta.url));
const NODE_IP = "10.200.0.2";
const SERVER_IP = "10.200.0.3";
const SERVER_PORT = 8080;
/** What is built, as it is started. */
const OWN_PROGRAM = fileURLToPath(new URL("../bin/kube-proxy", import.meta.url));
const START_LIMIT_MS = 120_000;

export interface ConnectionTask extends ClusterSize {
  /** The proxy mode. */
  readonly mode: string;
  /** New services connected to, one after the other. */
  readonly trials: number;
  /** Between two trials: a multiple of no period of the daemon's. @default 137 */
  readonly pauseMs?: number;
  /** Of the API server's follower. @default what the mode does without */
  readonly layout?: LayoutName;
  /** That follower: any kube-proxy. @default this one */
  readonly program?: string;
  /** For its first sync, and for each connection. @default {@link START_LIMIT_MS} */
  readonly limitMs?: number;
  /** Rest before its memory is read. @default 0 */
  readonly settleSeconds?: number;
}

/** A node, and behind its only link a server. */
async function network(): Promise<{ readonly node: NetworkNamespace; readonly server: NetworkNamespace }> {
  const node = await NetworkNamespace.create(newRunName("bench"));
  const server = await NetworkNamespace.create(newRunName("bench"));
  await node.configure([
    `link add eth0 type veth peer name eth0 netns ${server.name}`,
    "link set eth0 up",
    `addr add ${NODE_IP}/24 dev eth0`,
    `route add default via ${SERVER_IP}`,
  ]);
  await server.configure(["link set eth0 up", `addr add ${SERVER_IP}/24 dev eth0`]);
  return { node, server };
}

/** A process that is asked and answers line by line. */
interface Partner {
  readonly ask: (line: string) => Promise<string>;
  /** What it says without being asked. */
  readonly next: () => Promise<string>;
  readonly end: () => Promise<void>;
}

function partner(node: NetworkNamespace, file: string, ...args: readonly string[]): Partner {
  const child = node.spawn([process.execPath, file, ...args], { stdio: ["pipe", "pipe", "inherit"] });
  const { stdin, stdout } = child;
  if (stdin === null || stdout === null) throw new Error("a process has no pipes");
  const lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
  const next = async (): Promise<string> => {
    const { value } = await lines.next();
    if (value === undefined) throw new Error(`${file} has ended`);
    return value;
  };
  return {
    next,
    ask: (line) => {
      stdin.write(`${line}\n`);
      return next();
    },
    end: async () => {
      stdin.end();
      await ended(child);
    },
  };
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) await new Promise((resolve) => child.once("exit", resolve));
}

function startServer(server: NetworkNamespace): () => void {
  const script = `require("node:net").createServer((socket) => socket.end()).listen(${SERVER_PORT}, "0.0.0.0")`;
  const child = server.spawn([process.execPath, "-e", script], { stdio: "ignore" });
  return () => void signalChild(child);
}

/** Makes services known, one after the other. `add` resolves with the time just before. */
async function trials(
  { trials: count, pauseMs = 137, limitMs = START_LIMIT_MS }: Pick<ConnectionTask, "trials" | "pauseMs" | "limitMs">,
  first: number,
  client: Partner,
  add: (index: number) => Promise<bigint>,
): Promise<Spread> {
  const samples: number[] = [];
  for (let trial = 0; trial < count; trial += 1) {
    const index = first + trial;
    const connected = client.ask(benchService(index).clusterIP);
    await sleep(pauseMs);
    const startNs = await add(index);
    const endNs = await Promise.race([connected, sleep(limitMs, undefined, { ref: false })]);
    if (endNs === undefined) throw new Error(`no connection through a new Service in ${limitMs / 1000} s`);
    samples.push(Number(BigInt(endNs) - startNs) / 1e6);
  }
  return spread(samples);
}

async function withManifests(node: NetworkNamespace, task: ConnectionTask, client: Partner): Promise<Spread> {
  const objects = Array.from(clusterObjects(task), ({ service, slice }) => [service, slice]).flat();
  const daemon = ProxyDaemon.prepare(node, {
    hostnameOverride: "node-a",
    objects: [nodeObject(NODE_IP), ...objects],
    config: { mode: task.mode },
  });
  try {
    daemon.spawn();
    await daemon.synced();
    return await trials(task, task.services, client, async (index) => {
      const { service, slice } = serviceObjects(index, [SERVER_IP]);
      const text = JSON.stringify({ apiVersion: "v1", kind: "List", items: [service, slice] });
      const draft = join(daemon.folder, "draft.json");
      const startNs = process.hrtime.bigint();
      writeFileSync(draft, text);
      renameSync(draft, join(daemon.manifests, `new-${index}.json`));
      return startNs;
    });
  } finally {
    await daemon.dispose();
  }
}

export interface ProgramFigures {
  readonly firstSyncMs: number;
  /** Processor time until then, tools included. */
  readonly startCpuMs: number;
  readonly connection: Spread;
  /** Mean duration of the syncs and mean processor time for a Service that is added. */
  readonly workMs: number;
  readonly changeCpuMs: number;
  readonly rssMb: number;
  readonly peakMb: number;
}

async function withApiServer(
  node: NetworkNamespace,
  {
    trials: count,
    pauseMs,
    limitMs = START_LIMIT_MS,
    program = OWN_PROGRAM,
    settleSeconds = 0,
    ...given
  }: ConnectionTask,
  client: Partner,
): Promise<ProgramFigures> {
  const task: ProgramTask = { ...given, program, limitMs, address: NODE_IP };
  const api = partner(node, API, JSON.stringify(task));
  const figures = async (seconds: number): Promise<ProgramReport> => JSON.parse(await api.ask(`figures ${seconds}`));
  try {
    const started: StartReport = JSON.parse(await api.next());
    if ("failure" in started) throw new Error(started.failure);
    const before = await figures(0);
    // Other services than before: those are there until the first sync has removed them.
    const times = { trials: count, limitMs, ...(pauseMs !== undefined && { pauseMs }) };
    const connection = await trials(times, given.services + count, client, async (index) =>
      BigInt(await api.ask(`${index} ${SERVER_IP}`)),
    );
    const { cpuMs, workMs, rssMb, peakMb } = await figures(settleSeconds);
    return {
      firstSyncMs: started.firstSyncMs,
      startCpuMs: started.cpuMs,
      connection,
      workMs: (workMs - before.workMs) / count,
      changeCpuMs: (cpuMs - before.cpuMs) / count,
      rssMb,
      peakMb,
    };
  } finally {
    await api.end();
  }
}

/** A whole kube-proxy at the test API server. Rejects in words where it fails. */
export function measureProgram(task: ConnectionTask): Promise<ProgramFigures> {
  return inNetwork((node, client) => withApiServer(node, task, client));
}

export function measureConnection(task: ConnectionTask): Promise<ConnectionFigures> {
  return inNetwork(async (node, client) => {
    const manifest = await withManifests(node, task, client);
    return { manifest, api: (await withApiServer(node, task, client)).connection };
  });
}

async function inNetwork<T>(work: (node: NetworkNamespace, client: Partner) => Promise<T>): Promise<T> {
  const { node, server } = await network();
  const remove = atExit(() => removeNamespacesNow([node.name, server.name]));
  const stopServer = startServer(server);
  const client = partner(node, CLIENT);
  try {
    return await work(node, client);
  } finally {
    await client.end();
    stopServer();
    await node.remove();
    await server.remove();
    remove();
  }
}
