/**
 * Finds the last known good rules of service ports whose new rules the kernel rejects; they stay until it accepts new
 * ones. They are read from the kernel instead of memory: they survive a restart, and keeping them writes nothing that
 * the kernel might also reject.
 */
import type { Nftables, NftTableContent } from "../../kernel/nftables/nftables.ts";
import { elementKey, type NftElement } from "../../kernel/nftables/ruleset.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { ServicePortName } from "../../model/service-port-name.ts";
import { joinHostPort } from "../../net/ip.ts";
import type { FormerEndpoint } from "../../sync/backend.ts";
import type { TransactionDraft } from "./draft.ts";
import type { Layout } from "./layouts.ts";
import { ownerIn, portText, portTextOf } from "./names.ts";
import { chainDigest, type DesiredPort, type InstalledPort, NOTHING_INSTALLED } from "./port-objects.ts";
import { hasOurShape, presenceOf, type ReconcileOptions, reconcile, stateOf, type WantedTable } from "./reconcile.ts";
import type { SharedElement } from "./table-plan.ts";
import type { TableState } from "./table-state.ts";

interface AsideOptions extends ReconcileOptions {
  readonly services: ReadonlyMap<string, ServicePort>;
  /** What this process had installed before. */
  readonly before: TableState;
}

/**
 * Leaves the service ports that a rejected draft changes as they are in the kernel: the kernel must accept the rest, and then
 * each port can be tried. Without the owner of an address another port may be next in line for it: it is set aside too.
 *
 * @param content with all elements; undefined if there is no table.
 * @returns the draft and state of the other ports, and the keys of those that are set aside.
 */
export async function setAside(
  refused: TransactionDraft,
  content: NftTableContent | undefined,
  wanted: WantedTable,
  { services, before, ...options }: AsideOptions,
): Promise<{ readonly draft: TransactionDraft; readonly state: TableState; readonly aside: readonly string[] }> {
  const ports = new Map(wanted.ports);
  const hints = new Map<string, RefusedPortHint>();
  for (let draft = refused; ; ) {
    for (const owner of draft.owners()) {
      const desired = ports.get(owner);
      const name = services.get(owner)?.name;
      if (desired === undefined || name === undefined) throw new Error(`keeping ${owner} as it is would change it`);
      ports.delete(owner);
      hints.set(owner, { name, desired, remembered: before.installed(owner) });
    }
    const found = content && lastKnownGood(content, wanted.layout, hints, options.deferred);
    let others = { ...wanted, ports, kept: found ?? new Map<string, InstalledPort>() };
    let state = await stateOf(others, options);
    // The table is then recreated, so nothing of it can be kept.
    if (content !== undefined && !hasOurShape(content, state.planStatic())) {
      others = { ...others, kept: new Map() };
      state = await stateOf(others, options);
    }
    draft = await reconcile(content, others, state, options);
    if (draft.owners().size === 0) return { draft, state, aside: [...hints.keys()] };
  }
}

/**
 * The TCP endpoints to which a table of an earlier process leads: at least those of service ports that are to change. Sets that
 * were compared have only the differences from what is wanted.
 */
export async function formerEndpoints(
  { chains, sets }: NftTableContent,
  { ports }: WantedTable,
  nft: Pick<Nftables, "readTargets">,
): Promise<FormerEndpoint[]> {
  const found: FormerEndpoint[] = [];
  for (const { elements, others } of sets.values()) {
    for (const element of [...elements, ...(others?.values() ?? [])]) {
      const { target, comment, key = [] } = element ?? {};
      // A comment that was cut is no service port's name.
      if (target === undefined || comment === undefined || !key.includes("tcp")) continue;
      found.push({ owner: `${comment}/TCP`, endpoint: joinHostPort(target.ip, target.port) });
    }
  }
  const owners = new Map<string, string>();
  for (const [name, { ruleDigests }] of chains) {
    const owner = ownerIn(name);
    if (owner?.endsWith("/TCP") !== true) continue;
    if (ports.get(owner)?.chains.get(name) !== chainDigest(ruleDigests)) owners.set(name, owner);
  }
  for (const [chain, targets] of await nft.readTargets(owners.keys())) {
    for (const { ip, port } of targets)
      found.push({ owner: owners.get(chain) ?? "", endpoint: joinHostPort(ip, port) });
  }
  return found;
}

/** A service port to look for, with hints for finding its share of the elements. */
interface RefusedPortHint {
  readonly name: ServicePortName;
  /** What this process had installed for it before. */
  readonly remembered: InstalledPort | undefined;
  /** What it should have now. */
  readonly desired: DesiredPort;
}

