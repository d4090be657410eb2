/**
 * What all service ports together want of the kernel, kept up to date port by port, with what one sync has changed in it.
 * No I/O.
 */
import { type IpsetEntry, ipsetEntryText } from "../../kernel/ipset/ipset.ts";
import { virtualServerText } from "../../kernel/ipvs/ipvs.ts";
import { comparePrecedence } from "../../model/frontend-ownership.ts";
import type { IpAddress } from "../../net/ip.ts";
import { KeyOwners, type Touched } from "../shared/key-owners.ts";
import { SET_IDS, type SetId } from "./names.ts";
import type { DeniedVip, PlannedVirtualServer, ServicePortPlan } from "./plan-service-port.ts";

/** Everything that a sync may have changed, as it was wanted before. Keys are the texts of the things. */
export interface WantedChanges {
  readonly virtualServers: Touched<PlannedVirtualServer>;
  readonly entries: ReadonlyMap<SetId, Touched<IpsetEntry>>;
  readonly addresses: Touched<IpAddress>;
}

/** No changes yet; {@link WantedState.put} notes them. */
export function noChanges(): WantedChanges {
  return {
    virtualServers: new Map(),
    entries: new Map(SET_IDS.map((id) => [id, new Map<string, IpsetEntry | undefined>()])),
    addresses: new Map(),
  };
}

const NOTHING: ServicePortPlan = {
  virtualServers: [],
  entries: [],
  addresses: [],
  deniedVips: [],
  lacksLocal: { internal: false, external: false },
};

interface PutPlan {
  readonly service: string;
  readonly plan: ServicePortPlan;
}

export class WantedState {
  /** By `address:port/protocol`. */
  readonly virtualServers = new KeyOwners<PlannedVirtualServer>((a, b) => comparePrecedence(a.kind, b.kind));
  /** On kube-ipvs0, by themselves. */
  readonly addresses = new KeyOwners<IpAddress>();
  readonly #entries: ReadonlyMap<SetId, KeyOwners<IpsetEntry>> = new Map(SET_IDS.map((id) => [id, new KeyOwners()]));
  readonly #deniedVips = new KeyOwners<DeniedVip>();
  readonly #plans = new Map<string, PutPlan>();
  readonly #lacking = { internal: new ServiceCounts(), external: new ServiceCounts() };

  /** Members of a set, by their text. */
  entries(set: SetId): KeyOwners<IpsetEntry> {
    const owners = this.#entries.get(set);
    if (owners === undefined) throw new RangeError(`no set ${set}`);
    return owners;
  }

  /** Sets that are to have members. */
  filledSets(): Set<SetId> {
    return new Set(SET_IDS.filter((id) => this.entries(id).size > 0));
  }

  /** In a fixed order. */
  deniedVips(): DeniedVip[] {
    const keys = [...this.#deniedVips.keys()].sort();
    return keys.map((key) => this.#deniedVips.get(key)).filter((vip) => vip !== undefined);
  }

  /** Services with a Local policy, endpoints somewhere and none here. Unlike in other modes, services and not ports. */
  get lacking(): { readonly internal: number; readonly external: number } {
    return { internal: this.#lacking.internal.size, external: this.#lacking.external.size };
  }

  /** Service ports that want something. */
  get owners(): Iterable<string> {
    return this.#plans.keys();
  }

  /** Notes what a port wants from now on; undefined: nothing. @param service `namespace/name`, or any text with undefined. */
  put(owner: string, service: string, plan: ServicePortPlan | undefined, changes?: WantedChanges): void {
    const known = this.#plans.get(owner);
    const before = known?.plan ?? NOTHING;
    const after = plan ?? NOTHING;
    if (plan === undefined) this.#plans.delete(owner);
    else this.#plans.set(owner, { service, plan });

    const virtualServersOf = ({ virtualServers }: ServicePortPlan) =>
      virtualServers.map((planned) => [virtualServerText(planned.virtualServer), planned] as const);
    this.virtualServers.replace(owner, virtualServersOf(before), virtualServersOf(after), changes?.virtualServers);

    const addressesOf = ({ addresses }: ServicePortPlan) => addresses.map((address) => [address, address] as const);
    this.addresses.replace(owner, addressesOf(before), addressesOf(after), changes?.addresses);

    const vipsOf = ({ deniedVips }: ServicePortPlan) =>
      deniedVips.map((vip) => [`${vip.address},${vip.protocol}:${vip.port}`, vip] as const);
    this.#deniedVips.replace(owner, vipsOf(before), vipsOf(after));

    // Grouped by set: everything of one set is taken away before anything is added to it.
    const ids = new Set([...before.entries, ...after.entries].map(({ set }) => set));
    for (const id of ids) {
      const entriesOf = ({ entries }: ServicePortPlan) =>
        entries.filter(({ set }) => set === id).map(({ entry }) => [ipsetEntryText(entry), entry] as const);
      this.entries(id).replace(owner, entriesOf(before), entriesOf(after), changes?.entries.get(id));
    }

    for (const policy of ["internal", "external"] as const) {
      if (known !== undefined && before.lacksLocal[policy]) this.#lacking[policy].add(known.service, -1);
      if (after.lacksLocal[policy]) this.#lacking[policy].add(service, 1);
    }
  }
}

/** Services that some of their ports name. */
class ServiceCounts {
  readonly #counts = new Map<string, number>();

  get size(): number {
    return this.#counts.size;
  }

  add(service: string, change: 1 | -1): void {
    const count = (this.#counts.get(service) ?? 0) + change;
    if (count === 0) this.#counts.delete(service);
    else this.#counts.set(service, count);
  }
}
