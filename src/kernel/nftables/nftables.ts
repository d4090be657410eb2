/**
 * One nf_tables table of one family as the program sees it. Two implementations, the kernel over netlink and an in-memory
 * one, pass one contract test. Knows chains, rules, sets and elements; knows nothing of Services.
 */
import type { NftChain, NftElement, NftFamily, NftHook, NftKeyType, NftRule, NftSet, NftValue } from "./ruleset.ts";

/** A chain without its rules. */
export type NftChainHead = Omit<NftChain, "rules">;

/** One step of a transaction. Adding what exists is no error, as long as it is the same kind of thing. */
export type NftOperation =
  /** A table that is there and dormant works from then on, unless the operation is to make it dormant. */
  | { readonly kind: "add-table"; readonly comment: string; readonly isDormant?: boolean }
  | { readonly kind: "delete-table" }
  /** A base chain that is there gets the policy. */
  | { readonly kind: "add-chain"; readonly chain: NftChainHead }
  | { readonly kind: "flush-chain"; readonly chain: string }
  /** The chain must be empty and nothing may refer to it any more. */
  | { readonly kind: "delete-chain"; readonly chain: string }
  /** Appends. Chains and sets that the rule names must exist. */
  | {
      readonly kind: "add-rule";
      readonly chain: string;
      readonly rule: NftRule;
      /** The rule's `ruleDigest`, where it is known already. */
      readonly digest?: string;
      /** A text that no listing shows, at most 200 bytes. */
      readonly note?: string;
    }
  /** That it counts already is no error: it goes on. */
  | { readonly kind: "add-counter"; readonly counter: string }
  /** No rule may name it any more. */
  | { readonly kind: "delete-counter"; readonly counter: string }
  | { readonly kind: "add-set"; readonly set: NftSet }
  | { readonly kind: "flush-set"; readonly set: NftSet }
  | { readonly kind: "delete-set"; readonly set: string }
  /** A key that is there with another verdict is an error: delete it first. */
  | { readonly kind: "add-elements"; readonly set: NftSet; readonly elements: readonly NftElement[] }
  | { readonly kind: "delete-elements"; readonly set: NftSet; readonly keys: readonly (readonly NftValue[])[] };

/** What the kernel holds of a chain. A rule that this program wrote is known by its digest; a foreign one has none. */
export interface NftChainContent {
  /** Undefined for a regular chain; "other" for a base chain of a kind that this program never makes. */
  readonly hook: NftHook | "other" | undefined;
  readonly ruleDigests: readonly (string | undefined)[];
  /** The chains that rules go to in the end, in the order of the rules, by the names that they have now. @default none */
  readonly targets?: readonly string[];
}

/** What the kernel holds of a set. Elements that packets made are left out (`timeoutSeconds` sets). */
export interface NftSetContent {
  /** Undefined when it is not made of types that this program uses, or has properties that it never gives. */
  readonly key: readonly NftKeyType[] | undefined;
  readonly isMap: boolean;
  /** As {@link NftSet} has them. */
  readonly hasTargets?: true;
  readonly hasCounters?: true;
  readonly timeoutSeconds: number | undefined;
  readonly elements: readonly NftElement[];
  /**
   * Instead of `elements`, which is empty then, where the set was compared ({@link NftExpectation}): what it has at the keys at
   * which it has something else than what is expected, or nothing. By {@link elementKey}.
   */
  readonly others?: ReadonlyMap<string, NftElement | undefined>;
}

/**
 * What the sets of a table should have. The kernel lists a large set from its start again and again; to ask for each element that
 * should be there is quicker where it says how many there are. Of elements of a map with targets that follow each other with the same
 * comment, it may be that only the first one's comment is looked at: they belong together.
 */
export interface NftExpectation {
  /** Sets that may be compared and need not be listed, by name. None has ranges or is filled by packets. */
  readonly sets: ReadonlyMap<string, NftSet>;
  /** All elements that some of the sets should have; no key of a set twice. */
  elements(sets: { has(set: string): boolean }): Iterable<{ readonly set: string; readonly element: NftElement }>;
}

