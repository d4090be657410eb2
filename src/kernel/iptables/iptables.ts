/**
 * The iptables tools of one family as the program sees them: reference iptables-operation.md §10. Two implementations, the
 * host's own binaries (`exec-iptables.ts`) and an in-memory kernel (`memory-iptables.ts`), pass one contract test.
 * Knows tables, chains and rule text; knows nothing of Services.
 */
import type { IpFamily } from "../../net/ip.ts";

export type IptablesTable = "filter" | "nat" | "mangle";

export type BuiltInChain = "PREROUTING" | "INPUT" | "FORWARD" | "OUTPUT" | "POSTROUTING";

/** The chains that every kernel has, in the order in which `iptables-save` prints them. */
export const BUILT_IN_CHAINS: Readonly<Record<IptablesTable, readonly BuiltInChain[]>> = {
  filter: ["INPUT", "FORWARD", "OUTPUT"],
  nat: ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
  mangle: ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
};

/** Answer of a test that may be prevented by the xtables lock (exit status 4). */
export type Presence = "present" | "absent" | "unknown";

/** Where a new rule goes. @default "head" */
export type RulePosition = "head" | "end";

export interface Iptables {
  readonly family: IpFamily;
  /**
   * The restore command takes time with the square of the chains that one transaction names (the nft back end,
   * docs/performance.md), so that many small transactions are much faster than a large one.
   */
  readonly prefersSmallTransactions: boolean;
  /** Creates the chain if missing. Throws {@link IptablesError}. */
  ensureChain(table: IptablesTable, chain: string): Promise<void>;
  chainPresence(table: IptablesTable, chain: string): Promise<Presence>;
  deleteChain(table: IptablesTable, chain: string): Promise<void>;
  /**
   * Puts the rule at the head of the chain, or at its end, unless the chain has it somewhere. `args` has match and target
   * words, unquoted.
   */
  ensureRule(table: IptablesTable, chain: string, args: readonly string[], position?: RulePosition): Promise<void>;
  /** Tests for a rule (`-C`); a missing chain answers absent. `args` as for {@link Iptables.ensureRule}. */
  rulePresence(table: IptablesTable, chain: string, args: readonly string[]): Promise<Presence>;
  /** Deletes the rule if the chain has it; a missing chain or rule is no error. */
  deleteRule(table: IptablesTable, chain: string, args: readonly string[]): Promise<void>;
  chainNames(table: IptablesTable): Promise<readonly string[]>;
  /**
   * For every chain of a table, the number of rules in it and of rules that go to it. The cheapest look at a whole table:
   * on the nft back end no rule is read.
   */
  chainUses(table: IptablesTable): Promise<ReadonlyMap<string, number>>;
  /** The number of rules in a chain; 0 also when there is no such chain. */
  ruleCount(table: IptablesTable, chain: string): Promise<number>;
  /**
   * Another number after every change of the ruleset by anybody, this program included; undefined where the kernel does
   * not count (the legacy back end).
   */
  generation(): Promise<number | undefined>;
  /** The text of `iptables-save -t TABLE`; without a table, of all those that exist. Throws with code `unreadable`, too. */
  save(table?: IptablesTable): Promise<string>;
  /**
   * Feeds `iptables-restore --noflush --counters`. Each table of the payload is one transaction: all of it or nothing;
   * tables before a refused one stay committed. Throws {@link IptablesRestoreError}.
   *
   * @param payload text chunks, written in order; a chunk ends at a line end.
   * @param options `table` restricts to one table (`-T`).
   */
  restore(payload: Iterable<string>, options?: { readonly table?: IptablesTable }): Promise<void>;
}

/**
 * `not_started`: the host had no memory, process or descriptor left for the tool. `killed`: from outside, such as by the kernel for want
 * of memory. `unreadable`: `nft` has put something into the table that the save command does not know, so that it prints nothing of it;
 * all other commands work.
 */
export type IptablesErrorCode =
  | "missing_tool"
  | "not_started"
  | "killed"
  | "lock_held"
  | "not_found"
  | "unreadable"
  | "failed";

/** What no rule is to blame for. */
const NO_RULES_FAULT: ReadonlySet<IptablesErrorCode> = new Set(["missing_tool", "not_started", "killed", "lock_held"]);

/** A command of the iptables family failed. */
export class IptablesError extends Error {
  override readonly name: string = "IptablesError";
  readonly code: IptablesErrorCode;
  /** Exit status, or -1 when the process could not start or was killed. */
  readonly status: number;
  /** Everything the tool printed on standard error, trimmed. */
  readonly output: string;
  constructor(code: IptablesErrorCode, command: string, status: number, output: string, options?: ErrorOptions) {
    super(`${command}: exit status ${status}: ${output === "" ? "no output" : output}`, options);
    this.code = code;
    this.status = status;
    this.output = output;
  }
}

/** iptables-restore refused a payload; nothing of the failing table is in the kernel. */
export class IptablesRestoreError extends IptablesError {
  override readonly name = "IptablesRestoreError";
  /** 1-based line of the payload that the tool named, where it named one other than a COMMIT line. */
  readonly line: number | undefined;
  constructor(
    code: IptablesErrorCode,
    command: string,
    status: number,
    output: string,
    line: number | undefined,
    options?: ErrorOptions,
  ) {
    super(code, command, status, output, options);
    this.line = line;
  }
}

/** Whether a table could not be read, and never can be as it is. */
export function isUnreadable(error: unknown): boolean {
  return error instanceof IptablesError && error.code === "unreadable";
}

/** Whether a failure may be the fault of single rules, so that leaving them out can help. */
export function isAttributable(error: unknown): error is IptablesRestoreError {
  return error instanceof IptablesRestoreError && !NO_RULES_FAULT.has(error.code);
}
