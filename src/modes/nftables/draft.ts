/**
 * A transaction under construction. Every operation has an owner and a phase: an object is added before what refers to
 * it, and deleted after.
 */
import type { NftOperation } from "../../kernel/nftables/nftables.ts";
import {
  elementKey,
  equalTargets,
  equalVerdicts,
  type NftChain,
  type NftElement,
  type NftSet,
} from "../../kernel/nftables/ruleset.ts";
import { ruleDigestIn } from "./port-objects.ts";
import type { ElementChange } from "./table-plan.ts";

const PHASES = [
  "table",
  "add-counters",
  "add-sets",
  "add-chains",
  "add-rules",
  "delete-elements",
  "add-elements",
  "flush-chains",
  // Elements of maps refer to chains.
  "delete-shared-sets",
  "delete-chains",
  "delete-sets",
  "delete-counters",
] as const;

type Phase = Exclude<(typeof PHASES)[number], "delete-elements" | "add-elements">;

/** What is known of a chain in the kernel before it is written. */
export type ChainPresence = "absent" | "empty" | "filled" | "unknown";

/** A deletion that can be deferred: nothing of this program refers to the object. */
export type Deletion = Extract<NftOperation, { readonly kind: "delete-chain" | "delete-set" }>;

export class TransactionDraft {
  readonly #phases = new Map<Phase, Step[]>();
  /** By set, in the order of first use. */
  readonly #changes = new Map<string, SetChanges>();
  /** All elements of sets that are empty. */
  #filling: { readonly sets: ReadonlyMap<string, NftSet>; readonly wanted: () => Iterable<WantedElement> } | undefined;

  add(phase: Phase, operation: NftOperation, owner?: string): void {
    const steps = this.#phases.get(phase);
    if (steps === undefined) this.#phases.set(phase, [{ owner, operation }]);
    else steps.push({ owner, operation });
  }

  /** Writes a chain with exactly these rules. @param digest the result of `digestOf`, if known. */
  writeChain(chain: NftChain, presence: ChainPresence, owner?: string, digest?: string): void {
    const { rules, ...head } = chain;
    if (presence === "absent" || presence === "unknown") {
      this.add("add-chains", { kind: "add-chain", chain: head }, owner);
    }
    if (presence === "filled" || presence === "unknown") {
      this.add("add-chains", { kind: "flush-chain", chain: chain.name }, owner);
    }
    for (const [index, rule] of rules.entries()) {
      const known = digest && ruleDigestIn(digest, index);
      const operation = { kind: "add-rule", chain: chain.name, rule } as const;
      this.add("add-rules", known === undefined ? operation : { ...operation, digest: known }, owner);
    }
  }

  emptyChain(chain: string, owner?: string): void {
    this.add("flush-chains", { kind: "flush-chain", chain }, owner);
  }

  deleteChain(chain: string, owner?: string): void {
    this.add("delete-chains", { kind: "delete-chain", chain }, owner);
  }

  deleteSet(set: string, owner?: string): void {
    this.add("delete-sets", { kind: "delete-set", set }, owner);
  }

  /** Deletes a set or map that service ports share. */
  deleteSharedSet(set: string): void {
    this.add("delete-shared-sets", { kind: "delete-set", set });
  }

