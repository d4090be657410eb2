/**
 * Inside the virtual machine: what IPVS, IP sets and addresses take over netlink, next to the system's tools doing the same.
 * Its argument is an {@link IpvsTask}; its last line of output are the {@link IpvsFigures}.
 */
import { execFileSync } from "node:child_process";
import { release } from "node:os";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { type IpsetOperation, ipsetEntryText } from "../src/kernel/ipset/ipset.ts";
import { openIpset } from "../src/kernel/ipset/netlink-ipset.ts";
import type { IpvsOperation, RealServer, VirtualServer } from "../src/kernel/ipvs/ipvs.ts";
import { openIpvs } from "../src/kernel/ipvs/open-ipvs.ts";
import { openLinks } from "../src/kernel/route/netlink-links.ts";
import { silentLogger } from "../src/logging/logger.ts";
import type { IpAddress } from "../src/net/ip.ts";
import type { IpvsFigures, IpvsStep, IpvsTask } from "./ipvs.ts";

const SET = "KUBE-CLUSTER-IP";
const DEVICE = "kube-ipvs0";
const OUTPUT_LIMIT = 2 ** 30;

interface StepDefinition {
  readonly what: string;
  readonly tool: string;
  /** Before either side's turn. */
  readonly prepare?: () => Promise<void>;
  /** Throws when the result is wrong. */
  readonly ours: () => Promise<void>;
  readonly theirs: () => void;
}

async function measure(step: StepDefinition, rounds: number): Promise<IpvsStep> {
  const { what, tool, prepare = async () => {}, ours, theirs } = step;
  const oursMs: number[] = [];
  const toolMs: number[] = [];
  const pausesMs: number[] = [];
  // The engine compiles what it meets for the first time, which emulation makes very slow.
  await prepare();
  await ours();
  for (let round = 0; round < rounds; round += 1) {
    await prepare();
    const pauses = monitorEventLoopDelay({ resolution: 1 });
    pauses.enable();
    await new Promise((resolve) => setTimeout(resolve, 5));
    const startMs = performance.now();
    await ours();
    oursMs.push(performance.now() - startMs);
    await new Promise((resolve) => setTimeout(resolve, 5));
    pauses.disable();
    pausesMs.push(pauses.max / 1e6);
    await prepare();
    const toolStartMs = performance.now();
    theirs();
    toolMs.push(performance.now() - toolStartMs);
  }
  return { what, tool, oursMs, toolMs, pausesMs };
}

function run(tool: string, args: readonly string[], input?: string): void {
  execFileSync(tool, args, { input, stdio: ["pipe", "pipe", "inherit"], maxBuffer: OUTPUT_LIMIT });
}

function expect(isRight: boolean, what: string): void {
  if (!isRight) throw new Error(`${what}: not what was wanted`);
}

const address = (first: number, n: number): IpAddress => `10.${first}.${n >> 8}.${n & 255}` as IpAddress; // canonical

async function ipvsSteps({ virtualServers, realServersEach, rounds }: IpvsTask): Promise<IpvsStep[]> {
  await using ipvs = await openIpvs({ log: silentLogger });
  const servers = Array.from({ length: virtualServers }, (_, n): VirtualServer => {
    return { address: address(96, n), protocol: "TCP", port: 80, scheduler: "rr", flags: 0, timeoutSeconds: 0 };
  });
  const real = (n: number, each: number): RealServer => ({ address: address(128 + each, n), port: 8080, weight: 1 });
  const add = (virtualServer: VirtualServer, realServer: RealServer): IpvsOperation => {
    return { kind: "add-real-server", virtualServer, realServer };
  };
  const load = servers.flatMap((virtualServer, n): IpvsOperation[] => [
    { kind: "add-virtual-server", virtualServer },
    ...Array.from({ length: realServersEach }, (_, each) => add(virtualServer, real(n, each))),
  ]);
  const text = load.map(ipvsadmLine).join("");
  const size = `${virtualServers} × ${realServersEach}`;
  const steps = [
    await measure(
      {
        what: `${size} virtual servers added`,
        tool: "ipvsadm -R",
        prepare: () => ipvs.flush(),
        ours: async () => expect((await ipvs.apply(load)).length === 0, "loading"),
        theirs: () => run("ipvsadm", ["-R"], text),
      },
      rounds,
    ),
    await measure(
      {
        what: `${size} virtual servers read`,
        tool: "ipvsadm -S -n",
        ours: async () => {
          let count = 0;
          const found = await ipvs.virtualServers("IPv4");
          for (const server of found) count += (await ipvs.realServers(server))?.length ?? 0;
          expect(found.length === virtualServers && count === virtualServers * realServersEach, "reading");
        },
        theirs: () => run("ipvsadm", ["-S", "-n"]),
      },
      rounds,
    ),
  ];
  const [first] = servers;
  if (first === undefined) return steps;
  const replace: IpvsOperation[] = [
    { kind: "delete-real-server", virtualServer: first, realServer: real(0, 0) },
    add(first, real(0, 0)),
  ];
  const replaceText = replace.map(ipvsadmLine).join("");
  return [
    ...steps,
    await measure(
      {
        what: "one real server replaced",
        tool: "ipvsadm -R",
        ours: async () => expect((await ipvs.apply(replace)).length === 0, "replacing a real server"),
        theirs: () => run("ipvsadm", ["-R"], replaceText),
      },
      10 * rounds,
    ),
  ];
}

