/** Refusals of the kernel's IP sets in words; both implementations say the same. Pure. */
import { type IpsetDefinition, IpsetError, type IpsetFailure, type IpsetOperation, ipsetEntryText } from "./ipset.ts";

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
