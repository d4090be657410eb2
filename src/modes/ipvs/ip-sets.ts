/** Compares and reconciles the IP sets of one family in the kernel. */

import { giveTurn, isTurnDue } from "../../async/turns.ts";
import type { IpFamily } from "../../net/ip.ts";
import {
  type Ipset,
  type IpsetDefinition,
  type IpsetEntry,
  IpsetError,
  type IpsetOperation,
  ipsetEntryText,
} from "./ipset/ipset.ts";
import { SET_IDS, type SetId, setDefinition, setName } from "./names.ts";
import type { IpvsOptions } from "./options.ts";
import type { IpvsWanted, PartFailure } from "./wanted.ts";

/** Operations in the order of execution. */
export interface SetDifference {
  readonly additions: readonly IpsetOperation[];
  readonly deletions: readonly IpsetOperation[];
}

export class IpSets {
  readonly #ipset: Ipset;
  readonly #family: IpFamily;
  #unusable: ReadonlyMap<SetId, string> = new Map();
  /** Sets that may lack wanted members or have unwanted ones. */
  #doubt = new Set<SetId>();

  constructor({ ipset, config }: IpvsOptions) {
    this.#ipset = ipset;
    this.#family = config.family;
  }

  /** Sets that cannot be created, and why. */
  get unusable(): ReadonlyMap<SetId, string> {
    return this.#unusable;
  }

  /** Creates missing sets. Throws if the kernel has no IP sets at all. */
  async ensure(): Promise<void> {
    const present = new Map((await this.#ipset.sets()).map((set) => [set.name, set]));
    const unusable = new Map<SetId, string>();
    for (const id of SET_IDS) {
      const definition = setDefinition(id, this.#family);
      const there = present.get(definition.name);
      if (there?.type === definition.type && there.family === definition.family) continue;
      const reason = await this.#create(definition, there);
      if (reason !== undefined) unusable.set(id, reason);
    }
    this.#unusable = unusable;
  }

  /** Tries to create the unusable sets. @returns whether one of them is usable now. */
  async isAnyUsableAgain(): Promise<boolean> {
    for (const id of this.#unusable.keys()) {
      if ((await this.#create(setDefinition(id, this.#family))) === undefined) return true;
    }
    return false;
  }

  /** Reads the members of all sets. */
  async compareAll(wanted: IpvsWanted, signal: AbortSignal): Promise<SetDifference> {
    this.#doubt = new Set();
    return await this.#compare(SET_IDS, wanted, signal);
  }

  /** Reads only the members of sets in doubt. */
  async compareTouched(wanted: IpvsWanted, signal: AbortSignal): Promise<SetDifference> {
    const additions: IpsetOperation[] = [];
    const deletions: IpsetOperation[] = [];
    const doubtful = this.#doubt;
    this.#doubt = new Set();
    for (const id of SET_IDS) {
      if (doubtful.has(id) || this.#unusable.has(id)) continue;
      const set = setName(id, this.#family);
      for (const [key, before] of wanted.of[id].touched) {
        const after = wanted.of[id].get(key);
        if (before === undefined && after !== undefined) additions.push({ kind: "add", set, entry: after });
        if (before !== undefined && after === undefined) deletions.push({ kind: "delete", set, entry: before });
      }
    }
    const found = await this.#compare([...doubtful], wanted, signal);
    return {
      additions: [...additions, ...found.additions],
      deletions: [...deletions.reverse(), ...found.deletions],
    };
  }

  /** Adds entries. If the kernel rejects some, compares their sets and tries once more. */
  async add({ additions }: SetDifference, wanted: IpvsWanted, signal: AbortSignal): Promise<readonly PartFailure[]> {
    const refused = await this.#apply(additions, signal);
    if (refused.length === 0) return [];
    await this.ensure();
    const ids = new Set(refused.map(({ kind }) => kind).filter((id) => !this.#unusable.has(id)));
    const again = await this.#compare([...ids], wanted, signal);
    return this.#doubted(await this.#apply(again.additions, signal));
  }

  /** Deletes entries. Comes after {@link IpSets.add}. */
  async delete({ deletions }: SetDifference, signal: AbortSignal): Promise<readonly PartFailure[]> {
    return this.#doubted(await this.#apply(deletions, signal));
  }

  #doubted(failures: readonly PartFailure<SetId>[]): readonly PartFailure[] {
    for (const { kind } of failures) this.#doubt.add(kind);
    return failures;
  }

  async #apply(operations: readonly IpsetOperation[], signal: AbortSignal): Promise<PartFailure<SetId>[]> {
    const failures = operations.length === 0 ? [] : await this.#ipset.apply(operations, signal);
    return failures.flatMap(({ operation: { set, entry }, message }) => {
      const kind = SET_IDS.find((id) => setName(id, this.#family) === set);
      return kind === undefined ? [] : [{ kind, key: ipsetEntryText(entry), reason: message }];
    });
  }

  async #compare(ids: readonly SetId[], wanted: IpvsWanted, signal: AbortSignal): Promise<SetDifference> {
    const additions: IpsetOperation[] = [];
    const deletions: IpsetOperation[] = [];
    for (const id of ids) {
      if (this.#unusable.has(id)) continue;
      const set = setName(id, this.#family);
      const owners = wanted.of[id];
      const present = new Map<string, IpsetEntry>();
      for (const entry of (await this.#ipset.members(set, signal)) ?? []) {
        const key = ipsetEntryText(entry);
        present.set(key, entry);
        if (!owners.has(key)) deletions.push({ kind: "delete", set, entry });
        if (isTurnDue()) await giveTurn(signal);
      }
      for (const key of owners.keys()) {
        const entry = owners.get(key);
        if (entry !== undefined && !present.has(key)) additions.push({ kind: "add", set, entry });
        if (isTurnDue()) await giveTurn(signal);
      }
    }
    return { additions, deletions: deletions.reverse() };
  }

  /** @returns why the set cannot be created; undefined if it exists. */
  async #create(definition: IpsetDefinition, there?: IpsetDefinition<string>): Promise<string | undefined> {
    const { name } = definition;
    try {
      await this.#ipset.ensure(definition);
      return undefined;
    } catch (error) {
      if (!(error instanceof IpsetError)) throw error;
      if (error.code !== "EEXIST") return error.message;
      const found = there === undefined ? "another type" : textOf(there);
      return `there is an IP set ${name} of type ${found}, and it must be of type ${textOf(definition)}: find out whose it is, remove the rules that refer to it, and delete it (ipset destroy ${name})`;
    }
  }
}

function textOf({ type, family }: IpsetDefinition<string>): string {
  return family === undefined ? type : `${type} (${family})`;
}
