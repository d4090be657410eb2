/**
 * Builds an nf_tables transaction: `add`, `create` and `delete` of typed objects, in order, for one atomic batch
 * (reference nfnetlink.md §3, §13). Only the bytes to send are kept; to explain an error, the message that it names is
 * decoded.
 *
 *     batch.add("table", { name: "kube-proxy" });
 *     batch.delete("rule", { table, chain });          // flush a chain
 *     batch.delete("elements", { table, set });        // flush a set
 */
import type { Codec, ValueOf } from "../../netlink/attributes.ts";
import { NLA_F_NESTED, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_NONREC } from "../../netlink/constants.ts";
import { MessageBuffer } from "../../netlink/message-buffer.ts";
import { beginBatch, endBatch, NFNL_SUBSYS_NFTABLES, openNfnetlink } from "../../netlink/nfnetlink.ts";
import * as nft from "./constants.ts";
import { chain, counter, element, elements, type NftElementObject, rule, set, table } from "./objects.ts";

interface Kind {
  readonly add: number;
  readonly delete: number;
  readonly flags: number;
  readonly codec: Codec<unknown>;
}

/** For each kind: the messages that add and delete it, the flags for adding, and its attributes. */
export const KINDS = {
  table: { add: nft.NFT_MSG_NEWTABLE, delete: nft.NFT_MSG_DELTABLE, flags: NLM_F_CREATE, codec: table },
  chain: { add: nft.NFT_MSG_NEWCHAIN, delete: nft.NFT_MSG_DELCHAIN, flags: NLM_F_CREATE, codec: chain },
  rule: { add: nft.NFT_MSG_NEWRULE, delete: nft.NFT_MSG_DELRULE, flags: NLM_F_CREATE | NLM_F_APPEND, codec: rule },
  set: { add: nft.NFT_MSG_NEWSET, delete: nft.NFT_MSG_DELSET, flags: NLM_F_CREATE, codec: set },
  counter: { add: nft.NFT_MSG_NEWOBJ, delete: nft.NFT_MSG_DELOBJ, flags: NLM_F_CREATE, codec: counter },
  elements: { add: nft.NFT_MSG_NEWSETELEM, delete: nft.NFT_MSG_DELSETELEM, flags: NLM_F_CREATE, codec: elements },
} as const satisfies Record<string, Kind>;

export type NftKind = keyof typeof KINDS;
const KIND_NAMES = Object.keys(KINDS) as NftKind[]; // the table's own keys

/** The operation of a message; undefined for batch markers. @param type includes the subsystem. */
export function operationOfType(type: number): { readonly verb: "add" | "delete"; readonly kind: NftKind } | undefined {
  if (type >> 8 !== NFNL_SUBSYS_NFTABLES) return undefined;
  for (const kind of KIND_NAMES) {
    if (KINDS[kind].add === (type & 0xff)) return { verb: "add", kind };
    if (KINDS[kind].delete === (type & 0xff)) return { verb: "delete", kind };
  }
  return undefined;
}
type NftObject<K extends NftKind> = ValueOf<(typeof KINDS)[K]["codec"]>;
type ElementsHead = Omit<NftObject<"elements">, "elements">;

/** Leaves room for one more element of any size below an attribute's limit of 65,535 bytes. */
const ELEMENTS_BYTES_LIMIT = 60_000;
/** Offset of the NFNL_BATCH_GENID value in the begin marker: after the two message headers and the attribute's header. */
const GENERATION_AT = 24;

export class NftBatch {
  readonly messages: MessageBuffer;
  readonly #family: number;
  #nextSetId = 1;
  #isFinished = false;

  /**
   * @param family NFPROTO_IPV4 or NFPROTO_IPV6, for all messages.
   * @param options `generation`: fail unless the ruleset is in this generation; `messages`: an empty buffer to write to.
   */
  constructor(family: number, options: { readonly generation?: number; readonly messages?: MessageBuffer } = {}) {
    this.#family = family;
    this.messages = options.messages ?? new MessageBuffer(4096);
    beginBatch(this.messages, options.generation);
  }

