/**
 * One nf_tables table of one family. Two implementations, the kernel over netlink and an in-memory one, pass the same
 * contract test. This layer knows chains, rules, sets and elements, but nothing about Services.
 */
import type {
  NftChain,
  NftElement,
  NftFamily,
  NftHook,
  NftKeyType,
  NftRule,
  NftSet,
  NftTarget,
  NftValue,
} from "./ruleset.ts";

/** A chain without its rules. @param isThere whether the kernel has it already: it gets the policy. @default not known */
export type NftChainHead = Omit<NftChain, "rules"> & { readonly isThere?: true };

/** One step of a transaction. Adding an object that exists is no error if it is of the same kind. */
export type NftOperation =
  /** Also wakes an existing dormant table, unless `isDormant` is set. */
  | { readonly kind: "add-table"; readonly comment: string; readonly isDormant?: boolean }
  | { readonly kind: "delete-table" }
  /** An existing base chain gets the policy. */
  | { readonly kind: "add-chain"; readonly chain: NftChainHead }
  | { readonly kind: "flush-chain"; readonly chain: string }
  /** The chain must be empty, and nothing may refer to it. */
  | { readonly kind: "delete-chain"; readonly chain: string }
  /** Appends the rule. Chains and sets that it names must exist. */
  | {
      readonly kind: "add-rule";
      readonly chain: string;
      readonly rule: NftRule;
      /** The rule's `ruleDigest`, if already computed. */
      readonly digest?: string;
    }
  /** An existing counter keeps counting. */
  | { readonly kind: "add-counter"; readonly counter: string }
  /** No rule may refer to it. */
  | { readonly kind: "delete-counter"; readonly counter: string }
  | { readonly kind: "add-set"; readonly set: NftSet }
  | { readonly kind: "flush-set"; readonly set: NftSet }
  | { readonly kind: "delete-set"; readonly set: string }
  /** A key that exists with another verdict or target is an error: delete it first. */
  | { readonly kind: "add-elements"; readonly set: NftSet; readonly elements: readonly NftElement[] }
  | { readonly kind: "delete-elements"; readonly set: NftSet; readonly keys: readonly (readonly NftValue[])[] };

/** A chain's content in the kernel. This program's rules are identified by digests; other programs' rules have none. */
export interface NftChainContent {
  /** Undefined for a regular chain; "other" for a base chain of a kind that this program never creates. */
  readonly hook: NftHook | "other" | undefined;
  readonly ruleDigests: readonly (string | undefined)[];
  /** The chains to which the rules' last verdicts lead, in rule order, by their current names. @default none */
  readonly targets?: readonly string[];
}

/** A set's content in the kernel, without elements that packets added (sets with `timeoutSeconds`). */
export interface NftSetContent extends Pick<NftSet, "isMap" | "hasTargets" | "hasCounters"> {
  /** Undefined if the set has key types or properties that this program never uses. */
  readonly key: readonly NftKeyType[] | undefined;
  readonly timeoutSeconds: number | undefined;
  readonly elements: readonly NftElement[];
  /**
   * Only for a set that was compared ({@link NftExpectation}), with empty `elements`: what it has, if anything, at the keys where
   * it differs from what is expected. By {@link elementKey}.
   */
  readonly others?: ReadonlyMap<string, NftElement | undefined>;
}

/**
 * The expected contents of a table's sets. To list a large set, the kernel walks it from the start for each message; querying each
 * expected element is faster, if the kernel tells how many there are. In maps with targets, only the first comment of consecutive
 * elements with the same comment may be compared: they belong together.
 */
export interface NftExpectation {
  /** Sets that may be compared instead of listed, by name. None has ranges or is filled by packets. */
  readonly sets: ReadonlyMap<string, NftSet>;
  /** All expected elements of the given sets; no key of a set twice. */
  elements(sets: { has(set: string): boolean }): Iterable<{ readonly set: string; readonly element: NftElement }>;
}

/** A whole table, read in one consistent generation. */
export interface NftTableContent {
  /** The ruleset's generation when this was read. */
  readonly generation: number;
  /** Whether the table is switched off: none of its rules apply. */
  readonly isDormant: boolean;
  /** Whether it has flags that this program never sets, such as that of a table owned by a process. */
  readonly hasOtherFlags: boolean;
  readonly chains: ReadonlyMap<string, NftChainContent>;
  readonly sets: ReadonlyMap<string, NftSetContent>;
  /** Packets by counter name. */
  readonly counters: ReadonlyMap<string, number>;
}

