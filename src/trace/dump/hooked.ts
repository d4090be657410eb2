/** The kernel's list of what it calls for packets, beside what was read: strangers in it, and the order of what is known. */
import type { HookEntry } from "../../kernel/netfilter-hooks.ts";
import type { JsonObject } from "../../kernel/nftables/json.ts";
import type { IpFamily } from "../../net/ip.ts";
import { actingPriority } from "../netfilter/calling-order.ts";
import { type BaseChain, HOOKS } from "../netfilter/program.ts";
import { backEndOf, flaggedTables } from "./iptables-nft.ts";
import { bodiesOf, type Dump, listedObjects } from "./recognise.ts";

/** nat calls its own chains, which nft or iptables list. */
const NAT = /^nf_nat_ipv[46]_(?:pre_routing|in|out|fn|local_fn|local_in)$/;
/** Functions that do not change where a new connection goes. */
const HARMLESS: readonly RegExp[] = [
  // Connection tracking: puts fragments together, finds and confirms connections.
  /^ipv[46]_conntrack_(?:in|local|defrag)$|^ipv6_defrag$|^nf_confirm$|^ipv[46]_confirm$|^nf_ct_bridge_(?:pre|in|post)$/,
  NAT,
  // Security modules label packets.
  /^(?:apparmor|selinux|smack)_ip(?:v[46])?_(?:forward|output|postroute)$/,
  // br_netfilter: packets of bridges meet the rules of IP, once.
  /^br_nf_(?:pre_routing|local_in|forward|forward_ip|forward_arp|post_routing)$|^ip_sabotage_in$/,
  // Connections that a rule gave to SYNPROXY or to a flow table.
  /^ipv[46]_synproxy_hook$|^nf_flow_offload_(?:inet|ip|ipv6)_hook$/,
];
/** Of iptables-legacy; Linux before 5.16 has one for each table. */
const LEGACY = /^ip6?t_do_table$|^ip6?table_\w+_(?:hook|do_chain)$/;
/** Of ipvs, for which Linux before 5.16 has more. */
const IPVS = /^ip_vs_\w+$/;
const IP_HOOKS: ReadonlySet<unknown> = new Set(HOOKS);
/** So many are named. */
const NAMED = 3;

/** As nft and the kernel name it. */
const ipOf = (family: IpFamily) => (family === "IPv4" ? "ip" : "ip6");

const entriesIn = (dumps: readonly Dump[]) => dumps.find((dump) => dump.kind === "hooks")?.entries;

/**
 * Where the kernel calls a base chain: its place in the list, which nat's chains share before 7.3.
 *
 * @returns a function of the chain, and of its table if nftables has it
 */
export function placesOf(dumps: readonly Dump[], family: IpFamily) {
  const entries = entriesIn(dumps)?.filter((entry) => entry.family === ipOf(family));
  return (base: BaseChain, table: string | undefined): number | undefined => {
    const at = entries?.findIndex((entry) => {
      if (entry.chain !== undefined) return entry.chain === `${table} ${base.chain.name}`;
      if (entry.hook !== base.stage || entry.priority !== actingPriority(base)) return false;
      return (base.type === "nat" && isOf(NAT, entry)) || (table === undefined && isOf(LEGACY, entry));
    });
    return at === -1 ? undefined : at;
  };
}

/**
 * When base chains that nft lists were registered ({@link BaseChain.registered}).
 *
 * @returns a function as that of {@link placesOf}
 */
export function registrationsOf(dumps: readonly Dump[]) {
  const events = dumps.find((dump) => dump.kind === "history")?.events;
  const handles = new Map<string, unknown>();
  const objects = events === undefined ? [] : listedObjects(dumps);
  for (const { family, name, handle } of bodiesOf(objects, "table")) handles.set(`${family} ${name}`, handle);
  for (const { family, table, name, handle } of bodiesOf(objects, "chain"))
    handles.set(`${family} ${table} ${name}`, handle);
  return ({ chain }: BaseChain, table: string | undefined): BaseChain["registered"] => {
    const handle = handles.get(`${table} ${chain.name}`);
    if (events === undefined || typeof handle !== "number" || handles.get(table ?? "") === undefined) return undefined;
    let [earliest, latest, isSeen] = [0, 0, false];
    for (const [index, event] of events.entries()) {
      const own = event.chain === undefined ? handles.get(event.table) : handle;
      const isOwn = event.handle === undefined && (event.chain ?? chain.name) === chain.name;
      // One that is newer than another of its table was registered after it.
      const isBehind =
        event.isCertain && event.chain !== undefined && Number(handles.get(`${table} ${event.chain}`)) < handle;
      if (event.table !== table || !(isOwn || isBehind || event.handle === own)) continue;
      // What comes after the first time is a change of it, unless its table is another.
      if (event.chain !== undefined && event.handle === own && isSeen) continue;
      isSeen = event.chain !== undefined && (isSeen || event.handle === own);
      latest = index + 1;
      if (event.isCertain) earliest = latest;
    }
    return [earliest, latest];
  };
}

const isOf = (functions: RegExp, entry: HookEntry): boolean => functions.test(entry.function ?? "");

/** In words: what is called and was not read, and what was read and is not called. BPF programs are named elsewhere. */
export function unreadHooks(dumps: readonly Dump[], family: IpFamily): string[] {
  const other = ipOf(family === "IPv4" ? "IPv6" : "IPv4");
  const entries = entriesIn(dumps)?.filter((entry) => entry.family !== other && entry.program === undefined);
  if (entries === undefined) return [];
  const known = dumps.flatMap((dump) => {
    if (dump.kind === "iptables") return backEndOf(dump.text) === "legacy" ? LEGACY : [];
    return dump.kind === "chains" && dump.tool === "ipvsadm" ? IPVS : [];
  });
  known.push(...HARMLESS);
  const awake = awakeChains(dumps);
  const strangers = entries.flatMap((entry) => {
    const { chain, function: name, module, family: at, hook, device, priority } = entry;
    if (chain !== undefined)
      return awake.has(chain) ? [] : `the kernel calls the chain ${chain}, which nft does not list, or as asleep`;
    if (known.some((functions) => isOf(functions, entry))) return [];
    const whose = module === undefined ? "" : ` of the module ${module}`;
    return `${name ?? "a function without a name"}${whose} at ${device ?? at} ${hook}, priority ${priority}, is not understood`;
  });
  const called = new Set(entries.map(({ chain }) => chain));
  const silent = [...awake].flatMap(([chain, { family: of, hook, type }]) => {
    const isWalked = (of === "inet" || of === ipOf(family)) && IP_HOOKS.has(hook) && type !== "nat";
    return isWalked && !called.has(chain) ? `nft lists the chain ${chain}, which the kernel does not call` : [];
  });
  return [...new Set([...strangers, ...silent])].slice(0, NAMED);
}

/** Base chains that nft lists, of tables that are not dormant, as `family table chain`. */
function awakeChains(dumps: readonly Dump[]): ReadonlyMap<string, JsonObject> {
  const objects = listedObjects(dumps);
  // The kernel's own word: dormant is the only flag that it gives.
  const asleep = flaggedTables(objects);
  const awake = new Map<string, JsonObject>();
  for (const chain of bodiesOf(objects, "chain")) {
    if (chain.hook === undefined || asleep.has(`${chain.family} ${chain.table}`)) continue;
    awake.set(`${chain.family} ${chain.table} ${chain.name}`, chain);
  }
  return awake;
}
