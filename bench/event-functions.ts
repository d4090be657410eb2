/**
 * `npm run bench -- functions`: through how many functions of ours, in how many files, one EndpointSlice event runs until the
 * kernel has it, by mode. V8's precise coverage counts calls around one change of one endpoint.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmdirSync } from "node:fs";
import { Session } from "node:inspector/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { systemClock } from "../src/async/clock.ts";
import { EbpfBackend } from "../src/dataplane/ebpf/backend.ts";
import { SocketPath } from "../src/dataplane/ebpf/socket-path.ts";
import { TABLE } from "../src/dataplane/nftables/names.ts";
import { kernelBpf } from "../src/kernel/bpf/kernel-bpf.ts";
import { createIptables } from "../src/kernel/iptables/exec-iptables.ts";
import { ownNetnsCookie } from "../src/kernel/netns-cookie.ts";
import { openNetlinkRuleset } from "../src/kernel/nftables/netlink-nftables.ts";
import { execProcess } from "../src/kernel/process.ts";
import { localAddresses } from "../src/kernel/route/addresses.ts";
import { udpDisconnector } from "../src/kernel/sock-diag/disconnect-udp.ts";
import { silentLogger } from "../src/logging/logger.ts";
import { nodePortAddresses } from "../src/model/node-port-addresses.ts";
import type { Backend } from "../src/sync/backend.ts";
import { startLines } from "./bench-processes.ts";
import { ChangeCostSubject } from "./change-cost-subject.ts";
import type { Bench, Outcome } from "./driver.ts";
import { withNamespace } from "./namespace.ts";
import { benchBackend } from "./nftables-subject.ts";
import { benchConfig, benchIptablesBackend } from "./subject.ts";
import { table } from "./table.ts";

const SELF = fileURLToPath(import.meta.url);
const SOURCES = new URL("../src/", import.meta.url).href;
const SERVICES = 200;
const ENDPOINTS = 4;
const WARM_UP = 20;
/** The kernel announces our own commit a little later. */
const ANNOUNCED_MS = 200;
const MODES = ["flat", "compatible", "iptables", "ebpf"] as const;
type Mode = (typeof MODES)[number];

interface EventFigures {
  readonly mode: string;
  readonly functions: number;
  readonly calls: number;
  readonly files: number;
  /** `file function calls`, by file. */
  readonly list: readonly string[];
}

export const bench: Bench = {
  name: "functions",
  about: "Our functions and files that one EndpointSlice event runs through until the kernel has it. Needs root.",
  options: {
    modes: { value: "LIST", initial: MODES.join(","), help: "of the proxy" },
    list: { help: "name all functions" },
  },
  run: (given) => countAll(given.list("modes"), given.isOn("list")),
};

async function countAll(modes: readonly string[], isListing: boolean): Promise<Outcome> {
  const figures: EventFigures[] = [];
  for (const mode of modes) {
    await withNamespace(async ({ name }) => {
      const worker = startLines("ip", ["netns", "exec", name, process.execPath, SELF, mode]);
      figures.push(JSON.parse(await worker.next()));
      worker.end();
    });
  }
  if (isListing) for (const { mode, list } of figures) console.log(`${mode}\n${list.join("\n")}`);
  const rows = figures.map(({ mode, functions, calls, files }) => [mode, ...[functions, calls, files].map(String)]);
  console.log(table(["one EndpointSlice event", "functions", "calls", "files"], rows));
  return { figures: { figures } };
}

async function iptablesBackend(): Promise<Backend> {
  const iptables = await createIptables({ family: "IPv4", exec: execProcess, log: silentLogger });
  return benchIptablesBackend(iptables);
}

function ebpfBackend(packetPath: Backend, cgroup: string): Backend {
  const sockets = new SocketPath({
    family: "IPv4",
    bpf: kernelBpf(),
    cgroup,
    nodeName: benchConfig().nodeName,
    validForMs: 600_000,
    nodePortAddresses: nodePortAddresses("IPv4", []),
    programs: () => ({ hostCookie: ownNetnsCookie(), isForHostOnly: false }),
    disconnector: udpDisconnector(),
    localAddresses,
    addressWatch: { watch: () => Promise.resolve() },
    clock: systemClock,
    monotonicNs: process.hrtime.bigint,
    metrics: { attached: { set() {} }, passedPorts: { set() {} }, disconnected: { inc() {} } },
    log: silentLogger,
  });
  return new EbpfBackend(packetPath, sockets);
}

async function measure(mode: Mode): Promise<EventFigures> {
  const folder = mkdtempSync(join(tmpdir(), "kpts-bench-cgroup-"));
  const cgroup = join(folder, `kpts-bench-${process.pid}`);
  const ruleset = openNetlinkRuleset();
  const rules = (layout: "Flat" | "Compatible") => benchBackend(ruleset.open({ family: "ip", table: TABLE }), layout);
  // The namespace of `ip netns exec` has mounts of its own, without this one.
  if (mode === "ebpf") {
    execFileSync("mount", ["-t", "cgroup2", "none", folder]);
    mkdirSync(cgroup);
  }
  const backend =
    mode === "iptables"
      ? await iptablesBackend()
      : mode === "ebpf"
        ? ebpfBackend(rules("Flat"), cgroup)
        : rules(mode === "flat" ? "Flat" : "Compatible");
  const subject = new ChangeCostSubject(ENDPOINTS, false, backend);
  const replace = async (index: number): Promise<void> => {
    const { synced } = subject;
    subject.pushSlice(subject.replacedEndpoint(index, 1));
    await synced;
    await sleep(ANNOUNCED_MS);
  };
  await subject.load(SERVICES);
  for (let index = 0; index < WARM_UP; index += 1) await replace(index);
  const session = new Session();
  session.connect();
  await session.post("Profiler.enable");
  await session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
  await session.post("Profiler.takePreciseCoverage");
  await replace(WARM_UP);
  const { result } = await session.post("Profiler.takePreciseCoverage");
  const list = result.flatMap(({ url, functions }) =>
    url.startsWith(SOURCES)
      ? functions.flatMap(({ functionName, ranges: [range] }) =>
          range === undefined || range.count === 0
            ? []
            : [{ file: url.slice(SOURCES.length), name: functionName, count: range.count }],
        )
      : [],
  );
  await subject.close();
  if (mode === "ebpf") {
    rmdirSync(cgroup);
    execFileSync("umount", [folder]);
  }
  rmdirSync(folder);
  return {
    mode,
    functions: list.length,
    calls: list.reduce((sum, { count }) => sum + count, 0),
    files: new Set(list.map(({ file }) => file)).size,
    list: list.map(({ file, name, count }) => `${file} ${name} ${count}`).sort(),
  };
}

const wanted = MODES.find((mode) => mode === process.argv[2]);
if (process.argv[1] === SELF && wanted !== undefined) {
  process.stdout.write(`${JSON.stringify(await measure(wanted))}\n`, () => process.exit(0));
}