  /**
   * Merges changes of one key, whichever port requests them: when one service port gives up an address, and another
   * gets it and gives it up too, the kernel must see only one deletion.
   *
   * @throws Error for a set that is being filled.
   */
  changeElement(set: NftSet, { before, after }: ElementChange, owner?: string): void {
    if (this.#filling?.sets.has(set.name) === true) throw new Error(`set ${set.name} is filled already`);
    const { changes } = this.#changes.get(set.name) ?? { changes: new Map<string, OwnedChange>() };
    if (changes.size === 0) this.#changes.set(set.name, { set, changes });
    const key = elementKey((after ?? before)?.key ?? []);
    const earlier = changes.get(key);
    if (earlier === undefined) {
      if (!sameElement(before, after)) changes.set(key, { set: set.name, before, after, owner });
    } else if (after === undefined && !sameElement(earlier.after, before)) {
      // Another port already has this key, and its old owner gives it up only now.
      changes.set(key, { ...earlier, before });
    } else if (sameElement(earlier.before, after)) changes.delete(key);
    else changes.set(key, { set: set.name, before: earlier.before, after, owner });
  }

  /**
   * Fills empty sets; reads of the draft generate the elements: a first load has hundreds of thousands. Call it once.
   *
   * @param sets by name.
   * @param wanted must give the same elements while the draft is used; nothing else may change elements of these sets.
   */
  fillSets(sets: ReadonlyMap<string, NftSet>, wanted: () => Iterable<WantedElement>): void {
    for (const _any of wanted()) {
      this.#filling = { sets, wanted };
      return;
    }
  }

  /** The operations in execution order, generated one by one: there can be hundreds of thousands. */
  *operations(): Iterable<NftOperation> {
    // Iterating over #steps() would allocate one more object for each operation.
    for (const phase of PHASES) for (const { operation } of this.#stepsOf(phase)) yield operation;
  }

  /** The owner of an operation, by its index in {@link TransactionDraft.operations}. */
  ownerOf(index: number): string | undefined {
    return this.#stepAt(index)?.owner;
  }

  /** The service ports that own any operation. */
  owners(): Set<string> {
    const owners = new Set<string>();
    for (const { owner } of this.#steps()) if (owner !== undefined) owners.add(owner);
    return owners;
  }

  /** Whether it has an operation of a service port that is not among these, or, if none are given, any operation. */
  isForOthersThan(changed: ReadonlySet<string>): boolean {
    if (changed.size === 0) return !this.isEmpty;
    return [...this.owners()].some((owner) => !changed.has(owner));
  }

  /**
   * Removes the deletions of chains and sets from the draft. Chains are still emptied.
   *
   * @param offender index of the rejected deletion. For a chain, shared sets are still deleted: their elements may hold it.
   * @returns the deletions; undefined, with nothing done, if the operation is none.
   */
  withholdDeletions(offender: number): Deletion[] | undefined {
    const { kind } = this.#stepAt(offender)?.operation ?? {};
    if (kind !== "delete-chain" && kind !== "delete-set") return undefined;
    const isChain = kind === "delete-chain";
    const phases = [...(isChain ? [] : ["delete-shared-sets" as const]), "delete-chains", "delete-sets"] as const;
    const steps = phases.flatMap((phase) => this.#phases.get(phase) ?? []);
    for (const phase of phases) this.#phases.delete(phase);
    return steps.flatMap(({ operation }) =>
      operation.kind === "delete-chain" || operation.kind === "delete-set" ? [operation] : [],
    );
  }

  get isEmpty(): boolean {
    if (this.#phases.size > 0 || this.#filling !== undefined) return false;
    for (const { changes } of this.#changes.values()) if (changes.size > 0) return false;
    return true;
  }

  *#steps(): Iterable<Step> {
    for (const phase of PHASES) yield* this.#stepsOf(phase);
  }

  #stepsOf(phase: (typeof PHASES)[number]): Iterable<Step> {
    if (phase === "delete-elements") return this.#deletions();
    if (phase === "add-elements") return this.#additions();
    return this.#phases.get(phase) ?? [];
  }

  /** Consecutive keys of the same set and owner form one operation. */
  *#deletions(): Iterable<Step> {
    for (const { set, changes } of this.#changes.values()) {
      for (const { owner, items: keys } of runsOf(changes.values(), ({ before }) => before?.key)) {
        yield { owner, operation: { kind: "delete-elements", set, keys } };
      }
    }
  }

  /** Likewise for elements. */
  *#additions(): Iterable<Step> {
    for (const { set, changes } of this.#changes.values()) {
      for (const { owner, items: elements } of runsOf(changes.values(), ({ after }) => after)) {
        yield { owner, operation: { kind: "add-elements", set, elements } };
      }
    }
    const { sets, wanted } = this.#filling ?? {};
    for (const run of wanted === undefined ? [] : runsOf(wanted(), ({ element }) => element)) {
      const set = sets?.get(run.set);
      if (set === undefined) throw new Error(`set ${run.set} is not among those to be filled`);
      yield { owner: run.owner || undefined, operation: { kind: "add-elements", set, elements: run.items } };
    }
  }

  #stepAt(index: number): Step | undefined {
    let at = 0;
    for (const step of this.#steps()) if (at++ === index) return step;
    return undefined;
  }
}

/** Whether two elements need no change in the kernel: same value and comment. */
export function sameElement(a: NftElement | undefined, b: NftElement | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a.comment === b.comment && equalVerdicts(a.verdict, b.verdict) && equalTargets(a.target, b.target);
}

/** An operation and the service port that owns it; undefined if none does. */
interface Step {
  readonly owner: string | undefined;
  readonly operation: NftOperation;
}

/** Consecutive changes of one set for one owner. */
interface Run<T> {
  readonly set: string;
  readonly owner: string | undefined;
  readonly items: T[];
}

/** An element of a set, and the key of the service port that owns it; empty if none does. */
export interface WantedElement {
  readonly set: string;
  readonly owner: string;
  readonly element: NftElement;
}

interface OwnedChange extends ElementChange {
  readonly owner: string | undefined;
}

interface SetChanges {
  readonly set: NftSet;
  /** By key. */
  readonly changes: Map<string, OwnedChange>;
}

/** Groups the picked items: consecutive ones of the same set and owner form a run. */
function* runsOf<C extends { readonly set: string; readonly owner: string | undefined }, T>(
  changes: Iterable<C>,
  pick: (change: C) => T | undefined,
): Iterable<Run<T>> {
  let run: Run<T> | undefined;
  for (const change of changes) {
    const item = pick(change);
    if (item === undefined) continue;
    if (run !== undefined && run.owner === change.owner && run.set === change.set) run.items.push(item);
    else {
      if (run !== undefined) yield run;
      run = { set: change.set, owner: change.owner, items: [item] };
    }
  }
  if (run !== undefined) yield run;
}
