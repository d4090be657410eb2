/**
 * The kernel's IP sets of one network namespace. Two implementations, nfnetlink (`netlink-ipset.ts`) and memory
 * (`memory-ipset.ts`), pass the same contract test. This layer knows nothing about Services.
 */

import type { Cidr, IpAddress, IpFamily } from "../../../net/ip.ts";
import type { ProtocolName } from "../../../net/protocol.ts";

/** The supported set types. */
export type IpsetType = "hash:ip" | "hash:ip,port" | "hash:ip,port,ip" | "hash:ip,port,net" | "bitmap:port";

/** The definition of a set. `create` cannot replace a set by one with another definition. */
export interface IpsetDefinition<Type extends string = IpsetType> {
  /** At most 31 characters (IPSET_MAXNAMELEN). */
  readonly name: string;
  readonly type: Type;
  /** `undefined` for `bitmap:port`. */
  readonly family: IpFamily | undefined;
}

/** A member. Its fields follow from the set's type, in the order of the type's name. */
export type IpsetEntry =
  | { readonly kind: "ip"; readonly address: IpAddress }
  | { readonly kind: "ip-port"; readonly address: IpAddress; readonly protocol: ProtocolName; readonly port: number }
  | {
      readonly kind: "ip-port-ip";
      readonly address: IpAddress;
      readonly protocol: ProtocolName;
      readonly port: number;
      readonly second: IpAddress;
    }
  | {
      readonly kind: "ip-port-net";
      readonly address: IpAddress;
      readonly protocol: ProtocolName;
      readonly port: number;
      readonly network: Cidr;
    }
  | { readonly kind: "port"; readonly port: number };

/** The entry as `ipset list` prints it: `10.0.0.1,tcp:80,10.0.0.1`; a network of full length without its length. */
export function ipsetEntryText(entry: IpsetEntry): string {
  switch (entry.kind) {
    case "ip":
      return entry.address;
    case "port":
      return `${entry.port}`;
    case "ip-port":
      return `${entry.address},${entry.protocol}:${entry.port}`;
    case "ip-port-ip":
      return `${entry.address},${entry.protocol}:${entry.port},${entry.second}`;
    case "ip-port-net":
      return `${entry.address},${entry.protocol}:${entry.port},${networkText(entry.network)}`;
  }
}

function networkText(network: Cidr): string {
  return network.replace(network.includes(":") ? /\/128$/ : /\/32$/, "");
}

export interface IpsetOperation {
  readonly kind: "add" | "delete";
  readonly set: string;
  readonly entry: IpsetEntry;
}

/** An operation that the kernel rejected. */
export interface IpsetFailure {
  readonly operation: IpsetOperation;
  /** The errno's name, or ipset's own (`IPSET_ERR_HASH_FULL`, `IPSET_ERR_TYPE_MISMATCH`, …). */
  readonly code: string;
  /** A sentence that names the set, the entry and the cause. */
  readonly message: string;
}

export interface Ipset {
  /** All sets of the namespace, of any type. */
  sets(): Promise<readonly IpsetDefinition<string>[]>;
  /**
   * Creates the set (hashsize 1024, maxelem 65536; ports 0-65535: reference ipvs.md §6) unless an equal one exists.
   * Throws an IpsetError with code `EEXIST` if the name belongs to a set of another type or family.
   */
  ensure(definition: IpsetDefinition): Promise<void>;
  /** The members, in no particular order; `undefined` if there is no such set. */
  members(name: string, signal?: AbortSignal): Promise<readonly IpsetEntry[] | undefined>;
  /** Adds and deletes, many entries per system call. Adding an existing entry or deleting a missing one is no failure. */
  apply(operations: readonly IpsetOperation[], signal?: AbortSignal): Promise<readonly IpsetFailure[]>;
  /** Destroys the set, if it exists. Throws an IpsetError with code `IPSET_ERR_BUSY` while a rule refers to it. */
  destroy(name: string): Promise<void>;
  close(): Promise<void>;
}

/** The kernel failed to create, destroy or list a set. */
export class IpsetError extends Error {
  override readonly name = "IpsetError";
  /** See {@link IpsetFailure.code}. */
  readonly code: string;
  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