function ipvsadmLine(operation: IpvsOperation): string {
  const server = `-t ${operation.virtualServer.address}:${operation.virtualServer.port}`;
  switch (operation.kind) {
    case "add-virtual-server":
      return `-A ${server} -s ${operation.virtualServer.scheduler}\n`;
    case "add-real-server":
      return `-a ${server} -r ${operation.realServer.address}:${operation.realServer.port} -m -w 1\n`;
    case "delete-real-server":
      return `-d ${server} -r ${operation.realServer.address}:${operation.realServer.port}\n`;
    default:
      throw new RangeError(`${operation.kind} is no part of the bench`);
  }
}

async function ipsetSteps({ setEntries, rounds }: IpvsTask): Promise<IpvsStep[]> {
  await using ipset = openIpset();
  await ipset.ensure({ name: SET, type: "hash:ip,port", family: "IPv4" });
  const fill = Array.from({ length: setEntries }, (_, n): IpsetOperation => {
    return { kind: "add", set: SET, entry: { kind: "ip-port", address: address(96, n), protocol: "tcp", port: 80 } };
  });
  const restoreLine = ({ kind, set, entry }: IpsetOperation): string =>
    `${kind === "add" ? "add" : "del"} ${set} ${ipsetEntryText(entry)}\n`;
  const text = fill.map(restoreLine).join("");
  const replace = fill.slice(0, 1).flatMap((add): IpsetOperation[] => [{ ...add, kind: "delete" }, add]);
  const replaceText = replace.map(restoreLine).join("");
  return [
    await measure(
      {
        what: `${setEntries} set entries added`,
        tool: "ipset restore",
        prepare: async () => run("ipset", ["flush", SET]),
        ours: async () => expect((await ipset.apply(fill)).length === 0, "filling a set"),
        theirs: () => run("ipset", ["restore"], text),
      },
      rounds,
    ),
    await measure(
      {
        what: `${setEntries} set entries read`,
        tool: "ipset list",
        ours: async () => expect((await ipset.members(SET))?.length === setEntries, "reading a set"),
        theirs: () => run("ipset", ["list", SET]),
      },
      rounds,
    ),
    await measure(
      {
        what: "one set entry replaced",
        tool: "ipset restore",
        ours: async () => expect((await ipset.apply(replace)).length === 0, "replacing a set entry"),
        theirs: () => run("ipset", ["restore"], replaceText),
      },
      10 * rounds,
    ),
  ];
}

async function addressSteps({ addresses, rounds }: IpvsTask): Promise<IpvsStep[]> {
  await using links = openLinks();
  const all = Array.from({ length: addresses }, (_, n) => address(96, n));
  const text = all.map((each) => `address add ${each}/32 dev ${DEVICE}\n`).join("");
  return [
    await measure(
      {
        what: `${addresses} addresses bound`,
        tool: "ip -batch",
        prepare: async () => {
          await links.deleteDummy(DEVICE);
          await links.ensureDummy(DEVICE);
        },
        ours: async () => expect((await links.addAddresses(DEVICE, all)).length === 0, "binding addresses"),
        theirs: () => run("ip", ["-batch", "-"], text),
      },
      rounds,
    ),
    await measure(
      {
        what: `${addresses} addresses read`,
        tool: "ip address",
        ours: async () => expect((await links.addresses("IPv4")).length >= addresses, "reading addresses"),
        theirs: () => run("ip", ["-4", "address"]),
      },
      rounds,
    ),
  ];
}

const version = (tool: string): string => execFileSync(tool, ["--version"], { encoding: "utf8" }).split("\n")[0] ?? "";

async function main(): Promise<void> {
  const task: IpvsTask = JSON.parse(process.argv[2] ?? "{}");
  const steps = [...(await ipvsSteps(task)), ...(await ipsetSteps(task)), ...(await addressSteps(task))];
  const machine = `Node.js ${process.version}, kernel ${release()}, ${version("ipvsadm")}, ${version("ipset")}`;
  const figures: IpvsFigures = { machine, steps };
  console.log(JSON.stringify(figures));
}

await main();
