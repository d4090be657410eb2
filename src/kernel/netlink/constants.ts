/** Netlink constants shared by all families, under the kernel's names (linux/netlink.h; reference nfnetlink.md §1–2). */

export const NETLINK_ROUTE = 0;
export const NETLINK_NETFILTER = 12;
export const NETLINK_GENERIC = 16;

export const NLMSG_HDRLEN = 16;
export const NLMSG_NOOP = 1;
export const NLMSG_ERROR = 2;
export const NLMSG_DONE = 3;

export const NLM_F_REQUEST = 0x1;
export const NLM_F_ACK = 0x4;
export const NLM_F_DUMP_INTR = 0x10;
export const NLM_F_DUMP = 0x300;
/** For requests that create: replace an existing object, fail if it exists, create, append. */
export const NLM_F_REPLACE = 0x100;
export const NLM_F_EXCL = 0x200;
export const NLM_F_CREATE = 0x400;
export const NLM_F_APPEND = 0x800;
/** For requests that delete: fail if the object still contains others. */
export const NLM_F_NONREC = 0x100;
/** On NLMSG_ERROR: the request's payload is omitted; extended-ACK attributes follow. */
export const NLM_F_CAPPED = 0x100;
export const NLM_F_ACK_TLVS = 0x200;

export const NLA_F_NESTED = 0x8000;
export const NLA_F_NET_BYTEORDER = 0x4000;
export const NLA_TYPE_MASK = 0x3fff;
export const NLA_HDRLEN = 4;
/** The length field of an attribute has 16 bits. */
export const NLA_MAX_LENGTH = 0xffff;

export const NLMSGERR_ATTR_MSG = 1;
export const NLMSGERR_ATTR_OFFS = 2;
export const NLMSGERR_ATTR_MISS_TYPE = 5;

export const AF_INET = 2;
export const AF_INET6 = 10;

/** The byte order of x86-64 and arm64, for which Node.js is pinned. Netlink headers and many kernel integers use it. */
export const HOST_IS_LITTLE_ENDIAN = true;
