/**
 * What the kernel has for service ports whose new rules it refuses: their last known good rules stay until it takes new ones.
 * They are found in the kernel and not in memory: a restart does not lose them, and keeping them never writes anything
 * that the kernel might refuse, too. Pure.
 */
import type { NftTableContent } from "../../kernel/nftables/nftables.ts";
import { elementKey, type NftElement } from "../../kernel/nftables/ruleset.ts";
import type { ServicePortName } from "../../model/service-port-name.ts";
import { sharedSetOfAny } from "./layouts.ts";
import { portText, portTextOf } from "./names.ts";
import { chainDigest, type InstalledPort, NOTHING_INSTALLED } from "./port-objects.ts";
import type { SharedElement } from "./table-plan.ts";

/** A service port to look for, with what helps to find its share of the elements. */
export interface RefusedPortHint {
  readonly name: ServicePortName;
  /** What this process had installed for it. */
  readonly remembered: InstalledPort | undefined;
  /** What it should have. */
  readonly desired: InstalledPort;
}

interface Share {
  readonly chains: Map<string, string>;
  readonly affinitySets: Map<string, number>;
  readonly elements: Map<string, SharedElement>;
}

/**
 * @param deferred names of what is only waiting to be deleted.
 * @returns for each port what of its rules is in the kernel; without those that have nothing.
 */
export function lastKnownGood(
  content: NftTableContent,
  hints: ReadonlyMap<string, RefusedPortHint>,
  deferred: { has(name: string): boolean },
): Map<string, InstalledPort> {
  const ownersByText = new Map(Array.from(hints, ([owner, { name }]) => [portText(name), owner]));
  const shares = new Map<string, Share>();
  for (const owner of hints.keys()) {
    shares.set(owner, { chains: new Map(), affinitySets: new Map(), elements: new Map() });
  }
  const shareByName = (name: string): Share | undefined => shares.get(ownersByText.get(portTextOf(name) ?? "") ?? "");
  for (const [name, { ruleDigests }] of content.chains) {
    if (!deferred.has(name)) shareByName(name)?.chains.set(name, chainDigest(ruleDigests));
  }
  for (const [name, { timeoutSeconds }] of content.sets) {
    if (timeoutSeconds !== undefined && !deferred.has(name)) shareByName(name)?.affinitySets.set(name, timeoutSeconds);
  }
  // Elements of sets do not say whose they are.
  const bare = new Set<string>();
  for (const [set, { elements }] of content.sets) {
    if (sharedSetOfAny(set) === undefined) continue;
    for (const element of elements) {
      if (isBare(element)) bare.add(idOf(set, element));
      const share = shares.get(ownerByComment(element) ?? "") ?? shareByName(targetOf(element) ?? "");
      share?.elements.set(idOf(set, element), { set, element });
    }
  }
  const kept = new Map<string, InstalledPort>();
  for (const [owner, { remembered = NOTHING_INSTALLED, desired }] of hints) {
    const share = shares.get(owner);
    if (share === undefined) continue;
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

/** Refusals of traffic say in a comment for which port they are; two ports of one name differ in protocol. */
function ownerByComment({ comment, key }: NftElement): string | undefined {
  const protocol = key.find((value) => value === "tcp" || value === "udp" || value === "sctp");
  return comment === undefined || protocol === undefined ? undefined : `${comment}/${String(protocol).toUpperCase()}`;
}

/** Says nothing of whose it is. */
function isBare({ verdict, comment }: NftElement): boolean {
  return verdict === undefined && comment === undefined;
}

function targetOf({ verdict }: NftElement): string | undefined {
  return verdict === undefined || verdict.kind === "drop" ? undefined : verdict.chain;
}

function idOf(set: string, element: NftElement): string {
  return `${set} ${elementKey(element.key)}`;
}
