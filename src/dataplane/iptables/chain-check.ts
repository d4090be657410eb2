/**
 * Compares the chains in the kernel with what was written there, by how much each is used: rules in it and rules that go to
 * it. What looks wrong is counted exactly before it is called damage, for a foreign rule may go to a chain of ours. Costs
 * one question while nothing changes on the node, where the kernel counts changes (the nft back end).
 */
import type { Iptables } from "../../kernel/iptables/iptables.ts";
import { declaredChains, type OwnerRules } from "../shared/iptables-rules/owner-rules.ts";
import type { ServiceTable } from "../shared/iptables-rules/rules-plan.ts";
import { restAfterLook } from "../shared/look-rest.ts";

/** The rules that the kernel should hold. */
export interface WrittenChains {
  /** By owner: service ports whose own chains are to be looked at. */
  readonly ports: Iterable<readonly [owner: string, rules: OwnerRules]>;
  /** Rules of each chain that ports share or that is fixed; undefined when that is not known for sure. */
  readonly shared: Readonly<Record<ServiceTable, ReadonlyMap<string, number> | undefined>>;
}

/** Chains that are not what was written, or that are gone. */
interface ChainDamage {
  readonly owners: ReadonlySet<string>;
  readonly chains: readonly string[];
  /** Not confined to chains of few service ports. */
  readonly isTotal: boolean;
  /** False when it was found at the last look, too. */
  readonly isNew: boolean;
}

/** More damaged service ports than these are written with all the others. */
const MAX_OWNERS = 100;
/** Chains of at most so many rules are counted each time, which is cheap. */
const SMALL_CHAIN = 64;

export class ChainCheck {
  readonly #iptables: Iptables;
  readonly #nowMs: () => number;
  readonly #periodMs: number;
  /** The ruleset's generation when nothing was wrong. */
  #sound: number | undefined;
  /** By owner: uses that are not those of our rules, though the rules are right. */
  #accepted = new Map<string, number>();
  /** By table and chain: uses beyond the rules in it, when these were counted. */
  #offsets = new Map<string, number>();
  #restUntilMs = 0;
  #wasTotal = false;

  /** @param periodMs how often there should be a look, though it takes long. */
  constructor(iptables: Iptables, nowMs: () => number, periodMs: number) {
    this.#iptables = iptables;
    this.#nowMs = nowMs;
    this.#periodMs = periodMs;
  }

  /**
   * @param written asked when there is something to look at.
   * @param isCurrent whether that is still so; when it is not after the kernel was read, nothing is found.
   * @returns undefined when nothing is wrong, or when it is too early to look again.
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
    // Damage is looked at again at once, before and after it is repaired.
    this.#restUntilMs = isSound ? this.#nowMs() + restAfterLook(this.#nowMs() - startMs, this.#periodMs) : 0;
    return isSound ? undefined : { ...damage, isNew };
  }

  /** All rules have been written. */
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
      // What led to them is gone: entries of shared chains, which are not written again with the port alone.
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