/** Digest of a chain whose right rules lead to a chain that another program renamed: accepting the port rewrites it. */
const ASTRAY = "astray";

/** The shortest comment limit of any release, in bytes (`release.ts`). */
const SHORTEST_COMMENT_LIMIT = 128;

interface Share {
  readonly chains: Map<string, string>;
  readonly affinitySets: Map<string, number>;
  readonly elements: Map<string, SharedElement>;
}

/**
 * @param deferred names of chains and sets that are only waiting to be deleted.
 * @returns what each port has in the kernel; ports without anything are left out.
 */
function lastKnownGood(
  content: NftTableContent,
  layout: Layout,
  hints: ReadonlyMap<string, RefusedPortHint>,
  deferred: { has(name: string): boolean },
): Map<string, InstalledPort> {
  const ownersByText = new Map(Array.from(hints, ([owner, { name }]) => [portText(name), owner]));
  const shares = new Map<string, Share>();
  for (const owner of hints.keys()) {
    shares.set(owner, { chains: new Map(), affinitySets: new Map(), elements: new Map() });
  }
  const byComment = ownersByComment(hints);
  const shareByName = (name: string): Share | undefined => shares.get(ownersByText.get(portTextOf(name) ?? "") ?? "");
  // What another layout has for a service port is deleted with its sets.
  const hasChains = layout.hasPortChains === true;
  for (const [name, { ruleDigests }] of hasChains ? content.chains : []) {
    if (!deferred.has(name)) shareByName(name)?.chains.set(name, chainDigest(ruleDigests));
  }
  for (const [name, { timeoutSeconds }] of hasChains ? content.sets : []) {
    if (timeoutSeconds !== undefined && !deferred.has(name)) shareByName(name)?.affinitySets.set(name, timeoutSeconds);
  }
  // Elements without verdict and comment do not tell their owner.
  const bare = new Set<string>();
  for (const [set, { elements }] of content.sets) {
    if (layout.sharedSet(set) === undefined) continue;
    for (const element of elements) {
      if (isBare(element)) bare.add(idOf(set, element));
      const share = shares.get(byComment(element) ?? "") ?? shareByName(targetOf(element) ?? "");
      share?.elements.set(idOf(set, element), { set, element });
    }
  }
  const kept = new Map<string, InstalledPort>();
  for (const [owner, { remembered = NOTHING_INSTALLED, desired }] of hints) {
    const share = shares.get(owner);
    if (share === undefined) continue;
    for (const chain of desired.chainObjects) {
      const digest = desired.chains.get(chain.name);
      if (digest === undefined || share.chains.get(chain.name) !== digest) continue;
      if (presenceOf(content, chain, digest) === "filled") share.chains.set(chain.name, ASTRAY);
    }
    for (const { set, element } of [...remembered.elements, ...desired.elements]) {
      const id = idOf(set, element);
      if (isBare(element) && bare.has(id)) share.elements.set(id, { set, element });
    }
    const { chains, affinitySets, elements } = share;
    if (chains.size + affinitySets.size + elements.size === 0) continue;
    const { lacksLocal } = remembered;
    kept.set(owner, { chains, affinitySets, elements: [...elements.values()], isFound: true, lacksLocal });
  }
  return kept;
}

/**
 * Elements that reject traffic name their port in a comment; two ports of one name differ in protocol. Some releases
 * cut long names: then the key must also be one of the port's.
 */
function ownersByComment(hints: ReadonlyMap<string, RefusedPortHint>): (element: NftElement) => string | undefined {
  const cut = [...hints].filter(([, { name }]) => name.text.length > SHORTEST_COMMENT_LIMIT);
  return ({ comment, key }) => {
    const protocol = key.find((value) => value === "tcp" || value === "udp" || value === "sctp");
    if (comment === undefined || protocol === undefined) return undefined;
    const owner = `${comment}/${String(protocol).toUpperCase()}`;
    if (hints.has(owner)) return owner;
    const id = elementKey(key);
    const hasKey = ({ remembered = NOTHING_INSTALLED, desired }: RefusedPortHint): boolean =>
      [...remembered.elements, ...desired.elements].some(({ element }) => elementKey(element.key) === id);
    return cut.find(([, hint]) => hint.name.text.startsWith(comment) && hasKey(hint))?.[0];
  };
}

/** Whether an element does not tell its owner. */
function isBare({ verdict, comment }: NftElement): boolean {
  return verdict === undefined && comment === undefined;
}

function targetOf({ verdict }: NftElement): string | undefined {
  return verdict !== undefined && "chain" in verdict ? verdict.chain : undefined;
}

function idOf(set: string, element: NftElement): string {
  return `${set} ${elementKey(element.key)}`;
}
