/**
 * The host's iptables tools of one family behind {@link Iptables}: command lines, waiting for the xtables lock, and what
 * exit statuses mean (reference iptables-operation.md §10). Knows tables, chains and rule text; nothing of Services.
 */

import { Mutex } from "../../async/mutex.ts";
import type { Logger } from "../../logging/logger.ts";
import type { IpFamily } from "../../net/ip.ts";
import { type Exec, ExecError, type ExecOptions, type ExecResult } from "../process.ts";
import {
  backEndIn,
  CommitLines,
  commandError,
  errorCodeOf,
  type IptablesBackEnd,
  restoreError,
  versionIn,
  versionProblem,
} from "./command-errors.ts";
import {
  type Iptables,
  IptablesError,
  IptablesRestoreError,
  type IptablesTable,
  type Presence,
  type RulePosition,
} from "./iptables.ts";
import { readChainNames, readChainUses } from "./parser/ruleset.ts";

/** Names or paths of the three programs of a family. */
interface IptablesBinaries {
  readonly rule: string;
  readonly save: string;
  readonly restore: string;
}

/** The names of the host's default back end. */
export const DEFAULT_BINARIES: Readonly<Record<IpFamily, IptablesBinaries>> = {
  IPv4: { rule: "iptables", save: "iptables-save", restore: "iptables-restore" },
  IPv6: { rule: "ip6tables", save: "ip6tables-save", restore: "ip6tables-restore" },
};

export interface ExecIptablesOptions {
  readonly family: IpFamily;
  readonly exec: Exec;
  readonly log: Logger;
  /** @default the host's plain names, {@link DEFAULT_BINARIES} */
  readonly binaries?: IptablesBinaries;
  /**
   * Reads what the nft back end holds without the tools, whose save command is very slow with many chains.
   * @default the save command
   */
  readonly nftReader?: () => Promise<NftReader>;
}

/** Reads an iptables table in nf_tables (`nft-chains.ts`). */
interface NftReader {
  nftChainUses(family: IpFamily, table: IptablesTable): Promise<ReadonlyMap<string, number>>;
  countNftRules(family: IpFamily, table: IptablesTable, chain: string): Promise<number>;
  nftGeneration(): Promise<number | undefined>;
}

/** A rule command that takes longer is taken for hung. */
const RULE_TIMEOUT_MS = 5 * 60_000;

/** Makes a command wait so many seconds for the xtables lock. */
const WAIT = ["-w", "5"] as const;

interface Tool {
  readonly backEnd: IptablesBackEnd;
  /** Why it is not used. */
  readonly problem?: string;
}

/**
 * Finds out what the host's tools are and wraps them. Never rejects: without tools, or with tools that are too old, every
 * later operation fails with `missing_tool`, so that one family's absence does not stop the other.
 */
export async function createIptables(options: ExecIptablesOptions): Promise<Iptables> {
  const binaries = options.binaries ?? DEFAULT_BINARIES[options.family];
  return new ExecIptables(options, binaries, await probe(options, binaries));
}

/**
 * Why this host cannot program the family, and what to do: there is no tool, it is too old, or the kernel has no nat table.
 * Undefined when it can. Never rejects. Reference iptables-operation.md §10.1.
 */
export async function iptablesProblem(options: ExecIptablesOptions): Promise<string | undefined> {
  const { exec, log } = options;
  const { rule: command } = options.binaries ?? DEFAULT_BINARIES[options.family];
  const { problem } = await probe(options, { rule: command });
  if (problem !== undefined) return problem;
  const general = (why: string): string =>
    `${command} -t nat -S POSTROUTING does not work${why === "" ? "" : ` ("${why}")`}: install the package iptables, run as root, and make sure the kernel has the nat table`;
  try {
    const args = [...WAIT, "-S", "POSTROUTING", "-t", "nat"];
    const { status, stderr } = await exec(command, args, { timeoutMs: RULE_TIMEOUT_MS });
    if (status === 0) return undefined;
    const output = stderr.trim();
    log.v(2, "iptables is not usable", { command, status, output });
    return general(output.split("\n")[0] ?? "");
  } catch (error) {
    log.v(2, "iptables is not usable", { command, err: error });
    return general("");
  }
}

