/**
 * The host's iptables tools of one family behind {@link Iptables}: command lines, waiting for the xtables lock, and what
 * exit statuses mean (reference iptables.md §10). Knows tables, chains and rule text; nothing of Services.
 */

import { Mutex } from "../../async/mutex.ts";
import type { Logger } from "../../logging/logger.ts";
import type { IpFamily } from "../../net/ip.ts";
import { type Exec, ExecError, type ExecOptions, type ExecResult } from "../process.ts";
import {
  backEndOf,
  capabilitiesOf,
  type IptablesCapabilities,
  NO_CAPABILITIES,
  needsNoRestoreProbe,
  parseVersion,
} from "./capabilities.ts";
import { chainUsesOf } from "./chain-uses.ts";
import { CommitLines, commandError, errorCodeOf, restoreError } from "./command-errors.ts";
import {
  type Iptables,
  IptablesError,
  IptablesRestoreError,
  type IptablesTable,
  type Presence,
  type RulePosition,
} from "./iptables.ts";
import { chainsOf } from "./saved-chains.ts";

/** Names or paths of the three programs of a family. */
export interface IptablesBinaries {
  readonly rule: string;
  readonly save: string;
  readonly restore: string;
}

/** What the host calls its default back end. */
export const DEFAULT_BINARIES: Readonly<Record<IpFamily, IptablesBinaries>> = {
  IPv4: { rule: "iptables", save: "iptables-save", restore: "iptables-restore" },
  IPv6: { rule: "ip6tables", save: "ip6tables-save", restore: "ip6tables-restore" },
};

/** The programs of one particular back end: `iptables-legacy`, `iptables-legacy-save`, … Pure. */
export function binariesOf(family: IpFamily, backEnd: "legacy" | "nft"): IptablesBinaries {
  const rule = `${DEFAULT_BINARIES[family].rule}-${backEnd}`;
  return { rule, save: `${rule}-save`, restore: `${rule}-restore` };
}

export interface ExecIptablesOptions {
  readonly family: IpFamily;
  readonly exec: Exec;
  readonly log: Logger;
  /** @default the host's plain names, {@link DEFAULT_BINARIES} */
  readonly binaries?: IptablesBinaries;
  /** Lock file that is taken for restore commands too old to do so themselves. @default "/run/xtables.lock" */
  readonly lockPath?: string;
  /**
   * Lists the chains of a table without the tools, for the nft back end, whose save command is very slow with many chains.
   * @default the save command
   */
  readonly listNftChains?: (family: IpFamily, table: IptablesTable) => Promise<readonly string[]>;
  /** Reads rules of the nft back end without the tools. @default the save command */
  readonly nftReader?: () => Promise<NftReader>;
}

/** What nf_tables says of an iptables table (`nft-chains.ts`). */
export interface NftReader {
  nftChainUses(family: IpFamily, table: IptablesTable): Promise<ReadonlyMap<string, number>>;
  countNftRules(family: IpFamily, table: IptablesTable, chain: string): Promise<number>;
  nftGeneration(): Promise<number | undefined>;
}

/** A rule command that takes longer is taken for hung. */
const RULE_TIMEOUT_MS = 5 * 60_000;

/**
 * Finds out what the host's tools can do and wraps them. Never rejects: without tools every later operation fails with
 * `missing_tool`, so that one family's absence does not stop the other.
 */
export async function createIptables(options: ExecIptablesOptions): Promise<Iptables> {
  const binaries = options.binaries ?? DEFAULT_BINARIES[options.family];
  const capabilities = await probe(options, binaries);
  return new ExecIptables(options, binaries, capabilities);
}

/**
 * Whether this host can program the family at all: the tool exists and the kernel has its nat table. Never rejects.
 * Reference iptables.md §10.1.
 */
export async function isIptablesPresent(options: ExecIptablesOptions): Promise<boolean> {
  const binaries = options.binaries ?? DEFAULT_BINARIES[options.family];
  const { waitArgs } = await probe(options, binaries);
  try {
    const args = [...waitArgs, "-S", "POSTROUTING", "-t", "nat"];
    const { status, stderr } = await options.exec(binaries.rule, args, { timeoutMs: RULE_TIMEOUT_MS });
    if (status !== 0)
      options.log.v(2, "iptables is not usable", { command: binaries.rule, status, output: stderr.trim() });
    return status === 0;
  } catch (error) {
    options.log.v(2, "iptables is not usable", { command: binaries.rule, err: error });
    return false;
  }
}

