/**
 * Finds the last known good rules of service ports whose new rules the kernel refuses; they stay until it accepts new ones.
 * They are read from the kernel and not from memory: a restart does not lose them, and keeping them never writes anything
 * that the kernel might refuse, too.
 */
import type { NftTableContent } from "../../kernel/nftables/nftables.ts";
import { elementKey, type NftElement } from "../../kernel/nftables/ruleset.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { ServicePortName } from "../../model/service-port-name.ts";
import type { TransactionDraft } from "./draft.ts";
import type { Layout } from "./layouts.ts";
import { portText, portTextOf } from "./names.ts";
import { chainDigest, type DesiredPort, type InstalledPort, NOTHING_INSTALLED } from "./port-objects.ts";
import { hasOurShape, presenceOf, type ReconcileOptions, reconcile, stateOf, type WantedTable } from "./reconcile.ts";
import type { SharedElement } from "./table-plan.ts";
import type { TableState } from "./table-state.ts";

interface AsideOptions extends ReconcileOptions {
  readonly services: ReadonlyMap<string, ServicePort>;
  /** What this process had installed. */
  readonly before: TableState;
}

/**
 * Leaves the service ports that a refused draft changes as they are in the kernel: what remains must be acceptable, then each can be
 * tried. When one is set aside that answers at an address, another may be next in line for it, and is set aside as well.
 *
 * @param content with all elements; undefined when there is no table.
 * @returns the draft and state of the others, and the keys of those that are set aside.
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
      if (desired === undefined || name === undefined) throw new Error(`${owner} would be changed by keeping it`);
      ports.delete(owner);
      hints.set(owner, { name, desired, remembered: before.installed(owner) });
    }
    const found = content && lastKnownGood(content, wanted.layout, hints, options.deferred);
    let others = { ...wanted, ports, kept: found ?? new Map<string, InstalledPort>() };
    let state = await stateOf(others, options);
    // The table is made again then, and nothing of it can be kept.
    if (content !== undefined && !hasOurShape(content, state.planStatic())) {
      others = { ...others, kept: new Map() };
      state = await stateOf(others, options);
    }
    draft = await reconcile(content, others, state, options);
    if (draft.owners().size === 0) return { draft, state, aside: [...hints.keys()] };
  }
}

/** A service port to look for, with what helps to find its share of the elements. */
interface RefusedPortHint {
  readonly name: ServicePortName;
  /** What this process had installed for it. */
  readonly remembered: InstalledPort | undefined;
  /** What it should have. */
  readonly desired: DesiredPort;
}

/** Of a chain whose rules are right and lead to a chain that another program has renamed: it is written when the port is accepted. */
const ASTRAY = "astray";

/** Of all releases (`release.ts`), in bytes. */
const SHORTEST_COMMENT_LIMIT = 128;

interface Share {
  readonly chains: Map<string, string>;
  readonly affinitySets: Map<string, number>;
  readonly elements: Map<string, SharedElement>;
}

/**
 * @param deferred names of what is only waiting to be deleted.
 * @returns for each port what of its rules is in the kernel; without those that have nothing.
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
  // What another layout has for a service port goes with its sets.
  const hasChains = layout.hasPortChains === true;
  for (const [name, { ruleDigests }] of hasChains ? content.chains : []) {
    if (!deferred.has(name)) shareByName(name)?.chains.set(name, chainDigest(ruleDigests));
  }
  for (const [name, { timeoutSeconds }] of hasChains ? content.sets : []) {
    if (timeoutSeconds !== undefined && !deferred.has(name)) shareByName(name)?.affinitySets.set(name, timeoutSeconds);
  }
  // Elements of sets do not say whose they are.
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
 * Refusals of traffic say in a comment for which port they are; two ports of one name differ in protocol. Some releases cut long names:
 * then the key must be one of the port's, too.
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

/** Says nothing of whose it is. */
function isBare({ verdict, comment }: NftElement): boolean {
  return verdict === undefined && comment === undefined;
}

function targetOf({ verdict }: NftElement): string | undefined {
  return verdict !== undefined && "chain" in verdict ? verdict.chain : undefined;
}

function idOf(set: string, element: NftElement): string {
  return `${set} ${elementKey(element.key)}`;
}
