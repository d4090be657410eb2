/** The wanted state of the ipvs mode: what service ports need in the kernel, by kind and key. */

import { comparePrecedence } from "../../model/frontend.ts";
import { KeyOwners } from "../../model/key-owners.ts";
import type { IpAddress } from "../../net/ip.ts";
import { type Parts, WantedParts } from "../shared/wanted-parts.ts";
import { type IpsetEntry, ipsetEntryText } from "./ipset/ipset.ts";
import { virtualServerText } from "./kernel/ipvs.ts";
import { SET_IDS, type SetId } from "./names.ts";
import type { DeniedVip, PlannedVirtualServer, ServicePortPlan } from "./plan-service-port.ts";

/** Keys are the texts of the objects. */
export interface IpvsKinds extends Record<SetId, IpsetEntry> {
  readonly virtualServers: PlannedVirtualServer;
  /** On kube-ipvs0. */
  readonly addresses: IpAddress;
  readonly deniedVips: DeniedVip;
}

type RefusedKind = SetId | "virtualServers" | "addresses";

/** A part that could not be added or deleted. */
export interface PartFailure<Kind extends RefusedKind = RefusedKind> {
  readonly kind: Kind;
  readonly key: string;
  readonly reason: string;
}

export type IpvsWanted = WantedParts<IpvsKinds>;

/** An empty wanted state. */
export function newWanted(): IpvsWanted {
  const sets = SET_IDS.map((id) => [id, new KeyOwners<IpsetEntry>()] as const);
  return new WantedParts<IpvsKinds>({
    ...(Object.fromEntries(sets) as Record<SetId, KeyOwners<IpsetEntry>>), // all of them
    virtualServers: new KeyOwners<PlannedVirtualServer>((a, b) => comparePrecedence(a.kind, b.kind)),
    addresses: new KeyOwners<IpAddress>(),
    deniedVips: new KeyOwners<DeniedVip>(),
  });
}

/** The parts of a plan. */
export function partsOf(plan: ServicePortPlan): Parts<IpvsKinds> {
  const entries: { [K in SetId]?: [string, IpsetEntry][] } = {};
  for (const { set, entry } of plan.entries) {
    const inSet = entries[set] ?? [];
    entries[set] = inSet;
    inSet.push([ipsetEntryText(entry), entry]);
  }
  return {
    ...entries,
    virtualServers: plan.virtualServers.map((planned) => [virtualServerText(planned.virtualServer), planned]),
    addresses: plan.addresses.map((address) => [address, address]),
    deniedVips: plan.deniedVips.map((vip) => [`${vip.address},${vip.protocol}:${vip.port}`, vip]),
  };
}

/** What the rules depend on. */
export function rulesInput({ of }: IpvsWanted): {
  readonly filled: ReadonlySet<SetId>;
  readonly deniedVips: readonly DeniedVip[];
} {
  const denied = [...of.deniedVips.entries()].sort(([a], [b]) => (a < b ? -1 : 1));
  return {
    filled: new Set(SET_IDS.filter((id) => of[id].size > 0)),
    deniedVips: denied.map(([, { value }]) => value),
  };
}
