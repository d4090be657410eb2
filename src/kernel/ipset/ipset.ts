/**
 * The kernel's IP sets of one network namespace. Two implementations, nfnetlink (`netlink-ipset.ts`) and memory
 * (`memory-ipset.ts`), pass one contract test. Knows nothing of Services.
 */

import type { Cidr, IpAddress, IpFamily } from "../../net/ip.ts";
import type { ProtocolName } from "../../net/protocol.ts";

/** The types that are spoken here. */
export type IpsetType = "hash:ip" | "hash:ip,port" | "hash:ip,port,ip" | "hash:ip,port,net" | "bitmap:port";

/** What a set is; two sets of one name and different definitions cannot replace each other by `create`. */
export interface IpsetDefinition<Type extends string = IpsetType> {
  /** At most 31 characters (IPSET_MAXNAMELEN). */
  readonly name: string;
  readonly type: Type;
  /** `undefined` for `bitmap:port`. */
  readonly family: IpFamily | undefined;
}

/** A member; which fields it has follows from the set's type, in the order of the type's name. */
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

/** The entry as `ipset list` prints it: `10.0.0.1,tcp:80,10.0.0.1`; networks of full length without theirs. Pure. */
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

/** An operation that the kernel refused. */
export interface IpsetFailure {
  readonly operation: IpsetOperation;
  /** The errno's name, or ipset's own (`IPSET_ERR_HASH_FULL`, `IPSET_ERR_TYPE_MISMATCH`, …). */
  readonly code: string;
  /** Names the set, the entry and the cause, in words. */
  readonly message: string;
}

export interface Ipset {
  /** Every set of the namespace, of any type. */
  sets(): Promise<readonly IpsetDefinition<string>[]>;
  /**
   * Creates the set unless an equal one exists (hashsize 1024, maxelem 65536; ports 0-65535): reference ipvs.md
   * §6. Throws an IpsetError with code `EEXIST` when the name belongs to a set of another type or family.
   */
  ensure(definition: IpsetDefinition): Promise<void>;
  /** The members, in no particular order; `undefined` when there is no such set. */
  members(name: string, signal?: AbortSignal): Promise<readonly IpsetEntry[] | undefined>;
  /** Adds and deletes, many to a system call. Adding what is there and deleting what is not are no failures. */
  apply(operations: readonly IpsetOperation[], signal?: AbortSignal): Promise<readonly IpsetFailure[]>;
  /** Destroys the set; a missing one is no error. Throws with code `IPSET_ERR_BUSY` while a rule refers to it. */
  destroy(name: string): Promise<void>;
  close(): Promise<void>;
}

/** The kernel refused to create or destroy a set, or to list one. */
export class IpsetError extends Error {
  override readonly name = "IpsetError";
  /** As {@link IpsetFailure.code}. */
  readonly code: string;
  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
