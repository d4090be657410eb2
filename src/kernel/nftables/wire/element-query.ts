/** Queries single elements. Each request holds the full expected element, so that an equal answer need not be decoded. */
import { type ByteReader, byteReader, sameAttributes } from "../../netlink/attributes.ts";
import { NLA_F_NESTED } from "../../netlink/constants.ts";
import type { Reply } from "../../netlink/frames.ts";
import { MessageBuffer } from "../../netlink/message-buffer.ts";
import { NFNL_HEADERS_BYTES, NFNL_SUBSYS_NFTABLES, nfnetlinkPayload, putNfnetlink } from "../../netlink/nfnetlink.ts";
import { NFT_MSG_GETSETELEM, NFTA_LIST_ELEM, NFTA_SET_ELEM_LIST_ELEMENTS } from "./constants.ts";
import { elements, type NftElementObject } from "./objects.ts";

export type ElementAnswer = "missing" | "as expected" | NftElementObject;

/** A series of queries for elements of one table. */
export class ElementQuery {
  /** One message per query. */
  readonly messages = new MessageBuffer();
  readonly #family: number;
  readonly #table: string;
  #sent: ByteReader | undefined;

  constructor(family: number, table: string) {
    this.#family = family;
    this.#table = table;
  }

  get size(): number {
    return this.messages.count;
  }

  /** Queries the element at a key; the kernel ignores all but the key. @param write writes all expected attributes. */
  add(set: string, write: (out: MessageBuffer) => void): void {
    putNfnetlink(this.messages, NFNL_SUBSYS_NFTABLES, NFT_MSG_GETSETELEM, 0, this.#family, (out) => {
      elements.write(out, { table: this.#table, set });
      const nest = out.openAttribute(NFTA_SET_ELEM_LIST_ELEMENTS | NLA_F_NESTED);
      const one = out.openAttribute(NFTA_LIST_ELEM | NLA_F_NESTED);
      write(out);
      out.closeAttribute(one);
      out.closeAttribute(nest);
    });
    this.#sent = undefined;
  }

  /** Reads the kernel's answer to a query. Throws `malformed`. */
  answer(index: number, reply: Reply): ElementAnswer {
    const { input, start, end } = nfnetlinkPayload(reply);
    this.#sent ??= byteReader(this.messages.bytes);
    const from = this.messages.startOf(index) + NFNL_HEADERS_BYTES;
    const to = this.messages.startOf(index + 1);
    if (sameAttributes(this.#sent, [from, to], input, [start, end])) return "as expected";
    return elements.read(input, start, end).elements?.[0] ?? "missing";
  }

  /** Drops all queries. */
  reset(): void {
    this.messages.reset();
    this.#sent = undefined;
  }
}
