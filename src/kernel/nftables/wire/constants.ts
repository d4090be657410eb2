/** nf_tables constants under the kernel's names (linux/netfilter/nf_tables.h; reference nfnetlink.md §2, §4–6). */

export const NFT_MSG_NEWTABLE = 0;
export const NFT_MSG_GETTABLE = 1;
export const NFT_MSG_DELTABLE = 2;
export const NFT_MSG_NEWCHAIN = 3;
export const NFT_MSG_GETCHAIN = 4;
export const NFT_MSG_DELCHAIN = 5;
export const NFT_MSG_NEWRULE = 6;
export const NFT_MSG_GETRULE = 7;
export const NFT_MSG_DELRULE = 8;
export const NFT_MSG_NEWSET = 9;
export const NFT_MSG_GETSET = 10;
export const NFT_MSG_DELSET = 11;
export const NFT_MSG_NEWSETELEM = 12;
export const NFT_MSG_GETSETELEM = 13;
export const NFT_MSG_DELSETELEM = 14;
export const NFT_MSG_NEWGEN = 15;
export const NFT_MSG_GETGEN = 16;
export const NFT_MSG_TRACE = 17;
export const NFT_MSG_NEWOBJ = 18;
export const NFT_MSG_GETOBJ = 19;
export const NFT_MSG_DELOBJ = 20;

export const NFTA_SET_ELEM_LIST_ELEMENTS = 3;
export const NFTA_LIST_ELEM = 1;

export const NFT_OBJECT_COUNTER = 1;

/** The table is switched off. */
export const NFT_TABLE_F_DORMANT = 0x1;
/** The table is owned by the socket that created it: no other can change it, and it goes with that socket. Linux 5.12. */
export const NFT_TABLE_F_OWNER = 0x2;

/** The multicast group for changes to the ruleset. */
export const NFNLGRP_NFTABLES = 7;
/** The multicast group for trace messages. */
export const NFNLGRP_NFTRACE = 9;

export const NFT_TRACETYPE_POLICY = 1;
export const NFT_TRACETYPE_RETURN = 2;
export const NFT_TRACETYPE_RULE = 3;

export const NF_INET_HOOKS = { prerouting: 0, input: 1, forward: 2, output: 3, postrouting: 4 } as const;

export const NF_DROP = 0;
export const NF_ACCEPT = 1;
export const NFT_JUMP = -3;
export const NFT_GOTO = -4;
export const VERDICT_CODES = { drop: NF_DROP, return: -5, jump: NFT_JUMP, goto: NFT_GOTO } as const;

/** The verdict register, and four of 16 bytes; `NFT_REG32_00` + n addresses the same bytes in words of four. */
export const NFT_REG_VERDICT = 0;
export const NFT_REG_1 = 1;
export const NFT_REG_2 = 2;
export const NFT_REG32_00 = 8;

export const NFT_SET_ANONYMOUS = 0x1;
export const NFT_SET_CONSTANT = 0x2;
export const NFT_SET_INTERVAL = 0x4;
export const NFT_SET_MAP = 0x8;
export const NFT_SET_TIMEOUT = 0x10;
export const NFT_SET_EVAL = 0x20;

export const NFT_SET_ELEM_INTERVAL_END = 0x1;
/** The catch-all element, without a key: matches all keys that are not in the set. */
export const NFT_SET_ELEM_CATCHALL = 0x2;

export const NFT_META_MARK = 3;
export const NFT_META_IIFNAME = 6;
export const NFT_META_NFTRACE = 12;
export const NFT_META_L4PROTO = 16;

export const NFT_PAYLOAD_NETWORK_HEADER = 1;
export const NFT_PAYLOAD_TRANSPORT_HEADER = 2;

export const NFT_CMP_EQ = 0;
export const NFT_CMP_NEQ = 1;

export const NFT_LOOKUP_F_INV = 1;

export const NFT_CT_STATE = 0;
export const NFT_CT_DIRECTION = 1;
export const NFT_CT_STATUS = 2;
export const NFT_CT_PROTOCOL = 10;
export const NFT_CT_PROTO_SRC = 11;
export const NFT_CT_PROTO_DST = 12;
export const NFT_CT_SRC_IP = 19;
export const NFT_CT_DST_IP = 20;
export const NFT_CT_SRC_IP6 = 21;
export const NFT_CT_DST_IP6 = 22;
/** Directions of a connection. */
export const IP_CT_DIR_ORIGINAL = 0;
export const IP_CT_DIR_REPLY = 1;

export const NFT_FIB_RESULT_ADDRTYPE = 3;
export const NFTA_FIB_F_SADDR = 1;
export const NFTA_FIB_F_DADDR = 2;
export const RTN_LOCAL = 2;

export const NFT_NG_RANDOM = 1;
export const NFT_HASH_JENKINS = 0;
export const NFT_NAT_DNAT = 1;
export const NF_NAT_RANGE_PROTO_SPECIFIED = 0x2;
export const NF_NAT_RANGE_PROTO_RANDOM_FULLY = 0x10;
export const NFT_REJECT_ICMP_UNREACH = 0;
export const NFT_REJECT_TCP_RST = 1;
export const NFT_DYNSET_OP_UPDATE = 1;

/** nft's type numbers: they only affect how nft lists a set. */
export const NFT_TYPES = {
  verdict: 0xffff_ff00,
  integer: 4,
  ipv4_addr: 7,
  ipv6_addr: 8,
  inet_proto: 12,
  inet_service: 13,
} as const;

/** The type number of a concatenation, with the first field most significant. */
export function concatType(types: readonly number[]): number {
  return types.reduce((id, type) => ((id << 6) | type) >>> 0, 0);
}
