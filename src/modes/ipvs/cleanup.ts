/**
 * Removes what the ipvs mode left in the kernel: reference ipvs.md §10. Unlike upstream, it keeps virtual servers that
 * neither the mode's sets nor kube-ipvs0 identify as the mode's own, and it deletes the IPv6 sets.
 */

import type { CleanUp } from "../../contract/dataplane.ts";
import { createIptables, findIptables } from "../../kernel/iptables/exec-iptables.ts";
import { type Iptables, IptablesError } from "../../kernel/iptables/iptables.ts";
import type { ChainName } from "../../kernel/iptables/rule.ts";
import { chainLines, ruleArguments, transactionText } from "../../kernel/iptables/rule-text.ts";
import { NetlinkError } from "../../kernel/netlink/errors.ts";
import type { Links } from "../../kernel/route/links.ts";
import { openLinks } from "../../kernel/route/netlink-links.ts";
import { type Logger, silentLogger } from "../../logging/logger.ts";
import { IP_FAMILIES, type IpFamily, joinHostPort } from "../../net/ip.ts";
import { TOP_LEVEL_CHAINS } from "../shared/iptables-rules/top-level-rules.ts";
import { iptablesTools } from "../shared/iptables-tools.ts";
import type { Ipset } from "./ipset/ipset.ts";
import { openIpset } from "./ipset/netlink-ipset.ts";
import { type Ipvs, IpvsUnavailableError, type VirtualServer, virtualServerText } from "./kernel/ipvs.ts";
import { openIpvs } from "./kernel/open-ipvs.ts";
import { DUMMY_DEVICE, SET_IDS, type SetId, setDefinition } from "./names.ts";
import { CHAINS_OF, JUMP_RULES } from "./plan-rules.ts";

export interface CleanUpOptions {
  /** Called only if something of the mode is left; undefined if the kernel has no IPVS. */
  readonly openIpvs: () => Promise<Ipvs | undefined>;
  readonly ipset: Ipset;
  readonly links: Links;
  /** For the families that the host has tools for. Called only if something of the mode is left. */
  readonly iptables: () => Promise<readonly Iptables[]>;
  readonly log: Logger;
}

export const cleanUp: CleanUp = async (log) => {
  try {
    await using ipset = openIpset();
    await using links = openLinks();
    const openAny = () => openIpvsIfAny(log);
    return await cleanUpIpvs({ openIpvs: openAny, ipset, links, iptables: () => presentIptables(log), log });
  } catch (error) {
    // A kernel without nfnetlink has no IP sets.
    if (error instanceof NetlinkError && error.code === "EPROTONOSUPPORT") return true;
    log.error("Error cleaning up the ipvs mode", error);
    return false;
  }
};

async function presentIptables(log: Logger): Promise<readonly Iptables[]> {
  const present: Iptables[] = [];
  for (const family of IP_FAMILIES) {
    const tools = await findIptables(iptablesTools(family, silentLogger), "tools");
    if (tools.problem === undefined) present.push(await createIptables(iptablesTools(family, log), tools));
  }
  return present;
}

/** A kernel without IPVS has no virtual servers either. */
async function openIpvsIfAny(log: Logger): Promise<Ipvs | undefined> {
  try {
    return await openIpvs({ log });
  } catch (error) {
    if (error instanceof IpvsUnavailableError) return undefined;
    throw error;
  }
}

/**
 * Logs a step that fails and goes on with the next. If neither kube-ipvs0 nor a set of the mode exists, nothing of the
 * mode does, and nothing is touched.
 *
 * @returns whether everything worked.
 */
export async function cleanUpIpvs(options: CleanUpOptions): Promise<boolean> {
  const { ipset, links, log } = options;
  let succeeded = true;
  const attempt: Attempt = async (what, work) => {
    try {
      await work();
    } catch (error) {
      succeeded = false;
      log.error(`Error cleaning up the ipvs mode: ${what}`, error);
    }
  };
  const sets = await ownSets(ipset);
  if (sets.size === 0 && (await links.link(DUMMY_DEVICE)) === undefined) return true;
  await attempt("virtual servers", () => deleteVirtualServers(options, sets));
  await attempt(`device ${DUMMY_DEVICE}`, () => links.deleteDummy(DUMMY_DEVICE));
  await attempt("rules", async () => {
    for (const iptables of await options.iptables()) await deleteRules(iptables, attempt);
  });
  for (const name of sets.keys()) await attempt(`IP set ${name}`, () => ipset.destroy(name));
  return succeeded;
}

/** Runs one step and logs its error. */
type Attempt = (what: string, work: () => Promise<void>) => Promise<void>;

