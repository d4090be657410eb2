/** ipset's own error numbers (uapi/linux/netfilter/ipset/ip_set.h, kernel's ip_set_hash.h and ip_set_bitmap.h). Pure. */
import { errnoName } from "../netlink/errors.ts";
import type { IpsetType } from "./ipset.ts";

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
