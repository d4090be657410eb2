/**
 * nf_tables of one namespace in memory, limited to one table of one family. Several programs may be connected: each
 * sees what the others commit. Behaves like kernel 6.18 (`testing/nftables-contract.ts`); tests can make it reject
 * operations.
 */

import { isDeepStrictEqual } from "node:util";
import {
  type Nftables,
  NftError,
  type NftErrorCode,
  type NftExpectation,
  type NftForeignChange,
  type NftOperation,
  type NftSetContent,
  type NftTableContent,
} from "../../../src/kernel/nftables/nftables.ts";
import {
  elementKey,
  type NftElement,
  type NftFamily,
  type NftSet,
  type NftTarget,
  targetsOf,
} from "../../../src/kernel/nftables/ruleset.ts";
import { chainJson, counterJson, type Json, ruleJson, setJson } from "../../../src/kernel/nftables/ruleset-json.ts";
import type { IpAddress } from "../../../src/net/ip.ts";
import { MemoryTable } from "./memory-table.ts";

/** A program that changes the table. */
export interface MemoryProgram {
  readonly pid: number;
  readonly name: string;
  /** Whether it stores digests with its rules, as this project does. */
  readonly writesDigests: boolean;
}

const OURSELVES: MemoryProgram = { pid: 1, name: "kube-proxy-ts", writesDigests: true };
const ANOTHER: MemoryProgram = { pid: 4711, name: "nft", writesDigests: false };

export interface MemoryNftKernelOptions {
  /** Behaves as before kernel 6.2: see {@link MemoryNftKernel.passTime}. @default false */
  readonly releasesLate?: boolean;
}

/** A rejection that is independent of the state. */
export interface NftRefusal {
  readonly code: NftErrorCode;
  /** Whether the error names the operation. @default true */
  readonly isNamed?: boolean;
}

/** Decides whether an operation is rejected, in any state. */
export type NftFault = (operation: NftOperation) => NftRefusal | undefined;

/** Compares sets of any size. */
function comparedOrListed(
  set: NftSet,
  elements: ReadonlyMap<string, NftElement>,
  expected: NftExpectation | undefined,
): Pick<NftSetContent, "elements" | "others"> {
  const listed = { elements: [...elements.values()] };
  const comparable = expected?.sets.get(set.name);
  if (expected === undefined || comparable?.key.join() !== set.key.join() || elements.size === 0) return listed;
  const others = new Map<string, NftElement | undefined>();
  let unseen = elements.size;
  for (const { element } of expected.elements(new Set([set.name]))) {
    const key = elementKey(element.key);
    const found = elements.get(key);
    if (found !== undefined) unseen -= 1;
    if (!isDeepStrictEqual(found, element)) others.set(key, found);
  }
  return unseen === 0 ? { elements: [], others } : listed;
}

interface Watcher {
  readonly program: MemoryProgram;
  readonly onChange: (change: NftForeignChange) => void;
  readonly fail: (error: Error) => void;
}

export class MemoryNftKernel {
  readonly family: NftFamily;
  readonly #table: MemoryTable;
  readonly #watchers = new Set<Watcher>();
  readonly #faults = new Set<NftFault>();
  readonly #failures: Error[] = [];
  readonly #afterRead: (() => Promise<void>)[] = [];
  readonly #transactions: (readonly NftOperation[])[] = [];
  readonly #commits = new Map<MemoryProgram, number>();
  #generation = 1;
  #held: (() => void)[] | undefined;
  #refusals = 0;

  constructor(family: NftFamily, options: MemoryNftKernelOptions = {}) {
    this.family = family;
    this.#table = new MemoryTable(options.releasesLate ?? false);
  }