  /** Replaces the generation, to send the batch again. Only for batches that have one. */
  setGeneration(generation: number): void {
    const at = this.messages.startOf(0) + GENERATION_AT;
    if (this.messages.startOf(1) !== at + 4) throw new Error("nf_tables: the batch has no generation to replace");
    this.messages.bytes.writeUInt32BE(generation >>> 0, at);
  }

  /** The number of messages without markers. */
  get size(): number {
    return this.messages.count - (this.#isFinished ? 2 : 1);
  }

  get isFinished(): boolean {
    return this.#isFinished;
  }

  /** A number that is unique in this batch: it links an anonymous set, its elements and the rule that uses it. */
  takeSetId(): number {
    return this.#nextSetId++;
  }

  /** Adds the object; no error if it exists. A set without an id gets one. */
  add<K extends NftKind>(kind: K, object: NftObject<K>): void {
    this.#put(KINDS[kind].add, KINDS[kind].flags, kind, object);
  }

  /** Adds the object; fails if it exists. */
  create<K extends NftKind>(kind: K, object: NftObject<K>): void {
    this.#put(KINDS[kind].add, KINDS[kind].flags | NLM_F_EXCL, kind, object);
  }

  /** Deletes the chain; fails if it still has rules. */
  deleteEmptyChain(object: NftObject<"chain">): void {
    this.#put(KINDS.chain.delete, NLM_F_NONREC, "chain", object);
  }

  /**
   * Deletes the named object with its contents; fails if it does not exist. Without a handle, deletes all rules of the
   * chain; without a list of elements, all elements of the set.
   */
  delete<K extends NftKind>(kind: K, object: NftObject<K>): void {
    this.#put(KINDS[kind].delete, 0, kind, object);
  }

  /** Adds elements to a set. @param target the set by name, or as in {@link changeElements}. */
  addElements(tableName: string, target: string | ElementsHead, items: Iterable<NftElementObject>): void {
    const head = typeof target === "string" ? { set: target } : target;
    this.changeElements("add", { table: tableName, ...head }, items, element.write);
  }

  /**
   * Adds or deletes elements in the caller's own form, in as many messages as their size requires. Without elements, nothing is sent
   * (and nothing is flushed).
   *
   * @param head names the set, or has the id of a set of this batch. With an id alone, the kernel finds the set without walking all sets
   * of the table.
   * @param write writes the attributes of one element (`element` in objects.ts).
   */
  changeElements<T>(
    kind: "add" | "delete",
    head: ElementsHead,
    items: Iterable<T>,
    write: (out: MessageBuffer, item: T) => void,
  ): void {
    const [message, flags] = kind === "add" ? [nft.NFT_MSG_NEWSETELEM, NLM_F_CREATE] : [nft.NFT_MSG_DELSETELEM, 0];
    const out = this.messages;
    const iterator = items[Symbol.iterator]();
    let next = iterator.next();
    while (next.done !== true) {
      const start = this.#open(message, flags);
      elements.write(out, head);
      const nest = out.openAttribute(nft.NFTA_SET_ELEM_LIST_ELEMENTS | NLA_F_NESTED);
      while (next.done !== true && out.length - nest < ELEMENTS_BYTES_LIMIT) {
        const one = out.openAttribute(nft.NFTA_LIST_ELEM | NLA_F_NESTED);
        write(out, next.value);
        out.closeAttribute(one);
        next = iterator.next();
      }
      out.closeAttribute(nest);
      out.closeMessage(start);
    }
  }

  /** Adds the end marker. Without it, the kernel only checks the batch. */
  finish(): void {
    if (this.#isFinished) return;
    this.#isFinished = true;
    endBatch(this.messages);
  }

  #put<K extends NftKind>(message: number, flags: number, kind: K, object: NftObject<K>): void {
    const isNewSet = message === nft.NFT_MSG_NEWSET && !("id" in object && object.id !== undefined);
    const codec: Codec<unknown> = KINDS[kind].codec;
    const write = (out: MessageBuffer) => codec.write(out, isNewSet ? { ...object, id: this.takeSetId() } : object);
    this.messages.fill(this.#open(message, flags), write);
  }

  #open(message: number, flags: number): number {
    if (this.#isFinished) throw new Error("nf_tables: the batch is finished");
    return openNfnetlink(this.messages, (NFNL_SUBSYS_NFTABLES << 8) | message, flags, this.#family);
  }
}
