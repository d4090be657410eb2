/**
 * What saved tables tell about rules of ours that this process did not write, or did but no longer trusts: which
 * chains exist, and the last good rules of a service port that cannot be rewritten. Pure.
 */

import { commentOf, protocolOf, targetOf } from "../../../kernel/iptables/parser/rule-parts.ts";
import type { SavedTable } from "../../../kernel/iptables/parser/ruleset.ts";
import type { ServicePortName } from "../../../model/service-port-name.ts";
import { isProtocolName } from "../../../net/protocol.ts";
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
  readonly #nat: SavedTable;
  readonly #asked = new Map<string, InstalledRules | undefined>();

  constructor(filter: SavedTable, nat: SavedTable) {
    this.#nat = nat;
    this.#readShared(filter, this.#filterShared);
    this.#readShared(nat, this.#natShared);
    this.#readServiceChains();
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
    const own = new Set(Object.values(chains).filter((chain) => this.#nat.has(chain)) as string[]);
    for (const chain of [...own]) for (const target of this.#targets.get(chain) ?? []) own.add(target);
    if (filterShared.length === 0 && natShared.length === 0 && own.size === 0) return undefined;
    let ownRuleCount = 0;
    for (const chain of own) ownRuleCount += this.#nat.get(chain)?.rules.length ?? 0;
    return {
      ...NO_RULES,
      filterShared: filterShared.join("\n"),
      natShared: natShared.join("\n"),
      ownChains: [...own].join("\n"),
      ownRuleCount,
    };
  }

  #readShared(table: SavedTable, into: Map<string, string[]>): void {
    for (const [chain, { rules }] of table) {
      if (!SHARED_CHAINS.has(chain)) continue;
      for (const rule of rules) {
        const owner = ownerOf(rule);
        if (owner === undefined) continue;
        const list = into.get(owner);
        if (list === undefined) into.set(owner, [`${chain} ${rule}`]);
        else list.push(`${chain} ${rule}`);
      }
    }
  }

  #readServiceChains(): void {
    for (const [chain, { rules }] of this.#nat) {
      if (!isServiceChain(chain)) continue;
      const targets = rules.map(targetOf).filter(isEndpointChain);
      if (targets.length > 0) this.#targets.set(chain, targets);
    }
  }
}

function isEndpointChain(target: string | undefined): target is string {
  return target?.startsWith("KUBE-SEP-") === true;
}

/** Whose entry of a shared chain a rule is: its comment begins with the service port's name. */
function ownerOf(rule: string): string | undefined {
  const comment = commentOf(rule) ?? "";
  const [name = ""] = comment.split(" ", 1);
  if (!name.includes("/")) return undefined;
  // Health checks are TCP whatever the port's protocol is.
  if (comment.endsWith(" health check node port")) return ownerText(name, "");
  const protocol = protocolOf(rule) ?? "";
  return ownerText(name, isProtocolName(protocol) ? protocol : "");
}

function ownerText(name: string, protocol: string): string {
  return `${name}/${protocol.toUpperCase()}`;
}
