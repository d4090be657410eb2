/**
 * Implements {@link Iptables} with the host's tools for one family: command lines, waiting for the xtables lock,
 * meaning of exit statuses (reference iptables-operation.md §10). Knows tables, chains and rule text, but not Services.
 */

import { Mutex } from "../../async/mutex.ts";
import type { Logger } from "../../logging/logger.ts";
import type { IpFamily } from "../../net/ip.ts";
import { type Exec, ExecError, type ExecOptions, type ExecResult } from "../process.ts";
import {
  backEndIn,
  commandError,
  errorCodeOf,
  type IptablesBackEnd,
  isSilentOnBackEnd,
  restoreError,
  versionIn,
  versionProblem,
  watchCommits,
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

/** Names or paths of a family's three programs. */
interface IptablesBinaries {
  readonly rule: string;
  readonly save: string;
  readonly restore: string;
}

/** The names of the tools of the host's default back end. */
export const DEFAULT_BINARIES: Readonly<Record<IpFamily, IptablesBinaries>> = {
  IPv4: { rule: "iptables", save: "iptables-save", restore: "iptables-restore" },
  IPv6: { rule: "ip6tables", save: "ip6tables-save", restore: "ip6tables-restore" },
};

export interface ExecIptablesOptions {
  readonly family: IpFamily;
  readonly exec: Exec;
  readonly log: Logger;
  /** @default the plain names, {@link DEFAULT_BINARIES} */
  readonly binaries?: IptablesBinaries;
  /**
   * Reads the nft back end without the tools, whose save command is very slow with many chains.
   * @default use the save command
   */
  readonly nftReader?: () => Promise<NftReader>;
  /** The chains for which the tables are read; if none of them exists, there may be nothing to read. @default every chain */
  readonly isLookedFor?: (table: IptablesTable, chain: string) => boolean;
}

/** Reads iptables tables from nf_tables. */
type NftReader = typeof import("./nft-chains.ts");

/** A rule command that takes longer is considered hung. */
const RULE_TIMEOUT_MS = 5 * 60_000;

/** How many seconds a command waits for the xtables lock. */
const WAIT = ["-w", "5"] as const;

/** What {@link findIptables} learned about the host's tools of a family. */
export interface FoundIptables {
  readonly backEnd: IptablesBackEnd;
  readonly version?: string | undefined;
  /** Why this host cannot program the family, and what to do: no tool, an old tool, or a kernel without a nat table. */
  readonly problem?: string | undefined;
  /** All tables, if they were read, and {@link usesOf} from just before. */
  readonly saved?: { readonly text: string; readonly uses: string | undefined };
}

/**
 * Detects the host's tools and wraps them. Never rejects: without tools, or with tools that are too old, every later
 * operation fails with `missing_tool`, so that a missing family does not stop the other.
 *
 * @param found a fresh result of {@link findIptables}. @default asks for the version only
 */
export async function createIptables(options: ExecIptablesOptions, found?: FoundIptables): Promise<Iptables> {
  const binaries = options.binaries ?? DEFAULT_BINARIES[options.family];
  const tools = found ?? toolOf(options, binaries.rule, (await ask(options, binaries.rule, ["--version"])).stdout);
  const { version } = tools;
  if (version !== undefined) options.log.v(2, "Found iptables", { command: binaries.rule, version });
  return new ExecIptables(options, binaries, tools);
}

/**
 * Whether this host can program the family. Never rejects. Reference iptables-operation.md §10.1.
 *
 * @param reads `tools` runs two tools, which read as little as possible. `tables`, for modes that need them anyway,
 * reads all tables with one tool, or runs none if the kernel shows that there is nothing to read and the tool's file
 * shows that it works.
 */
export async function findIptables(options: ExecIptablesOptions, reads: "tools" | "tables"): Promise<FoundIptables> {
  const binaries = options.binaries ?? DEFAULT_BINARIES[options.family];
  if (reads === "tables") return await findTables(options, binaries);
  const { rule } = binaries;
  const tools = toolOf(options, rule, (await ask(options, rule, ["--version"])).stdout);
  if (tools.problem !== undefined) return tools;
  return { ...tools, problem: (await ask(options, rule, ["-t", "nat", "-S", "POSTROUTING"], WAIT)).problem };
}

async function findTables(options: ExecIptablesOptions, { rule, save }: IptablesBinaries): Promise<FoundIptables> {
  const { family, isLookedFor = () => true } = options;
  const reader = await options.nftReader?.();
  const uses = reader && (await usesOf(reader, family).catch(() => undefined));
  const chains = await reader?.chainsAtHand(family);
  const isEmpty = chains?.every(({ table, chain }) => !isLookedFor(table, chain)) === true;
  if (reader !== undefined && isEmpty && (await reader.isNftTool(save)) && (await reader.hasNat(family))) {
    return { backEnd: "nft", saved: { text: "", uses } };
  }
  const isNew = chains?.length === 0;
  const parts = isNew ? [] : [await ask(options, save, [])];
  // As long as no program has added a rule, the table may not exist, and the tool prints nothing.
  const isUnknown = parts.every(({ stdout, problem }) => problem === undefined && !NAT_TABLE.test(stdout));
  if (isUnknown) parts.push(await ask(options, save, ["-t", "nat"]));
  const text = parts.map(({ stdout }) => stdout).join("");
  if (UNREADABLE.test(text)) return await findIptables(options, "tools");
  const problem = parts.at(-1)?.problem ?? (NAT_TABLE.test(text) ? undefined : problemOf(save, ["-t", "nat"]));
  if (problem !== undefined) return { backEnd: "legacy", problem };
  const tool = toolOf(options, rule, HEADER.exec(text)?.[0] ?? "");
  const isOpen = tool.problem === undefined && isSilentOnBackEnd(tool.version);
  const backEnd = isOpen ? backEndIn((await ask(options, rule, ["--version"])).stdout) : tool.backEnd;
  return { ...tool, backEnd, saved: { text, uses } };
}

/** How much each chain is used. Equal tables give equal text; a rule that replaces another one goes unnoticed. */
async function usesOf(reader: NftReader, family: IpFamily): Promise<string> {
  const tables = (["nat", "filter"] as const).map((table) => reader.nftChainUses(family, table));
  return JSON.stringify((await Promise.all(tables)).map((uses) => [...uses]));
}

const NAT_TABLE = /^\*nat$/m;
/** Printed instead of a table to which `nft` has added what the tool cannot print. */
const UNREADABLE = /^# (Table `(?:nat|filter)' is incompatible.*)$/m;
/** Contains the tool's version, and from 1.8.8 on the back end. */
const HEADER = /^# Generated by .*/m;

/** Runs a command that succeeds wherever the family can be programmed. Never rejects. */
async function ask(
  { exec, log }: ExecIptablesOptions,
  command: string,
  words: readonly string[],
  before: readonly string[] = [],
): Promise<Pick<ExecResult, "stdout"> & Pick<FoundIptables, "problem">> {
  try {
    const { status, stdout, stderr } = await exec(command, [...before, ...words], { timeoutMs: RULE_TIMEOUT_MS });
    if (status === 0) return { stdout };
    const output = stderr.trim();
    log.v(2, "iptables is not usable", { command, status, output });
    return { stdout: "", problem: problemOf(command, words, output.split("\n")[0]) };
  } catch (error) {
    log.v(2, "iptables is not usable", { command, err: error });
    return { stdout: "", problem: problemOf(command, words) };
  }
}

function problemOf(command: string, words: readonly string[], why = ""): string {
  const said = why === "" ? "" : ` ("${why}")`;
  const advice = why.includes("is incompatible")
    ? "move what nft has added to that table into a table of another name"
    : "install the package iptables, run as root, and make sure the kernel has the nat table";
  return `${[command, ...words].join(" ")} does not work${said}: ${advice}`;
}

/** @param output the tool's output, which starts with its name and version. */
function toolOf({ log }: ExecIptablesOptions, command: string, output: string): FoundIptables {
  const version = versionIn(output);
  const problem = version === undefined ? undefined : versionProblem(command, version);
  if (version === undefined)
    log.warn("Could not find out the version of iptables, assuming a current one", { command });
  if (problem !== undefined) log.warn("iptables is too old", { command, version, problem });
  return { backEnd: backEndIn(output), version, problem };
}

class ExecIptables implements Iptables {
  readonly family: IpFamily;
  readonly prefersSmallTransactions: boolean;
  readonly #options: ExecIptablesOptions;
  readonly #binaries: IptablesBinaries;
  readonly #problem: string | undefined;
  readonly #nftReader: ExecIptablesOptions["nftReader"];
  /** Runs one command of a family at a time, and a check together with its change. */
  readonly #turns = new Mutex();
  /** All tables as read before the start; used once. */
  #found: FoundIptables["saved"];

  constructor(options: ExecIptablesOptions, binaries: IptablesBinaries, { backEnd, problem, saved }: FoundIptables) {
    this.family = options.family;
    this.#options = options;
    this.#binaries = binaries;
    this.#problem = problem;
    this.prefersSmallTransactions = backEnd === "nft";
    this.#nftReader = backEnd === "nft" ? options.nftReader : undefined;
    this.#found = saved;
  }

  ensureChain(table: IptablesTable, chain: string): Promise<void> {
    return this.#turns.run(async () => {
      const [command, result] = await this.#rule("-N", table, chain);
      // Status 1: the chain exists (iptables-operation.md §10.2).
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
      const [command, result] = await this.#rule("-C", table, chain, args);
      if (result.status === 0) return;
      if (result.status !== 1) throw commandError(command, result);
      await this.#mustSucceed(position === "end" ? "-A" : "-I", table, chain, args);
    });
  }

  rulePresence(table: IptablesTable, chain: string, args: readonly string[]): Promise<Presence> {
    return this.#turns.run(async () => presenceOf((await this.#rule("-C", table, chain, args))[1]));
  }

  deleteRule(table: IptablesTable, chain: string, args: readonly string[]): Promise<void> {
    return this.#turns.run(async () => {
      const [command, result] = await this.#rule("-C", table, chain, args);
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

  save(table?: IptablesTable): Promise<string> {
    return this.#turns.run(async () => {
      const found = this.#found;
      this.#found = undefined;
      const reader = table === undefined && found?.uses !== undefined ? await this.#nftReader?.() : undefined;
      if (reader !== undefined && found?.uses === (await usesOf(reader, this.family))) return found.text;
      const [command, result] = await this.#run(this.#binaries.save, table === undefined ? [] : ["-t", table], {});
      if (result.status !== 0) throw commandError(command, result);
      const [, unreadable] = UNREADABLE.exec(result.stdout) ?? [];
      if (unreadable !== undefined) throw new IptablesError("unreadable", command, 0, unreadable);
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
    const commitLines: number[] = [];
    const { log } = this.#options;
    const { restore } = this.#binaries;
    const given = log.isVerbose(9) ? [...payload] : payload;
    if (Array.isArray(given)) log.v(9, "Restoring iptables", { command: restore, rules: given.join("") });
    const [command, result] = await this.#run(restore, args, {
      stdin: watchCommits(given, commitLines),
    });
    if (result.status !== 0) throw restoreError(command, result, commitLines);
  }

  async #mustSucceed(operation: string, table: IptablesTable, chain: string, args: readonly string[]): Promise<void> {
    const [command, result] = await this.#rule(operation, table, chain, args);
    if (result.status !== 0) throw commandError(command, result);
  }

  #rule(operation: string, table: IptablesTable, chain: string, args: readonly string[] = []) {
    const words = [...WAIT, operation, chain, "-t", table, ...args];
    return this.#run(this.#binaries.rule, words, { timeoutMs: RULE_TIMEOUT_MS });
  }

  /** Runs a tool. Rejects with {@link IptablesError} if it could not or must not be started. */
  async #run(file: string, args: readonly string[], options: ExecOptions): Promise<readonly [string, ExecResult]> {
    const command = `${file} ${args.join(" ")}`;
    if (this.#problem !== undefined) throw new IptablesError("missing_tool", command, -1, this.#problem);
    const { exec, log } = this.#options;
    if (log.isVerbose(5)) log.v(5, "Running", { command });
    try {
      return [command, await exec(file, args, options)];
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      throw new IptablesError(error.code, command, -1, error.message, { cause: error });
    }
  }
}

// iptables-nft cannot read a table to which `nft` has added rules; this does not say that anything is missing.
const UNREADABLE_TABLE = /: table `[^']*' is incompatible/;

/** Only a clear answer counts as absent: a held lock, a timeout or a broken host must not pass for a flush. */
function presenceOf({ status, stderr }: ExecResult): Presence {
  if (status === 0) return "present";
  if (UNREADABLE_TABLE.test(stderr)) return "unknown";
  return status === 1 || errorCodeOf(status, stderr) === "not_found" ? "absent" : "unknown";
}