async function probe({ exec, log }: ExecIptablesOptions, binaries: IptablesBinaries): Promise<IptablesCapabilities> {
  try {
    const { stdout } = await exec(binaries.rule, ["--version"], { timeoutMs: RULE_TIMEOUT_MS });
    const version = parseVersion(stdout);
    if (version === undefined) {
      log.warn("Could not find out the version of iptables, assuming the oldest", {
        command: binaries.rule,
        output: stdout,
      });
      return NO_CAPABILITIES;
    }
    log.v(2, "Found iptables", { command: binaries.rule, version: stdout.trim() });
    if (needsNoRestoreProbe(version)) return capabilitiesOf(version, true, backEndOf(stdout));
    const restore = await exec(binaries.restore, ["--version"], { stdin: [], timeoutMs: RULE_TIMEOUT_MS });
    return capabilitiesOf(version, parseVersion(restore.stdout) !== undefined);
  } catch (error) {
    log.warn("Could not run iptables", { command: binaries.rule, err: error });
    return NO_CAPABILITIES;
  }
}

class ExecIptables implements Iptables {
  readonly family: IpFamily;
  readonly hasRandomFully: boolean;
  readonly prefersSmallTransactions: boolean;
  readonly #exec: Exec;
  readonly #log: Logger;
  readonly #binaries: IptablesBinaries;
  readonly #capabilities: IptablesCapabilities;
  readonly #lockPath: string;
  readonly #listNftChains: ExecIptablesOptions["listNftChains"];
  readonly #nftReader: ExecIptablesOptions["nftReader"];
  /** One command of a family at a time, and check-then-change as one. */
  readonly #turns = new Mutex();

  constructor(options: ExecIptablesOptions, binaries: IptablesBinaries, capabilities: IptablesCapabilities) {
    this.family = options.family;
    this.hasRandomFully = capabilities.hasRandomFully;
    this.#exec = options.exec;
    this.#log = options.log;
    this.#binaries = binaries;
    this.#capabilities = capabilities;
    this.#lockPath = options.lockPath ?? "/run/xtables.lock";
    this.prefersSmallTransactions = capabilities.backEnd === "nft";
    this.#listNftChains = capabilities.backEnd === "nft" ? options.listNftChains : undefined;
    this.#nftReader = capabilities.backEnd === "nft" ? options.nftReader : undefined;
  }

