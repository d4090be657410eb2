/**
 * Compares the chains in the kernel with what was written, by the uses of each chain: its rules plus the rules that jump to
 * it. Because another program's rule may jump to one of our chains, rules are counted exactly before a mismatch counts as
 * damage. Where the kernel counts changes (the nft back end), a check costs one request while nothing changes on the node.
 */
import type { Iptables } from "../../kernel/iptables/iptables.ts";
import { declaredChains, type OwnerRules } from "../shared/iptables-rules/owner-rules.ts";
import type { ServiceTable } from "../shared/iptables-rules/rules-plan.ts";
import { restAfterLook } from "../shared/look-rest.ts";

/** The rules that the kernel should hold. */
export interface WrittenChains {
  /** By owner: service ports whose own chains are to be checked. */
  readonly ports: Iterable<readonly [owner: string, rules: OwnerRules]>;
  /** Rules of each shared or static chain; undefined if not known for certain. */
  readonly shared: Readonly<Record<ServiceTable, ReadonlyMap<string, number> | undefined>>;
}

/** Chains that are missing or differ from what was written. */
interface ChainDamage {
  readonly owners: ReadonlySet<string>;
  readonly chains: readonly string[];
  /** Affects more than the own chains of a few service ports. */
  readonly isTotal: boolean;
  /** False if the previous check found it too. */
  readonly isNew: boolean;
}

/** With more damaged service ports, everything is rewritten. */
const MAX_OWNERS = 100;
/** Chains with at most this many rules are counted every time, which is cheap. */
const SMALL_CHAIN = 64;

export class ChainCheck {
  readonly #iptables: Iptables;
  readonly #nowMs: () => number;
  readonly #periodMs: number;
  /** The ruleset's generation at the last check without damage. */
  #sound: number | undefined;
  /** By owner: uses that differ from the expected ones although the rules are correct. */
  #accepted = new Map<string, number>();
  /** By table and chain: uses minus rules, at the last exact count. */
  #offsets = new Map<string, number>();
  #restUntilMs = 0;
  #wasTotal = false;

  /** @param periodMs the intended time between checks, even if they take long. */
  constructor(iptables: Iptables, nowMs: () => number, periodMs: number) {
    this.#iptables = iptables;
    this.#nowMs = nowMs;
    this.#periodMs = periodMs;
  }

  /**
   * @param written called only if a check is needed.
   * @param isCurrent whether `written` is still valid after the kernel was read; if not, reports nothing.
   * @returns undefined if nothing is wrong, or if it is too early for another check.
   */
  async find(written: () => WrittenChains, isCurrent: () => boolean): Promise<ChainDamage | undefined> {
    const startMs = this.#nowMs();
    if (startMs < this.#restUntilMs) return undefined;
    const generation = await this.#iptables.generation();
    if (generation !== undefined && generation === this.#sound) return undefined;
    const damage = await this.#look(written());
    if (!isCurrent()) return undefined;
    const isSound = damage.owners.size === 0 && !damage.isTotal;
    const isNew = !(this.#wasTotal && damage.isTotal);
    this.#wasTotal = damage.isTotal;
    this.#sound = isSound ? generation : undefined;
    // Damage is checked again at once, before and after the repair.
    this.#restUntilMs = isSound ? this.#nowMs() + restAfterLook(this.#nowMs() - startMs, this.#periodMs) : 0;
    return isSound ? undefined : { ...damage, isNew };
  }

  /** Call after all rules have been rewritten. */
  forget(): void {
    this.#sound = undefined;
    this.#accepted = new Map();
    this.#offsets = new Map();
    this.#restUntilMs = 0;
    this.#wasTotal = false;
  }

  async #look({ ports, shared }: WrittenChains): Promise<Omit<ChainDamage, "isNew">> {
    const nat = await this.#iptables.chainUses("nat");
    const chains: string[] = [];
    const owners = new Set<string>();
    for (const [owner, rules] of ports) {
      const found = await this.#damagedChains(owner, rules, nat);
      // The shared chains' jumps to them are gone, and rewriting the port alone does not restore those.
      if (found === "unused") return { owners, chains: declaredChains(rules.ownChains), isTotal: true };
      if (found.length === 0) continue;
      owners.add(owner);
      chains.push(...found);
      if (owners.size > MAX_OWNERS) return { owners, chains, isTotal: true };
    }
    const uses = { nat, filter: await this.#iptables.chainUses("filter") };
    const ownChains = chains.length;
    for (const table of ["filter", "nat"] as const) {
      for (const [chain, count] of shared[table] ?? []) {
        if (!(await this.#isRight(table, chain, count, uses[table].get(chain)))) chains.push(`${table} ${chain}`);
      }
    }
    return { owners, chains, isTotal: chains.length > ownChains };
  }

  async #damagedChains(
    owner: string,
    rules: OwnerRules,
    uses: ReadonlyMap<string, number>,
  ): Promise<readonly string[] | "unused"> {
    const chains = declaredChains(rules.ownChains);
    const missing = chains.filter((chain) => !uses.has(chain));
    if (missing.length > 0) return missing;
    const sum = chains.reduce((total, chain) => total + (uses.get(chain) ?? 0), 0);
    if (rules.ownUses === undefined || sum === rules.ownUses) {
      this.#accepted.delete(owner);
      return [];
    }
    if (this.#accepted.get(owner) === sum) return [];
    let count = 0;
    for (const chain of chains) count += await this.#iptables.ruleCount("nat", chain);
    if (count !== rules.ownRuleCount) return chains;
    if (sum < rules.ownUses) return "unused";
    this.#accepted.set(owner, sum);
    return [];
  }

  async #isRight(table: ServiceTable, chain: string, count: number, uses: number | undefined): Promise<boolean> {
    if (uses === undefined) return false;
    const key = `${table} ${chain}`;
    if (count > SMALL_CHAIN && this.#offsets.get(key) === uses - count) return true;
    if ((await this.#iptables.ruleCount(table, chain)) !== count) return false;
    this.#offsets.set(key, uses - count);
    return true;
  }
}