  /** A handle for this project. */
  connect(program: MemoryProgram = OURSELVES): Nftables {
    return {
      family: this.family,
      transact: async (operations, { generation } = {}) => {
        const all = [...operations];
        if (all.length === 0) return;
        this.#transact(program, all, generation);
      },
      read: async (expected) => {
        const content = this.#read(expected);
        if (program.writesDigests) for (const action of this.#afterRead.splice(0)) await action();
        return content;
      },
      mark: async () => ({ generation: this.#generation, commits: this.#commits.get(program) ?? 0 }),
      generationIfUntouched: async (mark) => {
        const commits = (this.#commits.get(program) ?? 0) - mark.commits;
        return this.#generation - mark.generation === commits ? this.#generation : undefined;
      },
      readElements: async ({ name }) => {
        const set = this.#table.exists ? this.#table.sets.get(name) : undefined;
        return set && [...set.elements.values(), ...(set.set.hasTargets === true ? set.packetEntries.values() : [])];
      },
      withCatchAll: async (sets) =>
        [...sets].filter(({ name }) => this.#table.exists && this.#table.sets.get(name)?.elements.has(elementKey([]))),
      readTargets: async (chains) => {
        const found = new Map<string, NftTarget[]>();
        for (const chain of chains) {
          const rules = (this.#table.exists ? this.#table.chains.get(chain)?.rules : undefined) ?? [];
          const targets = rules.flatMap(({ rule }) =>
            rule.statements.flatMap((one) =>
              one.kind === "dnat" ? [one.to] : one.kind === "random-dnat" ? one.targets : [],
            ),
          );
          if (targets.length > 0) found.set(chain, targets);
        }
        return found;
      },
      readCounters: async () => this.#counters(),
      watch: (onChange, signal) => this.#watch(program, onChange, signal),
    };
  }

  /** A handle for another program: its rules carry no digest. */
  connectAnother(program: Omit<MemoryProgram, "writesDigests"> = ANOTHER): Nftables {
    return this.connect({ ...program, writesDigests: false });
  }

  /** Operations of all programs' committed transactions, oldest first. */
  get transactions(): readonly (readonly NftOperation[])[] {
    return this.#transactions;
  }

  /** Number of rejected transactions. */
  get refusals(): number {
    return this.#refusals;
  }

  /** Clears {@link MemoryNftKernel.transactions}. @returns all their operations. */
  takeOperations(): NftOperation[] {
    return this.#transactions.splice(0).flat();
  }

  /** From now on rejects this project's operations for which `fault` says so. @returns a function that ends that. */
  refuse(fault: NftFault): () => void {
    this.#faults.add(fault);
    return () => this.#faults.delete(fault);
  }

  /** This project's next transaction fails with this error, independent of its content. Repeated calls queue up. */
  failOnce(error: Error): void {
    this.#failures.push(error);
  }

  /** Another program does this right after this project's next read of the table. */
  afterNextRead(action: () => Promise<void>): void {
    this.#afterRead.push(action);
  }

  /** All watches end with this error, as when notifications cannot be received any more. */
  failWatching(error: Error): void {
    for (const { fail } of [...this.#watchers]) fail(error);
  }

  /** With `releasesLate`: from now on, chains that deleted elements went to can be deleted. */
  passTime(): void {
    this.#table.releaseReferences();
  }

  /** A packet of this client went through an `update` rule. */
  putPacketEntry(set: string, address: string): void {
    const target = this.#table.sets.get(set);
    if (target === undefined) throw new NftError("not_found", `there is no set ${set}`, undefined);
    target.packetEntries.set(address, { key: [address as IpAddress] }); // a test's
  }

  /** A packet went through an `update` rule of a map. */
  putClient(map: string, element: NftElement): void {
    const target = this.#table.sets.get(map);
    if (target === undefined) throw new NftError("not_found", `there is no map ${map}`, undefined);
    const key = elementKey(element.key);
    if (!target.packetEntries.has(key)) target.packetEntries.set(key, element);
  }

  /** The entries that packets put into a set; undefined if there is no such set. */
  packetEntries(set: string): string[] | undefined {
    const target = this.#table.sets.get(set);
    return target && [...target.packetEntries.keys()];
  }

  /** The ruleset in libnftables' JSON schema, without entries made by packets. Empty without a table. */
  list(table = "kube-proxy"): Json[] {
    if (!this.#table.exists) return [];
    const name = { family: this.family, table };
    const chains = [...this.#table.chains.values()].map((chain) => ({
      name: chain.name,
      ...(chain.hook && { hook: chain.hook }),
      rules: chain.rules.map(({ rule }) => rule),
    }));
    return [
      { table: { family: this.family, name: table } },
      ...Array.from(this.#table.counters.keys(), (counter) => counterJson(name, counter)),
      ...Array.from(this.#table.sets.values(), ({ set, elements }) => setJson(name, set, [...elements.values()])),
      ...chains.map((chain) => chainJson(name, chain)),
      ...chains.flatMap((chain) => chain.rules.map((rule) => ruleJson(name, chain.name, rule))),
    ];
  }

  /** Nothing is counted here. */
  #counters(): Map<string, number> {
    return new Map(Array.from(this.#table.exists ? this.#table.counters.keys() : [], (name) => [name, 0]));
  }

  #transact(program: MemoryProgram, operations: readonly NftOperation[], generation: number | undefined): void {
    try {
      const failure = program.writesDigests ? this.#failures.shift() : undefined;
      if (failure !== undefined) throw failure;
      if (generation !== undefined && generation !== this.#generation) {
        throw new NftError("conflict", `the ruleset is not in generation ${generation} any more`, undefined);
      }
      for (const [index, operation] of operations.entries()) {
        for (const fault of program.writesDigests ? this.#faults : []) {
          const refusal = fault(operation);
          if (refusal === undefined) continue;
          const named = refusal.isNamed === false ? undefined : index;
          throw new NftError(refusal.code, `${operation.kind}: refused on purpose`, named);
        }
        this.#table.apply(operation, index, program.writesDigests);
      }
    } catch (error) {
      this.#table.rollBack();
      this.#refusals += 1;
      throw error;
    }
    this.#table.commit();
    this.#transactions.push(operations);
    this.#committed(program, changeOf(operations));
  }

  /** Another program renames a chain. @throws NftError as the kernel does. */
  renameChain(from: string, to: string): void {
    this.#table.renameChain(from, to);
    this.#committed(ANOTHER, { chains: new Set([to]), sets: new Set(), defined: new Set([to]), isTotal: false });
  }

  /** Holds announcements back, as a busy kernel does. @returns a function that delivers them. */
  holdAnnouncements(): () => void {
    const held: (() => void)[] = [];
    this.#held = held;
    return () => {
      this.#held = undefined;
      for (const announce of held) announce();
    };
  }

  #committed(program: MemoryProgram, change: Omit<NftForeignChange, "by" | "generation">): void {
    this.#generation += 1;
    this.#commits.set(program, (this.#commits.get(program) ?? 0) + 1);
    const by = { pid: program.pid, name: program.name };
    const generation = this.#generation;
    const announce = (): void => {
      for (const one of [...this.#watchers]) if (one.program !== program) one.onChange({ ...change, generation, by });
    };
    if (this.#held === undefined) announce();
    else this.#held.push(announce);
  }

  #read(expected?: NftExpectation): NftTableContent | undefined {
    if (!this.#table.exists) return undefined;
    const { chains, sets } = this.#table;
    return {
      generation: this.#generation,
      isDormant: this.#table.isDormant,
      hasOtherFlags: false,
      counters: this.#counters(),
      chains: new Map(
        Array.from(chains, ([name, { hook, rules }]) => {
          const targets = targetsOf({ rules: rules.map(({ rule }) => rule) });
          return [
            name,
            { hook, ruleDigests: rules.map(({ digest }) => digest), ...(targets.length > 0 && { targets }) },
          ];
        }),
      ),
      sets: new Map(
        Array.from(sets, ([name, { set, elements }]) => [
          name,
          {
            key: set.key,
            isMap: set.isMap,
            ...(set.hasTargets === true ? { hasTargets: true } : {}),
            ...(set.hasCounters === true ? { hasCounters: true } : {}),
            timeoutSeconds: set.timeoutSeconds,
            ...comparedOrListed(set, elements, expected),
          },
        ]),
      ),
    };
  }

  #watch(program: MemoryProgram, onChange: Watcher["onChange"], signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) {
        resolve();
        return;
      }
      const end = (): void => {
        this.#watchers.delete(watcher);
        signal.removeEventListener("abort", stop);
      };
      const stop = (): void => {
        end();
        resolve();
      };
      const fail = (error: Error): void => {
        end();
        reject(error);
      };
      const watcher: Watcher = { program, onChange, fail };
      this.#watchers.add(watcher);
      signal.addEventListener("abort", stop);
    });
  }
}

function changeOf(operations: readonly NftOperation[]): Omit<NftForeignChange, "by" | "generation"> {
  const chains = new Set<string>();
  const sets = new Set<string>();
  const defined = new Set<string>();
  let isTotal = false;
  for (const operation of operations) {
    switch (operation.kind) {
      case "add-table":
      case "delete-table":
        isTotal = true;
        break;
      case "add-chain":
        chains.add(operation.chain.name);
        defined.add(operation.chain.name);
        break;
      case "add-set":
        sets.add(operation.set.name);
        defined.add(operation.set.name);
        break;
      case "flush-chain":
      case "delete-chain":
      case "add-rule":
        chains.add(operation.chain);
        break;
      case "add-counter":
      case "delete-counter":
        break;
      case "delete-set":
        sets.add(operation.set);
        break;
      default:
        sets.add(operation.set.name);
    }
  }
  return { chains, sets, defined, isTotal };
}
