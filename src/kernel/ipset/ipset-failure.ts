/** Refusals of the kernel's IP sets in words; both implementations say the same. Pure. */

import { errnoName } from "../netlink/errors.ts";
import {
  type IpsetDefinition,
  IpsetError,
  type IpsetFailure,
  type IpsetOperation,
  type IpsetType,
  ipsetEntryText,
} from "./ipset.ts";

/** IPSET_MAXNAMELEN without the terminator. */
const NAME_LIMIT = 31;

/** What the code means, where the name does not say it (uapi/linux/netfilter/ipset/ip_set.h). */
const CAUSES: Readonly<Record<string, string>> = {
  ENOENT: "there is no such set",
  EEXIST: "the name belongs to a set of another type, family or definition: destroy that one or rename it",
  EPERM: "not permitted, this needs CAP_NET_ADMIN",
  ENAMETOOLONG: "the name has more than 31 characters",
  IPSET_ERR_BUSY: "a rule or another set refers to it: remove that first",
  IPSET_ERR_EXIST_SETNAME2: "there is no second set of that name",
  IPSET_ERR_FIND_TYPE: "the kernel has no such set type: load its module (ip_set_hash_*, ip_set_bitmap_port)",
  IPSET_ERR_HASH_FULL: "the set is full",
  IPSET_ERR_INVALID_CIDR: "the kernel takes no network of length 0: add its two halves",
  IPSET_ERR_PROTOCOL: "the entry does not fit the set's type or family",
  IPSET_ERR_TYPE_MISMATCH: "the sets differ in type or family",
};

/** `ipset: cannot add 10.0.0.1 to KUBE-…: the set is full (IPSET_ERR_HASH_FULL)` as a failed operation. */
export function ipsetFailure(operation: IpsetOperation, code: string): IpsetFailure {
  const { kind, set, entry } = operation;
  const preposition = kind === "add" ? "to" : "from";
  return { operation, code, message: message(`${kind} ${ipsetEntryText(entry)} ${preposition} ${set}`, code) };
}

/** The same for anything else. @param what as in "cannot what". */
export function ipsetError(what: string, code: string, options?: ErrorOptions): IpsetError {
  return new IpsetError(code, message(what, code), options);
}

/** As in "cannot …"; throws an IpsetError for a name that the kernel would call invalid without saying why. */
export function creationOf({ name, type }: IpsetDefinition): string {
  const what = `create the ${type} set ${name}`;
  if (Buffer.byteLength(name) > NAME_LIMIT) throw ipsetError(what, "ENAMETOOLONG");
  return what;
}

function message(what: string, code: string): string {
  const cause = CAUSES[code];
  return `ipset: cannot ${what}: ${cause === undefined ? code : `${cause} (${code})`}`;
}

/** From IPSET_ERR_PRIVATE + 1. */
const PRIVATE = 4096;
const COMMON_NAMES = [
  "PROTOCOL",
  "FIND_TYPE",
  "MAX_SETS",
  "BUSY",
  "EXIST_SETNAME2",
  "TYPE_MISMATCH",
  "EXIST",
  "INVALID_CIDR",
  "INVALID_NETMASK",
  "INVALID_FAMILY",
  "TIMEOUT",
  "REFERENCED",
  "IPADDR_IPV4",
  "IPADDR_IPV6",
  "COUNTER",
  "COMMENT",
  "INVALID_MARKMASK",
  "SKBINFO",
  "BITMASK_NETMASK_EXCL",
];
/** From IPSET_ERR_TYPE_SPECIFIC: the same numbers mean other things for other types. */
const TYPE_SPECIFIC = 4352;
const HASH_NAMES = ["HASH_FULL", "HASH_ELEM", "INVALID_PROTO", "MISSING_PROTO", "HASH_RANGE_UNSUPPORTED", "HASH_RANGE"];
const BITMAP_NAMES = ["BITMAP_RANGE", "BITMAP_RANGE_SIZE"];

/** The name of a positive errno: 4352 is `IPSET_ERR_HASH_FULL` for sets of hash types, 17 is `EEXIST`. */
export function ipsetErrorName(errno: number, type: IpsetType): string {
  const specific = type === "bitmap:port" ? BITMAP_NAMES : HASH_NAMES;
  const name = COMMON_NAMES[errno - PRIVATE - 1] ?? specific[errno - TYPE_SPECIFIC];
  return name === undefined ? errnoName(errno) : `IPSET_ERR_${name}`;
}