  ensureChain(table: IptablesTable, chain: string): Promise<void> {
    return this.#turns.run(async () => {
      const [command, result] = await this.#rule("-N", table, chain);
      // Status 1 means that the chain exists (iptables.md §18.45).
      if (result.status !== 0 && result.status !== 1) throw commandError(command, result);
    });
  }

  chainPresence(table: IptablesTable, chain: string): Promise<Presence> {
    return this.#turns.run(async () => presenceOf((await this.#rule("-S", table, chain))[1]));
  }

  deleteChain(table: IptablesTable, chain: string): Promise<void> {
    return this.#turns.run(() => this.#mustSucceed("-X", table, chain, []));
  }

  ensureRule(table: IptablesTable, chain: string, args: readonly string[], position?: RulePosition): Promise<void> {
    return this.#turns.run(async () => {
      const [command, result] = await this.#check(table, chain, args);
      if (result.status === 0) return;
      if (result.status !== 1) throw commandError(command, result);
      await this.#mustSucceed(position === "end" ? "-A" : "-I", table, chain, args);
    });
  }

  rulePresence(table: IptablesTable, chain: string, args: readonly string[]): Promise<Presence> {
    return this.#turns.run(async () => presenceOf((await this.#check(table, chain, args))[1]));
  }

  deleteRule(table: IptablesTable, chain: string, args: readonly string[]): Promise<void> {
    return this.#turns.run(async () => {
      const [command, result] = await this.#check(table, chain, args);
      const presence = presenceOf(result);
      if (presence === "absent") return;
      if (presence === "unknown") throw commandError(command, result);
      await this.#mustSucceed("-D", table, chain, args);
    });
  }

  async chainNames(table: IptablesTable): Promise<readonly string[]> {
    const list = this.#listNftChains;
    if (list !== undefined) return await this.#turns.run(() => list(this.family, table));
    return chainsOf(await this.save(table));
  }

  async chainUses(table: IptablesTable): Promise<ReadonlyMap<string, number>> {
    const reader = await this.#nftReader?.();
    if (reader !== undefined) return await this.#turns.run(() => reader.nftChainUses(this.family, table));
    return chainUsesOf(await this.save(table));
  }

  async ruleCount(table: IptablesTable, chain: string): Promise<number> {
    const reader = await this.#nftReader?.();
    if (reader !== undefined) return await this.#turns.run(() => reader.countNftRules(this.family, table, chain));
    return await this.#turns.run(async () => {
      const [command, result] = await this.#rule("-S", table, chain);
      const presence = presenceOf(result);
      if (presence === "unknown") throw commandError(command, result);
      return presence === "absent" ? 0 : result.stdout.split("\n-A ").length - 1;
    });
  }

  async generation(): Promise<number | undefined> {
    return await (await this.#nftReader?.())?.nftGeneration();
  }

  save(table: IptablesTable): Promise<string> {
    return this.#turns.run(async () => {
      const [command, result] = await this.#run(this.#binaries.save, ["-t", table], {});
      if (result.status !== 0) throw commandError(command, result);
      return result.stdout;
    });
  }

  restore(payload: Iterable<string>, options: { readonly table?: IptablesTable } = {}): Promise<void> {
    return this.#turns.run(async () => {
      try {
        await this.#restore(payload, options.table);
      } catch (error) {
        if (!(error instanceof IptablesError) || error instanceof IptablesRestoreError) throw error;
        const { code, status, output } = error;
        throw new IptablesRestoreError(code, this.#binaries.restore, status, output, undefined, { cause: error });
      }
    });
  }

  async #restore(payload: Iterable<string>, table: IptablesTable | undefined): Promise<void> {
    const { restoreWaitArgs } = this.#capabilities;
    await using _locks = restoreWaitArgs === undefined ? await this.#takeLocks() : undefined;
    const onlyTable = table === undefined ? [] : ["-T", table];
    const args = [...(restoreWaitArgs ?? []), ...onlyTable, "--noflush", "--counters"];
    const commits = new CommitLines();
    const [command, result] = await this.#run(this.#binaries.restore, args, { stdin: commits.watch(payload) });
    if (result.status !== 0) throw restoreError(command, result, commits.lines);
  }

  async #takeLocks(): Promise<AsyncDisposable> {
    const { takeXtablesLocks } = await import("./xtables-locks.ts");
    return await takeXtablesLocks(this.#binaries.restore, this.#lockPath);
  }

  async #check(table: IptablesTable, chain: string, args: readonly string[]): Promise<readonly [string, ExecResult]> {
    if (this.#capabilities.hasCheck) return await this.#rule("-C", table, chain, args);
    const [command, saved] = await this.#run(this.#binaries.save, ["-t", table], {});
    if (saved.status !== 0) return [command, saved];
    const { hasSavedRule } = await import("./parser/saved-rule-lookup.ts");
    const status = hasSavedRule(saved.stdout, this.family, chain, args) ? 0 : 1;
    return [command, { status, stdout: "", stderr: "" }];
  }

  async #mustSucceed(operation: string, table: IptablesTable, chain: string, args: readonly string[]): Promise<void> {
    const [command, result] = await this.#rule(operation, table, chain, args);
    if (result.status !== 0) throw commandError(command, result);
  }

  #rule(operation: string, table: IptablesTable, chain: string, args: readonly string[] = []) {
    const words = [...this.#capabilities.waitArgs, operation, chain, "-t", table, ...args];
    return this.#run(this.#binaries.rule, words, { timeoutMs: RULE_TIMEOUT_MS });
  }

  /** Runs a tool. Rejects with {@link IptablesError} when it could not be started. */
  async #run(file: string, args: readonly string[], options: ExecOptions): Promise<readonly [string, ExecResult]> {
    const command = `${file} ${args.join(" ")}`;
    if (this.#log.isVerbose(5)) this.#log.v(5, "Running", { command });
    try {
      return [command, await this.#exec(file, args, options)];
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      const code = error.code === "missing_tool" ? "missing_tool" : "failed";
      throw new IptablesError(code, command, -1, error.message, { cause: error });
    }
  }
}

// iptables-nft cannot read a table in which `nft` put rules of its own: says nothing about what is missing.
const UNREADABLE_TABLE = /: table `[^']*' is incompatible/;

/** Only a clear answer counts as absent: a lock that is held, a time-out or a broken host must not pass for a flush. */
function presenceOf({ status, stderr }: ExecResult): Presence {
  if (status === 0) return "present";
  if (UNREADABLE_TABLE.test(stderr)) return "unknown";
  return status === 1 || errorCodeOf(status, stderr) === "not_found" ? "absent" : "unknown";
}
