/**
 * A transaction under construction. Every operation remembers on whose behalf it is done, and takes its place by phase:
 * what is referred to comes before what refers to it, and is removed after. Pure data.
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

/** The known state of a chain that will be written. */
export type ChainPresence = "absent" | "empty" | "filled" | "unknown";

/** A deletion that can be put off: nothing refers to the object as far as this program goes. */
export type Deletion = Extract<NftOperation, { readonly kind: "delete-chain" | "delete-set" }>;

export class TransactionDraft {
  readonly #phases = new Map<Phase, Step[]>();
  /** By set, in the order of first use. */
  readonly #changes = new Map<string, SetChanges>();
  #filling: Filling | undefined;

  add(phase: Phase, operation: NftOperation, owner?: string): void {
    const steps = this.#phases.get(phase);
    if (steps === undefined) this.#phases.set(phase, [{ owner, operation }]);
    else steps.push({ owner, operation });
  }

  /** A chain with exactly these rules. @param digest that of `digestOf`, where it is known. */
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

  /** A set or map that service ports share. */
  deleteSharedSet(set: string): void {
    this.add("delete-shared-sets", { kind: "delete-set", set });
  }

  /**
   * At most one change for each key, whichever port asks for it: when one service port gives up an address and another first gets it
   * and then gives it up too, the kernel must see one deletion only.
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
      // Another port has got this key already, and its old owner gives it up only now.
      changes.set(key, { ...earlier, before });
    } else if (sameElement(earlier.before, after)) changes.delete(key);
    else changes.set(key, { set: set.name, before: earlier.before, after, owner });
  }

  /**
   * All elements of sets that have none, made whenever the draft is read: a first load has hundreds of thousands. Once only.
   *
   * @param sets by name.
   * @param wanted gives the same as long as the draft is in use; nothing else may change elements of these sets.
   */
  fillSets(sets: ReadonlyMap<string, NftSet>, wanted: () => Iterable<WantedElement>): void {
    for (const _any of wanted()) {
      this.#filling = { sets, wanted };
      return;
    }
  }

  /** The operations in the order in which they are carried out, made one by one: there can be hundreds of thousands. */
  *operations(): Iterable<NftOperation> {
    // A walk over steps would make one more object for each of hundreds of thousands.
    for (const phase of PHASES) for (const { operation } of this.#stepsOf(phase)) yield operation;
  }

  /** On whose behalf an operation of {@link TransactionDraft.operations} is done. */
  ownerOf(index: number): string | undefined {
    return this.#stepAt(index)?.owner;
  }

  /** Service ports for which anything is done. */
  owners(): Set<string> {
    const owners = new Set<string>();
    for (const { owner } of this.#steps()) if (owner !== undefined) owners.add(owner);
    return owners;
  }

  /** Whether it is known to do anything but for these service ports. */
  isForOthersThan(changed: ReadonlySet<string>): boolean {
    if (changed.size === 0) return !this.isEmpty;
    return [...this.owners()].some((owner) => !changed.has(owner));
  }

  /** Whether the operation deletes something that may still be referred to by others. */
  isDeletion(index: number): boolean {
    const kind = this.#stepAt(index)?.operation.kind;
    return kind === "delete-chain" || kind === "delete-set";
  }

  /**
   * Leaves deletions of chains and sets out. Chains are emptied nevertheless.
   *
   * @param offender index of the one that was refused. Where that is a chain, shared sets go: it may be their elements that hold it.
   * @returns the deletions.
   */
  withholdDeletions(offender: number): Deletion[] {
    const isChain = this.#stepAt(offender)?.operation.kind === "delete-chain";
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

  /** Keys of one set that follow each other for the same owner are one operation. */
  *#deletions(): Iterable<Step> {
    for (const { set, changes } of this.#changes.values()) {
      for (const { owner, items: keys } of runsOf(changes.values(), ({ before }) => before?.key)) {
        yield { owner, operation: { kind: "delete-elements", set, keys } };
      }
    }
  }

  /** Likewise. */
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

/** Whether the kernel needs no change from one to the other: same value and comment. Pure. */
export function sameElement(a: NftElement | undefined, b: NftElement | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a.comment === b.comment && equalVerdicts(a.verdict, b.verdict) && equalTargets(a.target, b.target);
}

/** An operation and the service port on whose behalf it is done; undefined for what belongs to none. */
interface Step {
  readonly owner: string | undefined;
  readonly operation: NftOperation;
}

/** Neighbouring changes of one set for one owner. */
interface Run<T> {
  readonly set: string;
  readonly owner: string | undefined;
  readonly items: T[];
}

/** An element of a set, and the key of the service port that it is for; empty when it is for none. */
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

/** All elements of sets that have none. */
interface Filling {
  readonly sets: ReadonlyMap<string, NftSet>;
  readonly wanted: () => Iterable<WantedElement>;
}

/** Groups the picked items: neighbours of one set and one owner are one run. */
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
