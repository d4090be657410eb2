/**
 * Inside the virtual machine: the cost of IPVS, IP sets and addresses over netlink, next to the system's tools doing
 * the same. Its argument is an {@link IpvsTask}; its last line of output is the {@link IpvsFigures}.
 */
import { execFileSync } from "node:child_process";
import { release } from "node:os";
import { openLinks } from "../src/kernel/route/netlink-links.ts";
import { silentLogger } from "../src/logging/logger.ts";
import { type IpsetOperation, ipsetEntryText } from "../src/modes/ipvs/ipset/ipset.ts";
import { openIpset } from "../src/modes/ipvs/ipset/netlink-ipset.ts";
import type { IpvsOperation, RealServer, VirtualServer } from "../src/modes/ipvs/kernel/ipvs.ts";
import { openIpvs } from "../src/modes/ipvs/kernel/open-ipvs.ts";
import type { IpAddress } from "../src/net/ip.ts";
import type { IpvsFigures, IpvsStep, IpvsTask } from "./ipvs.ts";
import { timed } from "./table.ts";

const SET = "KUBE-CLUSTER-IP";
const DEVICE = "kube-ipvs0";
const OUTPUT_LIMIT = 2 ** 30;

interface StepDefinition {
  readonly what: string;
  /** The tool with its arguments, and its input. */
  readonly tool: readonly [command: string, ...args: string[]];
  readonly input?: string;
  /** Before each side's turn. */
  readonly prepare?: () => unknown;
  /** Whether the result is right. */
  readonly ours: () => Promise<boolean>;
  /** Multiplies the task's rounds. @default 1 */
  readonly rounds?: number;
}

const task: IpvsTask = JSON.parse(process.argv[2] ?? "{}");

function run([tool, ...args]: readonly [string, ...string[]], input?: string): void {
  execFileSync(tool, args, { input, stdio: ["pipe", "pipe", "inherit"], maxBuffer: OUTPUT_LIMIT });
}

async function measure({ what, tool, input, prepare, ours, rounds = 1 }: StepDefinition): Promise<IpvsStep> {
  const [oursMs, toolMs]: [number[], number[]] = [[], []];
  const turn = async (): Promise<void> => {
    if (!(await ours())) throw new Error(`${what}: not what was wanted`);
  };
  // The engine compiles new code, which emulation makes very slow.
  await prepare?.();
  await turn();
  for (let round = 0; round < rounds * task.rounds; round += 1) {
    await prepare?.();
    oursMs.push(await timed(turn));
    await prepare?.();
    toolMs.push(await timed(async () => run(tool, input)));
  }
  return { what, tool: tool.slice(0, 3).join(" "), oursMs, toolMs };
}

const address = (first: number, n: number): IpAddress => `10.${first}.${n >> 8}.${n & 255}` as IpAddress; // canonical

function ipvsadmLine(operation: IpvsOperation): string {
  const server = `-t ${operation.virtualServer.address}:${operation.virtualServer.port}`;
  if (operation.kind === "add-virtual-server") return `-A ${server} -s ${operation.virtualServer.scheduler}\n`;
  if (!("realServer" in operation)) throw new RangeError(`${operation.kind} is not part of the bench`);
  const real = `${operation.realServer.address}:${operation.realServer.port}`;
  return operation.kind === "delete-real-server" ? `-d ${server} -r ${real}\n` : `-a ${server} -r ${real} -m -w 1\n`;
}