/** A whole table, read in one consistent generation. */
export interface NftTableContent {
  /** Generation of the ruleset that this was read in. */
  readonly generation: number;
  /** Whether it is switched off: nothing in it is in force. */
  readonly isDormant: boolean;
  /** Whether it has flags that this program never gives, such as those of a table that belongs to one process. */
  readonly hasOtherFlags: boolean;
  readonly chains: ReadonlyMap<string, NftChainContent>;
  readonly sets: ReadonlyMap<string, NftSetContent>;
  /** Packets by the name of the counter. */
  readonly counters: ReadonlyMap<string, number>;
}

/** A moment of the ruleset. */
export interface NftMark {
  readonly generation: number;
  /** Commits of this process until then. */
  readonly commits: number;
}

/** A change that another program made to the table. */
export interface NftForeignChange {
  /** The ruleset's, which the change made. */
  readonly generation: number;
  /** Chains whose rules were touched, or that were deleted. */
  readonly chains: ReadonlySet<string>;
  /** Sets that were touched; elements are not listed. */
  readonly sets: ReadonlySet<string>;
  /** Those among the chains and sets that were made or defined again: they may be of another kind now. */
  readonly defined: ReadonlySet<string>;
  /** The table itself was changed or deleted, or notifications were lost: anything may have changed. */
  readonly isTotal: boolean;
  /** The process that did it, where the kernel says so. */
  readonly by: { readonly pid: number; readonly name: string } | undefined;
}

/** How a transaction is carried out. */
export interface NftTransactOptions {
  /** Refuse with `conflict` when the ruleset is not in this generation any more. */
  readonly generation?: number | undefined;
}

export interface Nftables {
  readonly family: NftFamily;
  /**
   * Carries out the operations in order, all or none. Throws {@link NftError}.
   *
   * @param operations taken one by one, with turns of the event loop in between: they must not change meanwhile. Of transactions that
   * overlap, the one that is encoded first is carried out first.
   */
  transact(operations: Iterable<NftOperation>, options?: NftTransactOptions): Promise<void>;
  /** Reads the table; undefined when there is none. @param expected sets that may be compared. @default none */
  read(expected?: NftExpectation): Promise<NftTableContent | undefined>;
  /** Notes the moment, for {@link Nftables.generationIfUntouched}. */
  mark(): Promise<NftMark>;
  /**
   * The generation now, if no other program has touched the table since the mark: then what this process has done since is
   * all that has changed in it. Undefined otherwise, or when that is not certain.
   */
  generationIfUntouched(mark: NftMark): Promise<number | undefined>;
  /** Reads the elements of one set, whether packets fill it or not; undefined when there is no set of this name. */
  readElements(set: NftSet): Promise<readonly NftElement[] | undefined>;
  /** The packets of each counter that rules can name; none where there is no table. */
  readCounters(): Promise<ReadonlyMap<string, number>>;
  /** Calls `onChange` for changes that others commit, until the signal aborts. Rejects when it cannot watch (any more). */
  watch(onChange: (change: NftForeignChange) => void, signal: AbortSignal): Promise<void>;
}

export type NftErrorCode =
  /** Something that the operation names does not exist. */
  | "not_found"
  | "exists"
  /** Still referred to. */
  | "busy"
  /** The generation has moved on. */
  | "conflict"
  /** No CAP_NET_ADMIN. */
  | "denied"
  /** The kernel lacks an expression or a feature. */
  | "unsupported"
  | "too_large"
  | "failed";

/** A transaction was refused; nothing of it is in the kernel. */
export class NftError extends Error {
  override readonly name = "NftError";
  readonly code: NftErrorCode;
  /** Index of the operation that was refused, where the kernel named one. */
  readonly operation: number | undefined;
  constructor(code: NftErrorCode, message: string, operation: number | undefined, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.operation = operation;
  }
}
