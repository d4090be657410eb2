/** Faults for histories of the nftables mode: rejected rules, changes by other programs, also while the ruleset is read. */

import assert from "node:assert/strict";
import type { NftChainContent, NftErrorCode, NftOperation, NftSetContent } from "../../src/kernel/nftables/nftables.ts";
import type { NftElement, NftSet } from "../../src/kernel/nftables/ruleset.ts";
import { foreignInMemory } from "../../src/kernel/nftables/testing/foreign-hand.ts";
import { isServiceChain, portTextOf } from "../../src/modes/nftables/names.ts";
import fc from "../../testkit/support/fast-check.ts";
import type { NftablesHistory } from "./nftables-history.ts";

export interface Refusal {
  /** `namespace/name` */
  readonly service: string;
  /** The operation that the kernel now rejects. Existing objects stay, and can be deleted. */
  readonly kind: "add-chain" | "add-rule" | "add-elements" | "add-set";
  readonly code: NftErrorCode;
  readonly isNamed: boolean;
}

export type Damage =
  | { readonly kind: "flush" | "append" | "hold" | "rename" | "swap"; readonly index: number }
  | { readonly kind: "delete-element" | "delete-set" | "change-element"; readonly index: number }
  | { readonly kind: "delete-table" };

export type Fault =
  | { readonly kind: "refuse"; readonly refusal: Refusal }
  | { readonly kind: "damage"; readonly damage: Damage }
  /** The damage happens just after the backend has read the table. */
  | { readonly kind: "race"; readonly damage: Damage }
  | { readonly kind: "heal" | "restart" };

export function faultArbitrary(): fc.Arbitrary<Fault> {
  const refusal = fc.record({
    service: fc.constantFrom("ns1/a", "ns1/ab", "ns1/b", "ns2/a"),
    kind: fc.constantFrom("add-chain", "add-rule", "add-rule", "add-elements", "add-elements", "add-set"),
    code: fc.constantFrom<NftErrorCode>("unsupported", "failed", "too_large", "exists", "not_found", "busy"),
    isNamed: fc.boolean(),
  });
  const damage: fc.Arbitrary<Damage> = fc.oneof(
    {
      weight: 8,
      arbitrary: fc.record({
        kind: fc.constantFrom(
          "flush",
          "append",
          "hold",
          "rename",
          "swap",
          "delete-element",
          "delete-set",
          "change-element",
        ),
        index: fc.nat(60),
      }),
    },
    { weight: 1, arbitrary: fc.constant<Damage>({ kind: "delete-table" }) },
  );
  return fc.oneof(
    { weight: 4, arbitrary: refusal.map((one): Fault => ({ kind: "refuse", refusal: one })) },
    { weight: 4, arbitrary: damage.map((one): Fault => ({ kind: "damage", damage: one })) },
    { weight: 1, arbitrary: damage.map((one): Fault => ({ kind: "race", damage: one })) },
    { weight: 2, arbitrary: fc.constantFrom<Fault>({ kind: "heal" }, { kind: "restart" }) },
  );
}

/** The owner of an element, `namespace/name`; undefined for elements that do not tell it. */
export function serviceOfElement({ verdict, comment }: NftElement): string | undefined {
  const byTarget = verdict !== undefined && "chain" in verdict ? portTextOf(verdict.chain) : undefined;
  return byTarget === undefined ? comment?.split(":")[0] : serviceOf(byTarget);
}

/** `namespace/name` of `namespace/name/protocol/port`. */
export function serviceOf(text: string): string {
  return text.split("/", 2).join("/");
}

function mentions(operation: NftOperation, service: string): boolean {
  const isOf = (name: string) => {
    const text = portTextOf(name);
    return text !== undefined && serviceOf(text) === service;
  };
  switch (operation.kind) {
    case "add-chain":
      return isOf(operation.chain.name);
    case "add-rule":
      return isOf(operation.chain);
    case "add-set":
      return isOf(operation.set.name);
    case "add-elements":
      return operation.elements.some((element) => serviceOfElement(element) === service);
    default:
      return false;
  }
}

/** A chain of another program that jumps into ours. */
export const FOREIGN = "theirs";

/** The name that another program gives to one of our chains. */
const RENAMED = "renamed";

function kindOf({ isMap, hasTargets }: NftSetContent): Pick<NftSet, "isMap" | "hasTargets"> {
  return { isMap, ...(hasTargets && { hasTargets }) };
}

/** Whether a chain exists and has only foreign rules. */
function hasNoneOfOurs(chain: NftChainContent | undefined): boolean {
  return chain?.ruleDigests.every((digest) => digest === undefined) === true;
}

export class FaultyNode {
  readonly refusals: Refusal[] = [];
  readonly #history: NftablesHistory;
  readonly #allowances: (() => void)[] = [];
  /** Races that have not happened yet. */
  readonly #races = new Set<Fault>();
  readonly #foreign;

