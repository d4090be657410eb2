/** Facts about this host: rules as its tools print them, kernel settings, versions. Only reads. */
import { readdir, readFile } from "node:fs/promises";
import { release, version } from "node:os";
import { legacyTables } from "../../../kernel/iptables/legacy-tables.ts";
import { IP_FAMILIES, type IpFamily } from "../../../net/ip.ts";
import type { Dump } from "../../../trace/dump/recognise.ts";
import { refusalText } from "../bounded-input.ts";
import { toolText } from "../tool-text.ts";
import { BESIDE_RULES, PartError, type SysdumpPart } from "./archive.ts";

/** One part per tool. `trace --dump` and `diff --dump` look for the rules under these names. */
const TOOLS: readonly (readonly [part: string, file: string, ...args: string[]])[] = [
  ["rules/iptables-save.txt", "iptables-save", "-c"],
  ["rules/ip6tables-save.txt", "ip6tables-save", "-c"],
  ["rules/nft.json", "nft", "-j", "list", "ruleset"],
  ["rules/nft.txt", "nft", "list", "ruleset"],
  ["rules/ipset.txt", "ipset", "save"],
  ["rules/ipvsadm.txt", "ipvsadm", "-S", "-n"],
  ["network/ipvs-statistics.txt", "ipvsadm", "-L", "-n", "--stats"],
  ["network/addresses.json", "ip", "-j", "address", "show"],
  ["network/routes-ipv4.json", "ip", "-j", "-4", "route", "show", "table", "all"],
  ["network/routes-ipv6.json", "ip", "-j", "-6", "route", "show", "table", "all"],
  ["network/routing-rules.json", "ip", "-j", "rule", "show"],
  ["host/version-iptables.txt", "iptables", "--version"],
  ["host/version-nft.txt", "nft", "--version"],
];

/** Settings that affect packets to Services; a name that ends in a slash stands for everything in that folder. */
const SYSCTLS: readonly string[] = [
  "net/ipv4/ip_forward",
  "net/ipv6/conf/all/forwarding",
  "net/ipv4/conf/all/route_localnet",
  "net/ipv4/conf/all/rp_filter",
  "net/ipv4/conf/default/rp_filter",
  "net/ipv4/conf/all/arp_ignore",
  "net/ipv4/conf/all/arp_announce",
  "net/ipv4/ip_local_port_range",
  "net/ipv4/ip_local_reserved_ports",
  "net/bridge/",
  "net/ipv4/vs/",
  "net/netfilter/",
  "fs/nr_open",
];
const NET_MODULE = /^(?:nf|nft|x|ip|ip6|ebt|br|sctp|dummy|bridge|overlay)/;

/** Of this network namespace. @param socket of the daemon. */
export function hostFacts(socket: string): readonly SysdumpPart[] {
  let asking: ReturnType<typeof historyFrom> | undefined;
  const tool = async (command: readonly string[]): Promise<string> => {
    asking ??= historyFrom(socket);
    await asking;
    return await toolText(command);
  };
  return [
    ...TOOLS.map(([name, ...command]): SysdumpPart => ({ name, read: () => tool(command) })),
    { name: "rules/iptables-legacy-save.txt", read: () => legacyRules("IPv4", "iptables") },
    { name: "rules/ip6tables-legacy-save.txt", read: () => legacyRules("IPv6", "ip6tables") },
    { name: "rules/addresses.txt", read: addressLines },
    { name: BESIDE_RULES, read: async () => await besideRules((await (await asking)?.()) ?? []) },
    { name: "host/sysctl.txt", read: sysctlLines },
    { name: "host/kernel.txt", read: async () => `${release()}\n${version()}\n` },
    { name: "host/os-release.txt", read: () => readFile("/etc/os-release", "utf8") },
    { name: "host/modules.txt", read: moduleLines },
    { name: "host/conntrack-statistics.txt", read: () => readFile("/proc/net/stat/nf_conntrack", "utf8") },
  ];
}

/** See trace-kernel.ts, which no other platform has. */
async function historyFrom(socket: string): Promise<() => Promise<readonly Dump[]>> {
  if (process.platform !== "linux") return async () => [];
  return await (await import("../trace-kernel.ts")).historyFrom(socket);
}

/** Tables of iptables-legacy, which iptables-save of the nft back end leaves out. Nothing is asked where there are none: a look makes them. */
async function legacyRules(family: IpFamily, tool: string): Promise<string> {
  if ((await legacyTables(family)).length === 0) return "";
  const version = await toolText([`${tool}-save`, "-V"]);
  return version.includes("(nf_tables)") ? await toolText([`${tool}-legacy-save`, "-c"]) : "";
}

/**
 * Addresses as `ip -batch` takes them, which `trace` reads as a dump. Includes interfaces that are down, such as that of ipvs mode: their
 * addresses still belong to the node, and Node.js leaves them out.
 */
async function addressLines(): Promise<string> {
  if (process.platform !== "linux") throw new PartError("there is no rtnetlink on this system");
  const { openLinks } = await import("../../../kernel/route/netlink-links.ts");
  await using links = openLinks();
  const addresses = await Promise.all(IP_FAMILIES.map((family) => links.addresses(family)));
  return addresses
    .flat()
    .map(({ address, prefixLength, link }) => `addr add ${address}/${prefixLength} dev ${link}\n`)
    .join("");
}

/** Hooks, programs, devices, routes and settings, which `prove` reads. */
async function besideRules(history: readonly Dump[]): Promise<string> {
  if (process.platform !== "linux") throw new PartError("there is no rtnetlink on this system");
  const { besideRulesText } = await import("../beside-rules.ts");
  return await besideRulesText(history);
}

async function sysctlLines(): Promise<string> {
  const names = await Promise.all(SYSCTLS.map(async (name) => (name.endsWith("/") ? await namesIn(name) : [name])));
  const lines = await Promise.all(
    names.flat().map(async (name) => `${name.replaceAll("/", ".")} = ${await settingOf(name)}\n`),
  );
  return lines.join("");
}

async function namesIn(folder: string): Promise<readonly string[]> {
  const entries = await readdir(`/proc/sys/${folder}`, { withFileTypes: true }).catch(() => []);
  return entries.flatMap((entry) => (entry.isFile() ? [`${folder}${entry.name}`] : [])).sort();
}

async function settingOf(name: string): Promise<string> {
  try {
    return (await readFile(`/proc/sys/${name}`, "utf8")).trim().replaceAll("\n", " | ");
  } catch (error) {
    return `not known: ${error instanceof Error && "code" in error ? String(error.code) : String(error)}`;
  }
}

async function moduleLines(): Promise<string> {
  const modules = await readFile("/proc/modules", "utf8").catch((error: unknown) => {
    throw new PartError(`/proc/modules: ${refusalText(error)}`);
  });
  const lines = modules.split("\n").filter((line) => NET_MODULE.test(line));
  return lines.map((line) => `${line.split(" ", 3).join(" ")}\n`).join("");
}