async function* ipvsSteps(): AsyncGenerator<StepDefinition> {
  const { virtualServers, realServersEach } = task;
  await using ipvs = await openIpvs({ log: silentLogger });
  const servers = Array.from({ length: virtualServers }, (_, n): VirtualServer => {
    return { address: address(96, n), protocol: "TCP", port: 80, scheduler: "rr", flags: 0, timeoutSeconds: 0 };
  });
  const real = (n: number, each: number): RealServer => ({ address: address(128 + each, n), port: 8080, weight: 1 });
  const load = servers.flatMap((virtualServer, n): IpvsOperation[] => [
    { kind: "add-virtual-server", virtualServer },
    ...Array.from({ length: realServersEach }, (_, each): IpvsOperation => {
      return { kind: "add-real-server", virtualServer, realServer: real(n, each) };
    }),
  ]);
  const size = `${virtualServers} × ${realServersEach}`;
  yield {
    what: `${size} virtual servers added`,
    tool: ["ipvsadm", "-R"],
    input: load.map(ipvsadmLine).join(""),
    prepare: () => ipvs.flush(),
    ours: async () => (await ipvs.apply(load)).length === 0,
  };
  yield {
    what: `${size} virtual servers read`,
    tool: ["ipvsadm", "-S", "-n"],
    ours: async () => {
      let count = 0;
      const found = await ipvs.virtualServers("IPv4");
      for (const server of found) count += (await ipvs.realServers(server))?.length ?? 0;
      return found.length === virtualServers && count === virtualServers * realServersEach;
    },
  };
  const replace = servers.slice(0, 1).flatMap((virtualServer): IpvsOperation[] => [
    { kind: "delete-real-server", virtualServer, realServer: real(0, 0) },
    { kind: "add-real-server", virtualServer, realServer: real(0, 0) },
  ]);
  yield {
    what: "one real server replaced",
    tool: ["ipvsadm", "-R"],
    input: replace.map(ipvsadmLine).join(""),
    ours: async () => (await ipvs.apply(replace)).length === 0,
    rounds: 10,
  };
}

async function* ipsetSteps(): AsyncGenerator<StepDefinition> {
  const { setEntries } = task;
  await using ipset = openIpset();
  await ipset.ensure({ name: SET, type: "hash:ip,port", family: "IPv4" });
  const fill = Array.from({ length: setEntries }, (_, n): IpsetOperation => {
    return { kind: "add", set: SET, entry: { kind: "ip-port", address: address(96, n), protocol: "tcp", port: 80 } };
  });
  const line = ({ kind, set, entry }: IpsetOperation): string =>
    `${kind === "add" ? "add" : "del"} ${set} ${ipsetEntryText(entry)}\n`;
  yield {
    what: `${setEntries} set entries added`,
    tool: ["ipset", "restore"],
    input: fill.map(line).join(""),
    prepare: () => run(["ipset", "flush", SET]),
    ours: async () => (await ipset.apply(fill)).length === 0,
  };
  yield {
    what: `${setEntries} set entries read`,
    tool: ["ipset", "list", SET],
    ours: async () => (await ipset.members(SET))?.length === setEntries,
  };
  const replace = fill.slice(0, 1).flatMap((add): IpsetOperation[] => [{ ...add, kind: "delete" }, add]);
  yield {
    what: "one set entry replaced",
    tool: ["ipset", "restore"],
    input: replace.map(line).join(""),
    ours: async () => (await ipset.apply(replace)).length === 0,
    rounds: 10,
  };
}

async function* addressSteps(): AsyncGenerator<StepDefinition> {
  await using links = openLinks();
  const all = Array.from({ length: task.addresses }, (_, n) => address(96, n));
  yield {
    what: `${all.length} addresses bound`,
    tool: ["ip", "-batch", "-"],
    input: all.map((each) => `address add ${each}/32 dev ${DEVICE}\n`).join(""),
    prepare: async () => {
      await links.deleteDummy(DEVICE);
      await links.ensureDummy(DEVICE);
    },
    ours: async () => (await links.addAddresses(DEVICE, all)).length === 0,
  };
  yield {
    what: `${all.length} addresses read`,
    tool: ["ip", "-4", "address"],
    ours: async () => (await links.addresses("IPv4")).length >= all.length,
  };
}

const version = (tool: string): string => execFileSync(tool, ["--version"], { encoding: "utf8" }).split("\n")[0] ?? "";

const steps: IpvsStep[] = [];
for (const all of [ipvsSteps, ipsetSteps, addressSteps])
  for await (const step of all()) steps.push(await measure(step));
const machine = `Node.js ${process.version}, kernel ${release()}, ${version("ipvsadm")}, ${version("ipset")}`;
console.log(JSON.stringify({ machine, steps } satisfies IpvsFigures));
