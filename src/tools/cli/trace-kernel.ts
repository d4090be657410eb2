/** The rules in this node's kernel, and its addresses and routes, as printed by the system's tools. */

import { existsSync, readlinkSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { release } from "node:os";
import { join } from "node:path";
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import { nodeNameIn } from "../../contract/inspect/offline-node.ts";
import { foreignPrograms } from "../../kernel/bpf/foreign-programs.ts";
import { legacyTables } from "../../kernel/iptables/legacy-tables.ts";
import { parseKernelVersion } from "../../kernel/kernel-version.ts";
import { netfilterHooks } from "../../kernel/netfilter-hooks.ts";
import { NetlinkError } from "../../kernel/netlink/errors.ts";
import { completedListing, nftablesGeneration } from "../../kernel/nftables/completed-listing.ts";
import { isObject, listOf, numberOf, textOf } from "../../kernel/nftables/json.ts";
import type { ChainEvent } from "../../kernel/nftables/nftables.ts";
import { localAddresses } from "../../kernel/route/addresses.ts";
import { type Device, filtersAt, waysPast } from "../../kernel/route/devices.ts";
import { attempt } from "../../logging/attempt.ts";
import { MODES } from "../../modes/registry.ts";
import { cidrContains, familyOf, type IpAddress, type IpFamily, parseCidr, parseIpAddress } from "../../net/ip.ts";
import { DEFAULT_INSPECT_SOCKET } from "../../program/program-identity.ts";
import { type Dump, DumpError, type DumpReader, recogniseDump } from "../../trace/dump/recognise.ts";
import type { KnownRoute } from "../../trace/facts.ts";
import type { ListedClients } from "../../trace/iptables/surroundings.ts";
import { askDaemon } from "./inspect-socket-client.ts";
import { UsageError } from "./output.ts";
import { toolOutput, toolText } from "./tool-text.ts";
import { dumpReaders, placeInDump, type TracedRules } from "./trace-rules.ts";

interface Tool {
  readonly file: string;
  readonly args: readonly string[];
  /** A file without which this kernel has nothing that the tool could print. */
  readonly of?: string;
  /** What nothing else prints; undefined if rules that lack it say so themselves. */
  readonly alone?: string;
}

const IPTABLES: Readonly<Record<IpFamily, string>> = { IPv4: "iptables", IPv6: "ip6tables" };
const SHARED_TOOLS: readonly Tool[] = [
  { file: "nft", args: ["-j", "list", "ruleset"], alone: "tables of nftables" },
  { file: "ipset", args: ["save"], of: "/sys/module/ip_set" },
  { file: "ipvsadm", args: ["-S", "-n"], of: "/proc/net/ip_vs", alone: "virtual servers" },
];

/** Reads the kernel. @param local addresses given in addition to the node's own. @throws UsageError */
export async function kernelRules(
  family: IpFamily,
  local: readonly IpAddress[],
  shared?: SharedReading,
): Promise<TracedRules> {
  const { dumps: printed, notes } = await kernelDumps(family, shared);
  const kernel = parseKernelVersion(release());
  const dumps = printed.map((dump) => (dump.kind === "nftables" ? { ...dump, kernel } : dump));
  const lists = await recentLists();
  const addresses = [...(await localAddresses(family)), ...local];
  return {
    name: "this node's kernel",
    notes,
    dumps: lists === undefined ? dumps : [...dumps, { kind: "recent", lists }],
    addresses,
    knowsAddresses: true,
    knowsClients: true,
    routes: await mainRoutes(family, addresses),
    placeOf: (position) =>
      placeInDump(
        position,
        addresses.filter((own) => !isLocalOnly(own)),
        family,
      ),
  };
}

/** So often the rules are read, if another program changes them meanwhile. */
const READINGS = 3;

type Printed = Pick<TracedRules, "dumps" | "notes">;

/** What both families have together, as it was read for one of them. */
export interface SharedReading {
  generation?: number | undefined;
  printed?: Printed;
  history?: readonly Dump[] | undefined;
}

/** What the tools print of this kernel's rules at one time. @throws UsageError */
export async function kernelDumps(family: IpFamily, shared: SharedReading = {}): Promise<Printed> {
  needRoot("reading the rules of this node's kernel");
  for (let reading = 1; ; reading += 1) {
    const generation = await nftablesGeneration();
    const saved = await printedBy([{ file: `${IPTABLES[family]}-save`, args: [] }]);
    if (shared.printed === undefined || generation === undefined || generation !== shared.generation) {
      shared.printed = await printedBy(SHARED_TOOLS);
      shared.history = undefined;
      shared.generation = generation;
    }
    const isReadAlready = saved.dumps.some((dump) => dump.kind === "iptables" && isLegacy(dump.text));
    const legacy = await printedBy(isReadAlready ? [] : await legacyTool(family));
    const all = [saved, shared.printed, legacy];
    const dumps = all.flatMap((one) =>
      one.dumps.map((dump) => (dump.kind === "iptables" ? { ...dump, family } : dump)),
    );
    const notes = all.flatMap((one) => one.notes);
    if ((await nftablesGeneration()) === generation) {
      shared.history ??= generation === undefined ? [] : historyIn(await historyHere(), generation);
      return { dumps: [...dumps, ...shared.history], notes };
    }
    if (reading < READINGS) continue;
    const what = `other programs changed the rules each of the ${READINGS} times that they were read: ask again`;
    return { dumps: [...dumps, { kind: "unread", what, isOfRules: true }], notes };
  }
}

/** What the daemon of this network namespace has seen, if there is one. */
async function historyHere(socket: string = DEFAULT_INSPECT_SOCKET): Promise<unknown> {
  if (!existsSync(socket)) return undefined;
  const status = await askDaemon(socket, "/status").catch(() => undefined);
  const isHere = isObject(status) && status.networkNamespace === attempt(() => readlinkSync("/proc/self/ns/net"));
  return isHere ? status.chainHistory : undefined;
}

/** The same from now on. @returns what asks again, for what was read in between */
export async function historyFrom(socket: string): Promise<() => Promise<Dump[]>> {
  const before = await historyHere(socket);
  const generation = isObject(before) ? numberOf(before.until) : undefined;
  return async () => (generation === undefined ? [] : historyIn(await historyHere(socket), generation));
}

/** @param history what a daemon has seen, as it was when the rules were read in this generation; perhaps of another version. */
export function historyIn(history: unknown, generation: number): Dump[] {
  if (!isObject(history)) return [];
  const [since, until] = [numberOf(history.since), numberOf(history.until)];
  if (since === undefined || until === undefined || since > generation || until < generation) return [];
  const events = listOf(history.events).flatMap((event): ChainEvent[] => {
    const table = isObject(event) ? textOf(event.table) : undefined;
    if (!isObject(event) || table === undefined) return [];
    const { chain, handle, isCertain } = event;
    return [{ table, chain: textOf(chain), handle: numberOf(handle), isCertain: isCertain === true }];
  });
  return [{ kind: "history", events }];
}

async function printedBy(tools: readonly Tool[]): Promise<Printed> {
  const notes: string[] = [];
  const dumps: Dump[] = [];
  const readers = await dumpReaders();
  for (const tool of tools) {
    const { file, args, of: source, alone } = tool;
    const isNothing = source !== undefined && !existsSync(source);
    const printed = isNothing ? { stdout: "", stderr: "" } : await toolOutput([file, ...args]).catch(firstLineOf);
    if (typeof printed !== "string") {
      const { stdout: text, stderr } = printed;
      if (text.trim() !== "") dumps.push(...(await withKernel(await readOutput(tool, text, readers), stderr)));
      // No virtual servers, which is an answer.
      else if (file === "ipvsadm") dumps.push({ kind: "chains", tool: file, chains: () => [] });
    } else if (alone === undefined) notes.push(printed);
    else dumps.push({ kind: "unread", what: `${alone} were not read: ${printed}`, isOfRules: true });
  }
  return { dumps, notes };
}

/** Why a tool could not be used. */
function firstLineOf(error: unknown): string {
  if (!(error instanceof UsageError)) throw error;
  return error.message.split("\n", 1).join();
}

/** Where a table has flags, JSON of nft 1.0.6 may end there, with status 0; its text is whole. */
async function readOutput({ file }: Tool, text: string, readers: readonly DumpReader[]): Promise<Dump> {
  try {
    return recogniseDump(text, file, readers);
  } catch (error) {
    if (!(error instanceof DumpError) || file !== "nft") throw error;
    return recogniseDump(await toolText(["nft", "-a", "list", "ruleset"]), file);
  }
}

/**
 * Adds the socket step before this kernel's rules if maps are pinned.
 *
 * @param isOfAnyPod whether sockets of every pod are redirected. @default as the maps say. @returns `ledBy`: the mode of the maps
 */
export async function withLiveSockets(
  rules: TracedRules,
  family: IpFamily,
  config: KubeProxyConfig,
  isOfAnyPod = false,
): Promise<TracedRules & { readonly ledBy?: string }> {
  let { notes } = rules;
  for (const { name, loadTraceStages, loadInspection } of MODES) {
    const sockets = loadTraceStages === undefined ? undefined : await (await loadInspection()).loadSockets?.();
    const live = await sockets?.live(family, config);
    if (sockets !== undefined && live?.ok === true) {
      const { pods, ...others } = live;
      const ownName = nodeNameIn([], config);
      const podAt = (address: IpAddress, podNode: string | undefined) =>
        podNode === ownName || pods.has(address) ? { inInterface: undefined } : undefined;
      return { ...rules, dumps: [...rules.dumps, sockets.chain(isOfAnyPod ? others : live)], podAt, ledBy: name };
    }
    // A failure matters only in the configured mode.
    if (live?.ok === false && config.mode === name) {
      notes = [...notes, `what sockets connect to could not be read: ${live.reason}`];
    }
  }
  return { ...rules, notes };
}

/** @param what needs root, in words. @throws UsageError unless the user is root. */
export function needRoot(what: string): void {
  if (process.getuid?.() === 0) return;
  throw new UsageError(
    `${what} needs root`,
    "Without it, give manifests with -f, a cluster with --kubeconfig, or dumps of a node with --dump.",
  );
}

/** The tool without `-t`, which only reads tables that exist: any other listing would create one. */
async function legacyTool(family: IpFamily): Promise<readonly Tool[]> {
  const tables = await legacyTables(family);
  if (tables.length === 0) return [];
  return [
    { file: `${IPTABLES[family]}-legacy-save`, args: [], alone: `tables of iptables-legacy (${tables.join(", ")})` },
  ];
}

const isLegacy = (saved: string): boolean => !/^# Generated by \S+ v\S+ \(nf_tables\)/m.test(saved);

/** Adds the kernel's own words to what nft lists. @param said by nft, beside it. */
async function withKernel(dump: Dump, said: string): Promise<readonly Dump[]> {
  if (dump.kind !== "nftables") return [dump];
  const { objects, unread } = await completedListing(dump.objects, said);
  return [{ ...dump, objects }, ...unread.map((what) => ({ kind: "unread", what, isOfRules: true }) as const)];
}

/** What a list of `ip` has. @throws UsageError */
export async function ipJson(...args: readonly string[]): Promise<readonly unknown[]> {
  const text = await toolText(["ip", "-j", ...args]);
  return text.trim() === "" ? [] : listOf(JSON.parse(text));
}

/** What the kernel calls for packets in this network namespace. @returns undefined if this kernel does not list it */
export async function kernelHooks(devices: readonly Device[]): Promise<Dump | undefined> {
  try {
    const entries = await netfilterHooks(devices.map(({ name }) => name));
    return entries && { kind: "hooks", entries };
  } catch (error) {
    if (!(error instanceof NetlinkError)) throw error;
    return { kind: "unread", what: `not read: netfilter's hooks (needs NET_ADMIN): ${error.code}` };
  }
}

/** Programs and filters, which packets meet before and behind all rules: they are there, and what they do is not read. */
export async function programsAtDevices(devices: readonly Device[], hooks: Dump | undefined): Promise<readonly Dump[]> {
  const filters = (await filtersAt(devices)).map((one) => ({ ...one, what: `${one.what}: its content is not read` }));
  const names = new Map(devices.map(({ index, name }) => [index, name]));
  const programs = foreignPrograms(names, hooks?.kind === "hooks" ? hooks.entries : undefined);
  return [...filters, ...programs].map(({ what, device }) => ({
    ...{ kind: "unread", what },
    ...(device !== undefined && { past: waysPast(devices, device) }),
  }));
}

/** The routes of the table main, the longest prefix first. @param addresses of the node. @throws UsageError */
export async function mainRoutes(family: IpFamily, addresses: readonly IpAddress[]): Promise<KnownRoute[]> {
  const version = family === "IPv4" ? "-4" : "-6";
  const own = (await ipJson(version, "address", "show", "scope", "global")).flatMap(ownPrefixes);
  const found = (await ipJson(version, "route", "show", "table", "main")).flatMap((route): KnownRoute[] => {
    const [dst, device, router] = isObject(route) ? [textOf(route.dst), textOf(route.dev), textOf(route.gateway)] : [];
    if (dst === undefined || device === undefined) return [];
    const cidr = cidrOf(dst, family);
    const next = parseIpAddress(router ?? cidr.replace(/\/.*/, ""));
    // The kernel's choice for masquerading (inet_select_addr): the interface's address in the next hop's prefix, else its first, else any.
    const here = own.filter((one) => one.device === device);
    const beside = here.find(({ prefix }) => next !== undefined && cidrContains(prefix, next));
    const address =
      (beside ?? here[0])?.address ?? addresses.find((one) => familyOf(one) === family && !isLocalOnly(one));
    return [{ cidr, device, ...(address === undefined ? {} : { address }) }];
  });
  return found.sort((a, b) => lengthOf(b.cidr) - lengthOf(a.cidr));
}

/** The addresses of an interface that may be the source of packets to other hosts, in the kernel's order. */
function ownPrefixes(link: unknown) {
  return listOf(isObject(link) ? link.addr_info : undefined).flatMap((info) => {
    const { local, prefixlen, secondary } = isObject(info) ? info : {};
    const address = parseIpAddress(textOf(local) ?? "");
    const prefix = parseCidr(`${address}/${numberOf(prefixlen)}`);
    if (secondary === true || address === undefined || prefix === undefined) return [];
    return [{ device: isObject(link) ? textOf(link.ifname) : undefined, address, prefix }];
  });
}

/** Whether no packet to another host has this address as its source. */
function isLocalOnly(address: IpAddress): boolean {
  return address.startsWith("127.") || address === "::1" || address.startsWith("fe80:");
}

/** `10.0.0.1` and `default` as prefixes. */
export function cidrOf(destination: string, family: IpFamily): string {
  if (destination === "default") return family === "IPv4" ? "0.0.0.0/0" : "::/0";
  return destination.includes("/") ? destination : `${destination}/${family === "IPv4" ? 32 : 128}`;
}

/** Of a prefix. */
export const lengthOf = (cidr: string): number => Number(cidr.slice(cidr.indexOf("/") + 1));

const ENTRY = /^src=(\S+) .*?\blast_seen: (\d+)/gm;
/** Ticks start 300 seconds before 2^32 (include/linux/jiffies.h, INITIAL_JIFFIES). */
const FIRST_WRAP = 2 ** 32;
const BEFORE_WRAP_SECONDS = 300;
/** The tick rates that kernels are built with (kernel/Kconfig.hz). */
const TICK_RATES = [100, 250, 300, 1000];

/** The kernel's clock in ticks, and the ticks per second. */
interface Ticks {
  readonly now: number;
  readonly rate: number;
}

/** The lists of iptables' `-m recent`, which hold the clients of session affinity. @param proc the mount point of procfs. @returns undefined if the kernel has none. */
export async function recentLists(proc = "/proc"): Promise<ListedClients | undefined> {
  const folder = join(proc, "net/xt_recent");
  const names = await readdir(folder).catch(() => undefined);
  if (names === undefined) return undefined;
  const ticks = ticksOf(await procText(join(proc, "timer_list")));
  const lists = new Map<string, ReadonlyMap<string, number | undefined>>();
  for (const name of names) lists.set(name, clientsOf(await procText(join(folder, name)), ticks));
  return lists;
}

/** Empty if the list is gone or belongs to another user. */
async function procText(file: string): Promise<string> {
  return await readFile(file, "utf8").catch(() => "");
}

function clientsOf(text: string, ticks: Ticks | undefined): ReadonlyMap<string, number | undefined> {
  const clients = new Map<string, number | undefined>();
  for (const [, address = "", seen = ""] of text.matchAll(ENTRY)) {
    const age = ticks === undefined ? undefined : Math.max(0, (ticks.now - Number(seen)) / ticks.rate);
    clients.set(parseIpAddress(address) ?? address, age);
  }
  return clients;
}

/** @param timers the content of /proc/timer_list. */
function ticksOf(timers: string): Ticks | undefined {
  const nanoseconds = Number(/^now at (\d+) nsecs/m.exec(timers)?.[1]);
  const last = [...timers.matchAll(/last_jiffies\s*: (\d+)/g)].map(([, ticks]) => Number(ticks));
  const now = Math.max(...last);
  const measured = (now - FIRST_WRAP) / (nanoseconds / 1e9 - BEFORE_WRAP_SECONDS);
  const rate = TICK_RATES.find((known) => Math.abs(measured / known - 1) < 0.05);
  return rate === undefined ? undefined : { now, rate };
}