  constructor(history: NftablesHistory) {
    this.#history = history;
    this.#foreign = history.rig.kernel.connectAnother();
  }

  async take(fault: Fault): Promise<void> {
    const { rig } = this.#history;
    switch (fault.kind) {
      case "refuse": {
        const { service, kind, code, isNamed } = fault.refusal;
        this.refusals.push(fault.refusal);
        const isRefused = (operation: NftOperation) => operation.kind === kind && mentions(operation, service);
        this.#allowances.push(rig.kernel.refuse((operation) => (isRefused(operation) ? { code, isNamed } : undefined)));
        return;
      }
      case "damage":
        await this.#damage(fault.damage);
        return;
      case "race":
        this.#races.add(fault);
        rig.kernel.afterNextRead(async () => {
          if (this.#races.delete(fault)) await this.#damage(fault.damage);
        });
        return;
      case "restart":
        rig.restart();
        return;
      case "heal":
        await this.heal();
    }
  }

  /** Ends all refusals, and removes the objects of other programs. */
  async heal(): Promise<void> {
    for (const allow of this.#allowances.splice(0)) allow();
    this.refusals.length = 0;
    this.#races.clear();
    const content = await this.#foreign.read();
    if (content?.chains.has(FOREIGN)) {
      await this.#do({ kind: "flush-chain", chain: FOREIGN });
      await this.#do({ kind: "delete-chain", chain: FOREIGN });
    }
    // The renamed chain may be the other program's FOREIGN, and must not keep references to ours any longer.
    if (hasNoneOfOurs(content?.chains.get(RENAMED))) await this.#do({ kind: "flush-chain", chain: RENAMED });
  }

  /** Removes the renamed chain. Without rules of ours it does not show its creator, so the backend leaves it unused. */
  async removeRenamed(): Promise<void> {
    const content = await this.#foreign.read();
    const renamed = content?.chains.get(RENAMED);
    if (renamed === undefined) return;
    assert.ok(hasNoneOfOurs(renamed), "rules of ours are left");
    // Kernels before 6.2 release the targets of deleted elements only after a while; until then they return EBUSY.
    this.#history.rig.kernel.passTime();
    await this.#do({ kind: "flush-chain", chain: RENAMED });
    await this.#do({ kind: "delete-chain", chain: RENAMED });
  }

  async #do(command: Parameters<typeof foreignInMemory>[1]): Promise<void> {
    await foreignInMemory(this.#foreign, command);
  }

  async #damage(damage: Damage): Promise<void> {
    const content = await this.#foreign.read();
    if (content === undefined) return;
    if (damage.kind === "delete-table") {
      await this.#do({ kind: "delete-table" });
      return;
    }
    const pick = <T>(items: readonly T[]): T | undefined => items[damage.index % items.length];
    switch (damage.kind) {
      case "flush":
      case "append": {
        const chain = pick([...content.chains.keys()]);
        if (chain !== undefined) await this.#do({ kind: damage.kind === "flush" ? "flush-chain" : "add-rule", chain });
        return;
      }
      case "rename":
      case "swap": {
        const names = [...content.chains.keys()];
        const chain = pick(names);
        const { kernel } = this.#history.rig;
        const hasRoom = !content.chains.has(RENAMED);
        if (chain === undefined || !hasRoom) return;
        kernel.renameChain(chain, RENAMED);
        if (damage.kind === "rename") return;
        const other = names[(damage.index + 1) % names.length] ?? chain;
        if (other !== chain) kernel.renameChain(other, chain);
        kernel.renameChain(RENAMED, other);
        return;
      }
      case "hold": {
        // A swap may have given such a name to a base chain, to which no kernel lets a rule jump.
        const regular = [...content.chains].filter(([, { hook }]) => hook === undefined).map(([name]) => name);
        const to = pick(regular.filter(isServiceChain));
        if (to !== undefined) await this.#do({ kind: "add-jump", chain: FOREIGN, to });
        return;
      }
      case "delete-set": {
        const [name, set] = pick([...content.sets]) ?? [];
        if (name === undefined || set?.key === undefined) return;
        // The kernel rejects most of these, because they are in use.
        await this.#do({ kind: "delete-set", set: { ...kindOf(set), name, key: set.key } }).catch(() => {});
        return;
      }
      case "delete-element":
      case "change-element": {
        const all = [...content.sets].flatMap(([name, set]) => set.elements.map((element) => ({ name, set, element })));
        const { name, set, element } = pick(all) ?? {};
        if (name === undefined || set?.key === undefined || element === undefined) return;
        const target = { ...kindOf(set), name, key: set.key };
        await this.#do({ kind: "delete-element", set: target, key: element.key });
        if (damage.kind === "change-element") await this.#do({ kind: "add-element", set: target, key: element.key });
      }
    }
  }
}
