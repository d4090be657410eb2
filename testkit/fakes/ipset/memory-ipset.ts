/**
 * IP sets of one network namespace in memory. Behaves like the kernel (`testing/ipset-contract.ts`); tests can make it
 * reject operations and declare which sets rules refer to.
 */

import {
  type Ipset,
  type IpsetDefinition,
  type IpsetEntry,
  type IpsetFailure,
  type IpsetOperation,
  type IpsetType,
  ipsetEntryText,
} from "../../../src/modes/ipvs/ipset/ipset.ts";
import { creationOf, ipsetError, ipsetFailure } from "../../../src/modes/ipvs/ipset/netlink-ipset.ts";
import { familyOf, type IpFamily, isZeroCidr } from "../../../src/net/ip.ts";

/** The mode's value, and the kernel's default: reference ipvs.md §6. */
const MAX_ELEMENTS = 65_536;

const KIND_OF: Readonly<Record<IpsetType, IpsetEntry["kind"]>> = {
  "hash:ip": "ip",
  "hash:ip,port": "ip-port",
  "hash:ip,port,ip": "ip-port-ip",
  "hash:ip,port,net": "ip-port-net",
  "bitmap:port": "port",
};

/** Decides by returning a code whether an operation is rejected, in any state. */
export type IpsetFault = (operation: IpsetOperation) => string | undefined;

interface MemorySet {
  /** The kernel's name of the type; any type. */
  type: string;
  family: IpFamily | undefined;
  /** By their text. */
  members: Map<string, IpsetEntry>;
}

export interface MemoryIpsetOptions {
  /** Whether a rule refers to the set of that name, besides those in {@link MemoryIpset.references}. @default none does */
  readonly isInUse?: (name: string) => boolean;
}

export class MemoryIpset implements Ipset {
  /** Names of sets that a rule refers to: they cannot be destroyed. */
  readonly references = new Set<string>();
  readonly #isInUse: (name: string) => boolean;
  readonly #sets = new Map<string, MemorySet>();
  readonly #faults = new Set<IpsetFault>();
  readonly #operations: IpsetOperation[] = [];
  #messages = 0;

  constructor({ isInUse = () => false }: MemoryIpsetOptions = {}) {
    this.#isInUse = isInUse;
  }

  /** Whether there is a set of that name, of any type. */
  has(name: string): boolean {
    return this.#sets.has(name);
  }

  /** Number of requests so far, including reads: what a netlink implementation would send. */
  get messages(): number {
    return this.#messages;
  }

  /** Clears the operations that were carried out. @returns them, oldest first. */
  takeOperations(): IpsetOperation[] {
    return this.#operations.splice(0);
  }

  /** From now on rejects operations for which `fault` returns a code. @returns a function that ends that. */
  refuse(fault: IpsetFault): () => void {
    this.#faults.add(fault);
    return () => this.#faults.delete(fault);
  }

  /** Another program creates a set of any type, replacing one of the same name. */
  createForeign(name: string, type: string, family: IpFamily | undefined): void {
    this.#sets.set(name, { type, family, members: new Map() });
  }

  async sets(): Promise<readonly IpsetDefinition<string>[]> {
    this.#messages++;
    return Array.from(this.#sets, ([name, { type, family }]) => ({ name, type, family }));
  }

  async ensure(definition: IpsetDefinition): Promise<void> {
    const { name, type, family } = definition;
    const what = creationOf(definition);
    this.#messages++;
    const existing = this.#sets.get(name);
    if (existing === undefined) this.#sets.set(name, { type, family, members: new Map() });
    else if (existing.type !== type || existing.family !== family) throw ipsetError(what, "EEXIST");
  }

  async members(name: string, signal?: AbortSignal): Promise<readonly IpsetEntry[] | undefined> {
    signal?.throwIfAborted();
    this.#messages++;
    const set = this.#sets.get(name);
    return set && [...set.members.values()];
  }

  async apply(operations: readonly IpsetOperation[], signal?: AbortSignal): Promise<readonly IpsetFailure[]> {
    const failures: IpsetFailure[] = [];
    for (const operation of operations) {
      signal?.throwIfAborted();
      this.#messages++;
      const code = this.#fault(operation) ?? this.#execute(operation);
      if (code === undefined) this.#operations.push(operation);
      else failures.push(ipsetFailure(operation, code));
    }
    return failures;
  }

  /** Another program empties the set. */
  async flush(name: string): Promise<void> {
    this.#sets.get(name)?.members.clear();
  }

  async destroy(name: string): Promise<void> {
    this.#messages++;
    if (!this.#sets.has(name)) return;
    if (this.references.has(name) || this.#isInUse(name)) throw ipsetError(`destroy the set ${name}`, "IPSET_ERR_BUSY");
    this.#sets.delete(name);
  }

  async close(): Promise<void> {}

  #fault(operation: IpsetOperation): string | undefined {
    for (const fault of this.#faults) {
      const code = fault(operation);
      if (code !== undefined) return code;
    }
    return undefined;
  }

  /** @returns the error code, or `undefined` on success. */
  #execute({ kind, set: name, entry }: IpsetOperation): string | undefined {
    const set = this.#sets.get(name);
    if (set === undefined) return "ENOENT";
    if (!fits(entry, set)) return "IPSET_ERR_PROTOCOL";
    if (entry.kind === "ip-port-net" && isZeroCidr(entry.network)) return "IPSET_ERR_INVALID_CIDR";
    const text = ipsetEntryText(entry);
    if (kind === "delete") set.members.delete(text);
    else if (set.members.has(text)) return undefined;
    else if (set.family !== undefined && set.members.size >= MAX_ELEMENTS) return "IPSET_ERR_HASH_FULL";
    else set.members.set(text, entry);
    return undefined;
  }
}

function isOurs(type: string): type is IpsetType {
  return type in KIND_OF;
}

function fits(entry: IpsetEntry, { type, family }: MemorySet): boolean {
  if (!isOurs(type) || KIND_OF[type] !== entry.kind) return false;
  return entry.kind === "port" || familyOf(entry.address) === family;
}
