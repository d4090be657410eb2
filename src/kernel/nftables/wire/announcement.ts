/** What the kernel announces to those who joined NFNLGRP_NFTABLES: each object that a commit added or deleted. */
import { forEachAttribute, zstring } from "../../netlink/attributes.ts";
import type { Reply } from "../../netlink/frames.ts";
import { nfnetlinkPayload } from "../../netlink/nfnetlink.ts";
import * as nft from "./constants.ts";

export interface Announcement {
  readonly family: number;
  readonly table: string | undefined;
  /** A rule counts as a change of its chain, an element as one of its set. */
  readonly kind: "table" | "chain" | "set" | "other";
  /** Of the chain or set. */
  readonly name: string | undefined;
  /** Whether the chain or set itself was made or defined again. */
  readonly isDefinition: boolean;
}

/** NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, …: the same number in all messages. */
const TABLE = 1;
/** Per message: what changes, and the attribute that names it. */
const SUBJECTS: ReadonlyMap<number, readonly [kind: Announcement["kind"], nameAttribute: number]> = new Map([
  [nft.NFT_MSG_NEWTABLE, ["table", TABLE]],
  [nft.NFT_MSG_DELTABLE, ["table", TABLE]],
  [nft.NFT_MSG_NEWCHAIN, ["chain", 3]],
  [nft.NFT_MSG_DELCHAIN, ["chain", 3]],
  [nft.NFT_MSG_NEWRULE, ["chain", 2]],
  [nft.NFT_MSG_DELRULE, ["chain", 2]],
  [nft.NFT_MSG_NEWSET, ["set", 2]],
  [nft.NFT_MSG_DELSET, ["set", 2]],
  [nft.NFT_MSG_NEWSETELEM, ["set", 2]],
  [nft.NFT_MSG_DELSETELEM, ["set", 2]],
]);

/** Reads no more than where the change was. Throws `malformed`. */
export function announcedObject(reply: Reply): Announcement {
  const [kind, nameAttribute] = SUBJECTS.get(reply.type & 0xff) ?? (["other", 0] as const);
  const { family, input, start, end } = nfnetlinkPayload(reply);
  let table: string | undefined;
  let name: string | undefined;
  forEachAttribute(input, start, end, (type, from, to) => {
    if (type === TABLE) table = zstring.read(input, from, to);
    else if (type === nameAttribute) name = zstring.read(input, from, to);
  });
  const message = reply.type & 0xff;
  const isDefinition = message === nft.NFT_MSG_NEWCHAIN || message === nft.NFT_MSG_NEWSET;
  return { family, table, kind, name, isDefinition };
}
