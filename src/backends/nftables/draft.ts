/**
 * A transaction under construction. Every operation remembers on whose behalf it is done, and takes its place by phase:
 * what is referred to comes before what refers to it, and is removed after. Pure data.
 */
import type { NftOperation } from "../../kernel/nftables/nftables.ts";
import type { NftChain, NftElement, NftSet } from "../../kernel/nftables/ruleset.ts";
import type { ElementChange } from "./element-claims.ts";

const PHASES = [
  "table",
  "add-sets",
  "add-chains",
  "add-rules",
  "delete-elements",
  "add-elements",
  "flush-chains",
  "delete-chains",
  "delete-sets",
] as const;

type Phase = (typeof PHASES)[number];

interface Step {
  /** Key of a service port; undefined for what belongs to none. */
  readonly owner: string | undefined;
  readonly operation: NftOperation;
}

export class TransactionDraft {
  readonly #steps: Record<Phase, Step[]>;

  constructor() {
    this.#steps = Object.fromEntries(PHASES.map((phase) => [phase, [] as Step[]])) as Record<Phase, Step[]>; // every phase is there
  }

  add(phase: Phase, operation: NftOperation, owner?: string): void {
    this.#steps[phase].push({ owner, operation });
  }

  /** A chain with exactly these rules, whatever it had before. */
  writeChain(chain: NftChain, exists: boolean, owner?: string): void {
    const { rules, ...head } = chain;
    if (exists) this.add("add-chains", { kind: "flush-chain", chain: chain.name }, owner);
    else this.add("add-chains", { kind: "add-chain", chain: head }, owner);
    for (const rule of rules) this.add("add-rules", { kind: "add-rule", chain: chain.name, rule }, owner);
  }

  removeChain(chain: string, owner?: string): void {
    this.add("flush-chains", { kind: "flush-chain", chain }, owner);
    this.add("delete-chains", { kind: "delete-chain", chain }, owner);
  }

  changeElements(set: NftSet, changes: readonly ElementChange[], owner?: string): void {
    const keys = changes.flatMap(({ before }) => (before === undefined ? [] : [before.key]));
    const elements: NftElement[] = changes.flatMap(({ after }) => (after === undefined ? [] : [after]));
    if (keys.length > 0) this.add("delete-elements", { kind: "delete-elements", set, keys }, owner);
    if (elements.length > 0) this.add("add-elements", { kind: "add-elements", set, elements }, owner);
  }

  /** The operations in the order in which they are carried out. */
  operations(): NftOperation[] {
    return this.#ordered().map(({ operation }) => operation);
  }

  /** On whose behalf an operation of {@link TransactionDraft.operations} is done. */
  ownerOf(index: number): string | undefined {
    return this.#ordered()[index]?.owner;
  }

  get size(): number {
    return PHASES.reduce((sum, phase) => sum + this.#steps[phase].length, 0);
  }

  #ordered(): Step[] {
    return PHASES.flatMap((phase) => this.#steps[phase]);
  }
}