/** The sets of the mode, by name. */
type OwnSets = ReadonlyMap<string, { readonly id: SetId; readonly family: IpFamily }>;

/** The existing ones; none in a kernel without IP sets. A set of another type is foreign. */
async function ownSets(ipset: Ipset): Promise<OwnSets> {
  const present = new Map((await ipset.sets().catch(() => [])).map((set) => [set.name, set]));
  const all = IP_FAMILIES.flatMap((family) => SET_IDS.map((id) => ({ ...setDefinition(id, family), id, family })));
  return new Map(all.filter(({ name, type }) => present.get(name)?.type === type).map((set) => [set.name, set]));
}

async function deleteVirtualServers({ openIpvs, ipset, links }: CleanUpOptions, sets: OwnSets): Promise<void> {
  const ipvs = await openIpvs();
  if (ipvs === undefined) return;
  try {
    for (const family of IP_FAMILIES) {
      const isOwn = await ownership(ipset, links, sets, family);
      const own = (await ipvs.virtualServers(family)).filter(isOwn);
      const failures = await ipvs.apply(own.map((virtualServer) => ({ kind: "delete-virtual-server", virtualServer })));
      const [failure] = failures.filter(({ code }) => code !== "ESRCH");
      if (failure !== undefined) throw new Error(failure.message);
    }
  } finally {
    await ipvs.close();
  }
}

/** Identifies the mode's own virtual servers by its sets and its device. */
async function ownership(ipset: Ipset, links: Links, sets: OwnSets, family: IpFamily) {
  /** Texts of virtual servers. */
  const servers = new Set<string>();
  /** `TCP 30080`. */
  const nodePorts = new Set<string>();
  for (const [name, set] of sets) {
    if (set.family !== family) continue;
    for (const entry of (await ipset.members(name)) ?? []) {
      if (entry.kind === "ip-port") {
        servers.add(`${joinHostPort(entry.address, entry.port)}/${entry.protocol.toUpperCase()}`);
      } else if (entry.kind === "port") {
        if (set.id === "nodePortTCP") nodePorts.add(`TCP ${entry.port}`);
        if (set.id === "nodePortUDP") nodePorts.add(`UDP ${entry.port}`);
      }
    }
  }
  const devices = Map.groupBy(await links.addresses(family), ({ link }) => link === DUMMY_DEVICE);
  const addressesOn = (isDummy: boolean) => new Set(devices.get(isDummy)?.map(({ address }) => address));
  const [bound, nodeAddresses] = [addressesOn(true), addressesOn(false)];
  return (server: VirtualServer): boolean =>
    bound.has(server.address) ||
    servers.has(virtualServerText(server)) ||
    (nodeAddresses.has(server.address) && nodePorts.has(`${server.protocol} ${server.port}`));
}

/** Whether a chain exists that the iptables mode lacks; if none does, the rules are its own and must stay. */
function hasOwnChain(table: "nat" | "filter", present: ReadonlySet<string>): boolean {
  const shared: readonly string[] = TOP_LEVEL_CHAINS[table];
  return CHAINS_OF[table].some((chain) => present.has(chain) && !shared.includes(chain));
}

/** Flushes all chains at once, so that none refers to another; then only a chain that a foreign rule jumps to is kept. */
async function deleteRules(iptables: Iptables, attempt: Attempt): Promise<void> {
  const { family } = iptables;
  for (const table of ["nat", "filter"] as const) {
    await attempt(`${family} chains of table ${table}`, async () => {
      const present = new Set(await iptables.chainNames(table));
      if (!hasOwnChain(table, present)) return;
      for (const { rule } of JUMP_RULES.filter((jump) => jump.table === table)) {
        await attempt(`${family} jump from ${rule.chain} in table ${table}`, () =>
          iptables.deleteRule(table, rule.chain, ruleArguments(rule)),
        );
      }
      const chains = CHAINS_OF[table].filter((chain) => present.has(chain));
      await iptables.restore([transactionText(table, chainLines(chains))], { table });
      for (const chain of chains) {
        await attempt(`${family} chain ${chain} of table ${table}`, () => deleteChain(iptables, table, chain));
      }
    });
  }
}

/** A chain that the iptables mode shares may be in use by its rules and is deleted with them; empty, it does no harm. */
async function deleteChain(iptables: Iptables, table: "nat" | "filter", chain: ChainName): Promise<void> {
  try {
    await iptables.deleteChain(table, chain);
  } catch (error) {
    const shared: readonly ChainName[] = TOP_LEVEL_CHAINS[table];
    if (!(error instanceof IptablesError) || !shared.includes(chain)) throw error;
  }
}
