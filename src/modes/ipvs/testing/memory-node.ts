/** In-memory fakes of the kernel interfaces that the ipvs mode uses, for one family, with their state in comparable form. */

import { MemoryIpset } from "../../../../testkit/fakes/ipset/memory-ipset.ts";
import { MemoryIptables } from "../../../../testkit/fakes/iptables/memory-iptables.ts";
import { MemoryIpvs } from "../../../../testkit/fakes/ipvs/memory-ipvs.ts";
import { MemoryLinks } from "../../../../testkit/fakes/route/memory-links.ts";
import { ip } from "../../../model/testing/records.ts";
import type { IpFamily } from "../../../net/ip.ts";
import { ipsetEntryText } from "../ipset/ipset.ts";
import { type NodeState, readNodeState } from "./node-state.ts";

/** The node's own address, on `eth0`. */
export const NODE_IPS: Readonly<Record<IpFamily, string>> = { IPv4: "192.168.0.2", IPv6: "fd00:200::2" };

/** What both families of a node share: everything but iptables. */
export class MemoryHost {
  readonly ipvs = new MemoryIpvs();
  readonly links = new MemoryLinks();
  readonly iptables: Readonly<Record<IpFamily, MemoryIptables>>;
  readonly ipset: MemoryIpset;

  constructor() {
    this.ipset = new MemoryIpset({
      isInUse: (name) => Object.values(this.iptables).some((tables) => tables.setsInUse().has(name)),
    });
    const hasSet = (name: string) => this.ipset.has(name);
    this.iptables = { IPv4: new MemoryIptables("IPv4", { hasSet }), IPv6: new MemoryIptables("IPv6", { hasSet }) };
    this.links.addForeignLink("eth0", undefined);
    this.links.addForeignAddress("eth0", ip(NODE_IPS.IPv4), 24);
    this.links.addForeignAddress("eth0", ip(NODE_IPS.IPv6), 64);
  }
}

export class MemoryNode {
  readonly family: IpFamily;
  readonly ipvs: MemoryIpvs;
  readonly links: MemoryLinks;
  readonly iptables: MemoryIptables;
  readonly ipset: MemoryIpset;

  constructor(family: IpFamily, { ipvs, links, iptables, ipset }: MemoryHost = new MemoryHost()) {
    this.family = family;
    this.ipvs = ipvs;
    this.links = links;
    this.iptables = iptables[family];
    this.ipset = ipset;
  }

  /** The number of requests and restores since the last call. */
  takeCosts(): { readonly ipvs: number; readonly ipset: number; readonly links: number; readonly restores: number } {
    const total = {
      ipvs: this.ipvs.messages,
      ipset: this.ipset.messages,
      links: this.links.messages,
      restores: this.iptables.restoreCount,
    };
    const before = this.#costs;
    this.#costs = total;
    return {
      ipvs: total.ipvs - before.ipvs,
      ipset: total.ipset - before.ipset,
      links: total.links - before.links,
      restores: total.restores - before.restores,
    };
  }
  #costs = { ipvs: 0, ipset: 0, links: 0, restores: 0 };

  async state(): Promise<NodeState> {
    const state = await readNodeState(this, this.family);
    this.takeCosts();
    return state;
  }

  /** Members of a set, sorted; undefined if there is no such set. */
  async members(name: string): Promise<readonly string[] | undefined> {
    return (await this.ipset.members(name))?.map(ipsetEntryText).sort();
  }

  /** `10.1.0.1:80 weight 1` of each real server, sorted; undefined if there is no such virtual server. */
  async realServers(text: string): Promise<readonly string[] | undefined> {
    const { virtualServers } = await this.state();
    const title = Object.keys(virtualServers).find((key) => key.startsWith(`${text} `));
    return title === undefined ? undefined : virtualServers[title];
  }
}