/** Whether this host can program the family: {@link iptablesProblem} finds none. */
export async function isIptablesPresent(options: ExecIptablesOptions): Promise<boolean> {
  return (await iptablesProblem(options)) === undefined;
}

async function probe(
  { exec, log }: ExecIptablesOptions,
  { rule: command }: Pick<IptablesBinaries, "rule">,
): Promise<Tool> {
  try {
    const { stdout } = await exec(command, ["--version"], { timeoutMs: RULE_TIMEOUT_MS });
    const version = versionIn(stdout);
    const backEnd = backEndIn(stdout);
    if (version === undefined) {
      log.warn("Could not find out the version of iptables, assuming a current one", { command, output: stdout });
      return { backEnd };
    }
    const problem = versionProblem(command, version);
    if (problem === undefined) log.v(2, "Found iptables", { command, version: stdout.trim() });
    else log.warn("iptables is too old", { command, version, problem });
    return problem === undefined ? { backEnd } : { backEnd, problem };
  } catch (error) {
    log.warn("Could not run iptables", { command, err: error });
    return { backEnd: "legacy" };
  }
}

class ExecIptables implements Iptables {
  readonly family: IpFamily;
  readonly prefersSmallTransactions: boolean;
  readonly #exec: Exec;
  readonly #log: Logger;
  readonly #binaries: IptablesBinaries;
  readonly #problem: string | undefined;
  readonly #nftReader: ExecIptablesOptions["nftReader"];
  /** One command of a family at a time, and check-then-change as one. */
  readonly #turns = new Mutex();

  constructor(options: ExecIptablesOptions, binaries: IptablesBinaries, { backEnd, problem }: Tool) {
    this.family = options.family;
    this.#exec = options.exec;
    this.#log = options.log;
    this.#binaries = binaries;
    this.#problem = problem;
    this.prefersSmallTransactions = backEnd === "nft";
    this.#nftReader = backEnd === "nft" ? options.nftReader : undefined;
  }

  ensureChain(table: IptablesTable, chain: string): Promise<void> {
    return this.#turns.run(async () => {
      const [command, result] = await this.#rule("-N", table, chain);
      // Status 1 means that the chain exists (iptables-operation.md §10.2).
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
    if (this.#nftReader !== undefined) return [...(await this.chainUses(table)).keys()];
    return readChainNames(await this.save(table), table);
  }

  async chainUses(table: IptablesTable): Promise<ReadonlyMap<string, number>> {
    const reader = await this.#nftReader?.();
    if (reader !== undefined) return await this.#turns.run(() => reader.nftChainUses(this.family, table));
    return readChainUses(await this.save(table), table);
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
    const onlyTable = table === undefined ? [] : ["-T", table];
    const args = [...WAIT, ...onlyTable, "--noflush", "--counters"];
    const commits = new CommitLines();
    const [command, result] = await this.#run(this.#binaries.restore, args, { stdin: commits.watch(payload) });
    if (result.status !== 0) throw restoreError(command, result, commits.lines);
  }

  #check(table: IptablesTable, chain: string, args: readonly string[]): Promise<readonly [string, ExecResult]> {
    return this.#rule("-C", table, chain, args);
  }

  async #mustSucceed(operation: string, table: IptablesTable, chain: string, args: readonly string[]): Promise<void> {
    const [command, result] = await this.#rule(operation, table, chain, args);
    if (result.status !== 0) throw commandError(command, result);
  }

  #rule(operation: string, table: IptablesTable, chain: string, args: readonly string[] = []) {
    const words = [...WAIT, operation, chain, "-t", table, ...args];
    return this.#run(this.#binaries.rule, words, { timeoutMs: RULE_TIMEOUT_MS });
  }

  /** Runs a tool. Rejects with {@link IptablesError} when it could not be started, or may not be. */
  async #run(file: string, args: readonly string[], options: ExecOptions): Promise<readonly [string, ExecResult]> {
    const command = `${file} ${args.join(" ")}`;
    if (this.#problem !== undefined) throw new IptablesError("missing_tool", command, -1, this.#problem);
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
