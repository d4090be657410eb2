/**
 * What `iptables-save` tells about rules of ours that this process did not write, or did but no longer trusts: which
 * chains exist, and the last good rules of a service port that cannot be rewritten. Pure.
 */
import { chainsOf } from "../../../kernel/iptables/saved-chains.ts";
import type { ServicePortName } from "../../../model/service-port-name.ts";
import { CHAINS, isServiceChain, servicePortChains } from "./chain-names.ts";
import type { InstalledRules } from "./port-rules.ts";

const SHARED_CHAINS: ReadonlySet<string> = new Set([
  CHAINS.services,
  CHAINS.externalServices,
  CHAINS.nodePorts,
  CHAINS.proxyFirewall,
]);

/** What an owner has that has nothing. */
export const NO_RULES: InstalledRules = {
  filterShared: "",
  natShared: "",
  ownChains: "",
  ownRuleCount: 0,
  lacksInternal: false,
  lacksExternal: false,
};

/** Rules found in the kernel, by what they belong to. */
export class SavedRules {
  readonly #filterShared = new Map<string, string[]>();
  readonly #natShared = new Map<string, string[]>();
  readonly #targets = new Map<string, string[]>();
  readonly #ruleCounts = new Map<string, number>();
  readonly #chains: ReadonlySet<string>;
  readonly #asked = new Map<string, InstalledRules | undefined>();

  /** @param filter text of `iptables-save -t filter`. @param nat the same for nat. */
  constructor(filter: string, nat: string) {
    this.#readShared(filter, this.#filterShared);
    this.#readShared(nat, this.#natShared);
    this.#readServiceChains(nat);
    this.#chains = new Set(chainsOf(nat));
  }

  /** What the kernel has for a service port; undefined when it has nothing. */
  of(name: ServicePortName): InstalledRules | undefined {
    const owner = ownerText(name.text, name.protocol);
    if (!this.#asked.has(owner)) this.#asked.set(owner, this.#find(name, owner));
    return this.#asked.get(owner);
  }

  /** Entries of shared chains that belong to none of the ports that were asked for: by their names. */
  rest(): Map<string, InstalledRules> {
    const rest = new Map<string, InstalledRules>();
    for (const owner of new Set([...this.#filterShared.keys(), ...this.#natShared.keys()])) {
      if (this.#asked.has(owner)) continue;
      const filterShared = this.#filterShared.get(owner)?.join("\n") ?? "";
      const natShared = this.#natShared.get(owner)?.join("\n") ?? "";
      if (filterShared + natShared !== "") rest.set(owner, { ...NO_RULES, filterShared, natShared });
    }
    return rest;
  }

  #find(name: ServicePortName, owner: string): InstalledRules | undefined {
    // Ports of one name and two protocols have one such rule each, and the rules look the same.
    const healthCheck = this.#filterShared.get(ownerText(name.text, ""))?.splice(0, 1) ?? [];
    const filterShared = [...(this.#filterShared.get(owner) ?? []), ...healthCheck];
    const natShared = this.#natShared.get(owner) ?? [];
    const chains = servicePortChains(name);
    const own = new Set(Object.values(chains).filter((chain) => this.#chains.has(chain)) as string[]);
    for (const chain of [...own]) for (const target of this.#targets.get(chain) ?? []) own.add(target);
    if (filterShared.length === 0 && natShared.length === 0 && own.size === 0) return undefined;
    let ownRuleCount = 0;
    for (const chain of own) ownRuleCount += this.#ruleCounts.get(chain) ?? 0;
    return {
      ...NO_RULES,
      filterShared: filterShared.join("\n"),
      natShared: natShared.join("\n"),
      ownChains: [...own].join("\n"),
      ownRuleCount,
    };
  }

  #readShared(saved: string, into: Map<string, string[]>): void {
    for (const line of saved.split("\n")) {
      if (!line.startsWith("-A ")) continue;
      const chain = line.slice(3, line.indexOf(" ", 3));
      if (!SHARED_CHAINS.has(chain)) continue;
      const match = / --comment (?:"([^"]*)"|(\S+))/.exec(line);
      const comment = match?.[1] ?? match?.[2] ?? "";
      const name = comment.split(" ", 1)[0] ?? "";
      // Health checks are TCP whatever the port's protocol is.
      const isHealthCheck = comment.endsWith(" health check node port");
      const protocol = isHealthCheck ? "" : (/ -p (tcp|udp|sctp) /.exec(line)?.[1] ?? "");
      if (!name.includes("/")) continue;
      const owner = ownerText(name, protocol);
      const list = into.get(owner);
      if (list === undefined) into.set(owner, [line.slice(3)]);
      else list.push(line.slice(3));
    }
  }

  #readServiceChains(nat: string): void {
    for (const line of nat.split("\n")) {
      if (!line.startsWith("-A KUBE-")) continue;
      const chain = line.slice(3, line.indexOf(" ", 3));
      if (!isServiceChain(chain)) continue;
      this.#ruleCounts.set(chain, (this.#ruleCounts.get(chain) ?? 0) + 1);
      const target = / -j (KUBE-SEP-\S+)$/.exec(line)?.[1];
      if (target === undefined) continue;
      const targets = this.#targets.get(chain);
      if (targets === undefined) this.#targets.set(chain, [target]);
      else targets.push(target);
    }
  }
}

function ownerText(name: string, protocol: string): string {
  return `${name}/${protocol.toUpperCase()}`;
}
