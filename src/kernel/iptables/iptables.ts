/**
 * The iptables tools of one family: reference iptables-operation.md §10. Both implementations, the host's binaries
 * (`exec-iptables.ts`) and an in-memory kernel (`memory-iptables.ts`), pass the same contract test. Knows tables,
 * chains and rule text, but not Services.
 */
import type { IpFamily } from "../../net/ip.ts";

export type IptablesTable = "filter" | "nat" | "mangle";

export type BuiltInChain = "PREROUTING" | "INPUT" | "FORWARD" | "OUTPUT" | "POSTROUTING";

/** Chains that exist in every kernel, in the order in which `iptables-save` prints them. */
export const BUILT_IN_CHAINS: Readonly<Record<IptablesTable, readonly BuiltInChain[]>> = {
  filter: ["INPUT", "FORWARD", "OUTPUT"],
  nat: ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
  mangle: ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
};

/** Result of a check; `unknown` if, for example, the xtables lock was held (exit status 4). */
export type Presence = "present" | "absent" | "unknown";

/** Where to add a new rule. @default "head" */
export type RulePosition = "head" | "end";

export interface Iptables {
  readonly family: IpFamily;
  /**
   * Whether many small transactions are much faster than a large one: with the nft back end, the time of the restore
   * command grows with the square of the chains that one transaction names (docs/performance.md).
   */
  readonly prefersSmallTransactions: boolean;
  /** Creates the chain if missing. Throws {@link IptablesError}. */
  ensureChain(table: IptablesTable, chain: string): Promise<void>;
  chainPresence(table: IptablesTable, chain: string): Promise<Presence>;
  deleteChain(table: IptablesTable, chain: string): Promise<void>;
  /**
   * Adds the rule at the head or the end of the chain, unless the chain already has it anywhere. `args` are match and
   * target words, unquoted.
   */
  ensureRule(table: IptablesTable, chain: string, args: readonly string[], position?: RulePosition): Promise<void>;
  /** Checks for a rule (`-C`); a missing chain counts as absent. `args` as for {@link Iptables.ensureRule}. */
  rulePresence(table: IptablesTable, chain: string, args: readonly string[]): Promise<Presence>;
  /** Deletes the rule if the chain has it; a missing chain or rule is no error. */
  deleteRule(table: IptablesTable, chain: string, args: readonly string[]): Promise<void>;
  chainNames(table: IptablesTable): Promise<readonly string[]>;
  /**
   * For every chain of a table, the number of its rules plus rules that jump to it. The cheapest way to read a whole
   * table: the nft back end reads no rule.
   */
  chainUses(table: IptablesTable): Promise<ReadonlyMap<string, number>>;
  /** The number of rules in a chain; 0 if the chain does not exist. */
  ruleCount(table: IptablesTable, chain: string): Promise<number>;
  /**
   * Differs after every change of the ruleset by any program, including this one; undefined where the kernel does not
   * count changes (the legacy back end).
   */
  generation(): Promise<number | undefined>;
  /** The output of `iptables-save -t TABLE`; without a table, of all existing tables. Also throws code `unreadable`. */
  save(table?: IptablesTable): Promise<string>;
  /**
   * Feeds `iptables-restore --noflush --counters`. Each table of the payload is one transaction: all of it or nothing;
   * tables before a rejected one stay committed. Throws {@link IptablesRestoreError}.
   *
   * @param payload text chunks, written in order; each must end with a newline.
   * @param options `table` restricts the restore to one table (`-T`).
   */
  restore(payload: Iterable<string>, options?: { readonly table?: IptablesTable }): Promise<void>;
}

/**
 * `not_started`: the host had no memory, process or descriptor left for the tool. `killed`: by a signal from outside,
 * for example from the kernel's OOM killer. `unreadable`: `nft` has added something that the save command does not
 * know, so it prints nothing of the table; all other commands work.
 */
export type IptablesErrorCode =
  | "missing_tool"
  | "not_started"
  | "killed"
  | "lock_held"
  | "not_found"
  | "unreadable"
  | "failed";

/** Errors for which no rule is to blame. */
const NO_RULES_FAULT: ReadonlySet<IptablesErrorCode> = new Set(["missing_tool", "not_started", "killed", "lock_held"]);

/** A command of the iptables family failed. */
export class IptablesError extends Error {
  override readonly name: string = "IptablesError";
  readonly code: IptablesErrorCode;
  /** Exit status, or -1 if the process could not start or was killed. */
  readonly status: number;
  /** The tool's standard error, trimmed. */
  readonly output: string;
  constructor(code: IptablesErrorCode, command: string, status: number, output: string, options?: ErrorOptions) {
    super(`${command}: exit status ${status}: ${output === "" ? "no output" : output}`, options);
    this.code = code;
    this.status = status;
    this.output = output;
  }
}

/** iptables-restore failed; the kernel has nothing of the failing table's transaction. */
export class IptablesRestoreError extends IptablesError {
  override readonly name = "IptablesRestoreError";
  /** 1-based line of the payload that the tool named; undefined if it named none or a COMMIT line. */
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

/** Whether a table is unreadable as it is, so that a retry cannot help. */
export function isUnreadable(error: unknown): boolean {
  return error instanceof IptablesError && error.code === "unreadable";
}

/** Whether single rules may have caused the failure, so that leaving them out can help. */
export function isAttributable(error: unknown): error is IptablesRestoreError {
  return error instanceof IptablesRestoreError && !NO_RULES_FAULT.has(error.code);
}