/** A point in the ruleset's history. */
export interface NftMark {
  readonly generation: number;
  /** The number of this process's commits so far. */
  readonly commits: number;
}

/** Another program's change to the table. */
export interface NftForeignChange {
  /** The ruleset's generation after the change. */
  readonly generation: number;
  /** Chains that were added, changed or deleted, or whose rules were. */
  readonly chains: ReadonlySet<string>;
  /** Sets that were added, changed or deleted, or whose elements were; elements are not listed. */
  readonly sets: ReadonlySet<string>;
  /** The chains and sets among them that were added or redefined: they may be of another kind now. */
  readonly defined: ReadonlySet<string>;
  /** The table itself was changed or deleted, or notifications were lost: anything may have changed. */
  readonly isTotal: boolean;
  /** The process that made the change, if the kernel tells it. */
  readonly by: { readonly pid: number; readonly name: string } | undefined;
}

/** A base chain, or a whole table, was registered with the kernel, or perhaps only changed. */
export interface ChainEvent {
  /** `family name` */
  readonly table: string;
  /** @default all base chains that the table has */
  readonly chain?: string | undefined;
  /** The chain's, or the table's. Those of this process have none. */
  readonly handle?: number | undefined;
  /** Whether it was registered. */
  readonly isCertain: boolean;
}

/** What was seen, the oldest first. Base chains that it does not name are older. */
export interface ChainHistory {
  /** The generation of the last event. */
  readonly since: number;
  /** Everything up to this generation is known. */
  readonly until: number;
  readonly events: readonly ChainEvent[];
}

export interface NftTransactOptions {
  /** Rejects with `conflict` if the table may have changed since this generation. */
  readonly generation?: number | undefined;
}

export interface Nftables {
  readonly family: NftFamily;
  /**
   * Carries out the operations in order, all or none. Throws {@link NftError}.
   *
   * @param operations iterated with turns of the event loop in between: they must not change meanwhile. Overlapping transactions are
   * carried out in the order in which their encoding finishes.
   */
  transact(operations: Iterable<NftOperation>, options?: NftTransactOptions): Promise<void>;
  /** Reads the table; undefined if there is none. @param expected sets that may be compared. @default none */
  read(expected?: NftExpectation): Promise<NftTableContent | undefined>;
  /** The current mark, for {@link Nftables.generationIfUntouched}. */
  mark(): Promise<NftMark>;
  /**
   * The current generation, if no other program has touched the table since the mark, so that all its changes since are this
   * process's own. Undefined otherwise, or if that is not certain.
   */
  generationIfUntouched(mark: NftMark): Promise<number | undefined>;
  /** Reads the elements of one set, including those that packets added; undefined if there is no such set. */
  readElements(set: NftSet): Promise<readonly NftElement[] | undefined>;
  /** Those of these sets that have an element that catches all keys. */
  withCatchAll(sets: Iterable<NftSet>): Promise<readonly NftSet[]>;
  /** Where the rules of these chains translate destinations to; chains without such a rule, or that are gone, are left out. */
  readTargets(chains: Iterable<string>): Promise<ReadonlyMap<string, readonly NftTarget[]>>;
  /** The packets of each named counter; empty if there is no table. */
  readCounters(): Promise<ReadonlyMap<string, number>>;
  /** Calls `onChange` for other programs' changes until the signal aborts. Rejects if watching fails. */
  watch(onChange: (change: NftForeignChange) => void, signal: AbortSignal): Promise<void>;
  /** What was seen of the base chains of all tables while the table was watched. @default not known */
  chainHistory?(): Promise<ChainHistory | undefined>;
}

export type NftErrorCode =
  /** The operation names something that does not exist. */
  | "not_found"
  | "exists"
  /** Something still refers to it. */
  | "busy"
  /** The generation has changed. */
  | "conflict"
  /** No CAP_NET_ADMIN. */
  | "denied"
  /** The kernel lacks an expression or a feature. */
  | "unsupported"
  | "too_large"
  | "failed";

/** The kernel rejected a transaction and applied nothing of it. */
export class NftError extends Error {
  override readonly name = "NftError";
  readonly code: NftErrorCode;
  /** The index of the rejected operation, if the kernel named one. */
  readonly operation: number | undefined;
  constructor(code: NftErrorCode, message: string, operation: number | undefined, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.operation = operation;
  }
}
