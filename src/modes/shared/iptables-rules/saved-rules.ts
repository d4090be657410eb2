/**
 * Our rules in saved tables that this process did not write, or no longer trusts: which chains exist, and the last
 * known good rules of a service port that cannot be rewritten.
 */

import type { FormerEndpoint } from "../../../contract/backend.ts";
import { type Iptables, isUnreadable } from "../../../kernel/iptables/iptables.ts";
import { commentOf, protocolOf, targetOf } from "../../../kernel/iptables/parser/rule-parts.ts";
import { readTable, type SavedTable } from "../../../kernel/iptables/parser/ruleset.ts";
import type { ChainName } from "../../../kernel/iptables/rule.ts";
import { chainLines } from "../../../kernel/iptables/rule-text.ts";
import type { ServicePortName } from "../../../model/service-port-name.ts";
import { isProtocolName } from "../../../net/protocol.ts";
import { isServiceChain, servicePortChains } from "./chain-names.ts";
import { NO_RULES, type OwnerRules } from "./owner-rules.ts";
import type { ServiceTable, StaticPlan } from "./rules-plan.ts";

/** Reads a table from the kernel. */
export async function readSaved(iptables: Pick<Iptables, "save">, table: ServiceTable): Promise<SavedTable> {
  return readTable(await iptables.save(table), table);
}

/** Likewise; undefined if the tool cannot print it (`unreadable`). */
export async function readSavedIfReadable(
  iptables: Pick<Iptables, "save">,
  table: ServiceTable,
): Promise<SavedTable | undefined> {
  try {
    return await readSaved(iptables, table);
  } catch (error) {
    if (isUnreadable(error)) return undefined;
    throw error;
  }
}

/** An entry of a shared chain. */
interface SavedEntry {
  readonly table: ServiceTable;
  /** The line that appends it. */
  readonly line: string;
}

/** Rules found in the kernel, by owner. */
export class SavedRules {
  readonly #shared = new Map<string, SavedEntry[]>();
  readonly #targets = new Map<string, ChainName[]>();
  readonly #nat: SavedTable;
  readonly #asked = new Map<string, OwnerRules | undefined>();

  /** @param plan the mode's static plan: its chains are those that service ports share. */
  constructor(filter: SavedTable, nat: SavedTable, { filterChains, natChains }: StaticPlan) {
    this.#nat = nat;
    this.#readShared(filter, "filter", new Set(filterChains));
    this.#readShared(nat, "nat", new Set(natChains));
    this.#readServiceChains();
  }

  /** The kernel's rules for a service port; undefined if it has none. */
  of(name: ServicePortName): OwnerRules | undefined {
    const owner = ownerText(name.text, name.protocol);
    if (!this.#asked.has(owner)) this.#asked.set(owner, this.#find(name, owner));
    return this.#asked.get(owner);
  }

  /** Entries of shared chains of ports that {@link of} was not called for, by owner. */
  rest(): Map<string, OwnerRules> {
    const rest = new Map<string, OwnerRules>();
    for (const [owner, shared] of this.#shared) {
      if (this.#asked.has(owner) || shared.length === 0) continue;
      rest.set(owner, { ...NO_RULES, ...linesOf(shared) });
    }
    return rest;
  }

  #find(name: ServicePortName, owner: string): OwnerRules | undefined {
    // Two ports that differ only in protocol have one such rule each, and the rules look the same.
    const healthChecks = this.#shared.get(ownerText(name.text, ""));
    const healthCheck = healthChecks?.[0]?.table === "filter" ? healthChecks.splice(0, 1) : [];
    const shared = [...(this.#shared.get(owner) ?? []), ...healthCheck];
    const chains = servicePortChains(name);
    const own = new Set<ChainName>(Object.values(chains).filter((chain) => this.#nat.has(chain)));
    for (const chain of [...own]) for (const target of this.#targets.get(chain) ?? []) own.add(target);
    if (shared.length === 0 && own.size === 0) return undefined;
    let ownRuleCount = 0;
    for (const chain of own) ownRuleCount += this.#nat.get(chain)?.rules.length ?? 0;
    return { ...NO_RULES, ...linesOf(shared), ownChains: chainLines([...own]), ownRuleCount };
  }

  #readShared(saved: SavedTable, table: ServiceTable, shared: ReadonlySet<string>): void {
    for (const [chain, { rules }] of saved) {
      if (!shared.has(chain)) continue;
      for (const printed of rules) {
        const owner = ownerOf(printed);
        if (owner === undefined) continue;
        const entry: SavedEntry = { table, line: `-A ${chain} ${printed}\n` };
        const list = this.#shared.get(owner);
        if (list === undefined) this.#shared.set(owner, [entry]);
        else list.push(entry);
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

function linesOf(entries: readonly SavedEntry[]): Record<ServiceTable, string> {
  const lines = { filter: "", nat: "" };
  for (const { table, line } of entries) lines[table] += line;
  return lines;
}

function isEndpointChain(target: string | undefined): target is ChainName {
  return target?.startsWith("KUBE-SEP-") === true;
}

/** The owner of an entry of a shared chain: its comment starts with the service port's name. */
function ownerOf(rule: string): string | undefined {
  const comment = commentOf(rule) ?? "";
  const [name = ""] = comment.split(" ", 1);
  if (!name.includes("/")) return undefined;
  // Health checks use TCP, regardless of the port's protocol.
  if (comment.endsWith(" health check node port")) return ownerText(name, "");
  const protocol = protocolOf(rule) ?? "";
  return ownerText(name, isProtocolName(protocol) ? protocol : "");
}

/** The TCP endpoints to which these chains of the nat table lead. */
export function* endpointsIn(nat: SavedTable, chains: Iterable<string>): Generator<FormerEndpoint> {
  for (const chain of chains) {
    for (const rule of isEndpointChain(chain) ? (nat.get(chain)?.rules ?? []) : []) {
      const [, endpoint] = /--to-destination (\S+)/.exec(rule) ?? [];
      const owner = ownerOf(rule);
      if (endpoint !== undefined && owner?.endsWith("/TCP") === true) yield { owner, endpoint };
    }
  }
}

function ownerText(name: string, protocol: string): string {
  return `${name}/${protocol.toUpperCase()}`;
}
