/** nf_tables of one network namespace: commits batches, and reads back objects (reference nfnetlink.md §10). */

import type { Codec } from "../../netlink/attributes.ts";
import { NETLINK_NETFILTER, NLM_F_DUMP } from "../../netlink/constants.ts";
import { answersTo, dumpWithRetry } from "../../netlink/dump-retry.ts";
import { NetlinkError } from "../../netlink/errors.ts";
import type { Reply } from "../../netlink/frames.ts";
import { MessageBuffer } from "../../netlink/message-buffer.ts";
import {
  NFNL_SUBSYS_NFTABLES,
  NFPROTO_UNSPEC,
  nfnetlinkPayload,
  putNfnetlink,
  readNfnetlink,
} from "../../netlink/nfnetlink.ts";
import { type BatchResult, type CallOptions, NetlinkSocket } from "../../netlink/socket.ts";
import type { NftBatch } from "./batch.ts";
import * as nft from "./constants.ts";
import type { ElementAnswer, ElementQuery } from "./element-query.ts";
import type { NftElementsObject } from "./objects.ts";
import * as codecs from "./objects.ts";

/** The kernel dumps large rulesets in datagrams of 32 KiB, and a rejected batch can have thousands of errors. */
const RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024;

export type NftablesClient = ReturnType<typeof openNftables>;

/**
 * Opens nf_tables of this process's network namespace. A dump during which the ruleset changes is repeated, up to 5 times; then the last
 * result counts, or for chains the union of all. Methods reject with a NetlinkError: `ENOENT` for a missing table or set.
 */
export function openNftables() {
  const socket = NetlinkSocket.open(NETLINK_NETFILTER, { receiveBufferBytes: RECEIVE_BUFFER_BYTES });

  return {
    /** Applies all of the batch, or nothing. Finishes it if necessary. An empty batch is not sent. */
    async commit(batch: NftBatch, options?: CallOptions): Promise<BatchResult> {
      batch.finish();
      return batch.size === 0 ? { committed: true } : await socket.transact(batch.messages, options);
    },

    /** Asks whether the kernel would accept the batch, without applying it. */
    check(batch: NftBatch, options?: CallOptions) {
      if (batch.isFinished) throw new Error("nf_tables: a finished batch would be applied and not only checked");
      return socket.transact(batch.messages, options);
    },

    /** The generation, which counts all commits in the namespace, and the number of this client's commits. */
    async generation() {
      const [found] = await answersTo(
        socket,
        (request) => putNfnetlink(request, NFNL_SUBSYS_NFTABLES, nft.NFT_MSG_GETGEN, 0, NFPROTO_UNSPEC),
        (reply) => ({ ...readNfnetlink(reply, codecs.generation), commits: socket.commits }),
      );
      return found ?? { commits: socket.commits };
    },

    ...readersOf(socket),

    /** Queries single elements. @param onAnswer called for each answer, in any order. */
    async ask(query: ElementQuery, onAnswer: (index: number, answer: ElementAnswer) => void) {
      const onReply = (reply: Reply, index: number): void => onAnswer(index, query.answer(index, reply));
      for (const error of await socket.exchange(query.messages, onReply, { isAnsweredOnce: true })) {
        const { request } = error.facts;
        if (error.code !== "ENOENT" || request === undefined) throw error;
        onAnswer(request.index, "missing");
      }
    },

    /** The port id in notifications of this client's commits; it changes after a failure of the socket. */
    get portId() {
      return socket.portId;
    },

    /** Whether one of this client's commits caused a notification with this port id. */
    hasPort: (portId: number) => socket.hasPort(portId),

    close: () => socket.close(),
    [Symbol.asyncDispose]: () => socket.close(),
  };
}

/** Reads objects of one kind. */
function readersOf(socket: NetlinkSocket) {
  /**
   * The kernel lists the chains of all tables by position: when other tables' chains are deleted meanwhile, it skips some. It lists
   * rules, sets and elements by table.
   */
  async function dumpChains<T extends { readonly table?: string | undefined; readonly name?: string | undefined }>(
    family: number,
    tableName: string,
    codec: Codec<T>,
  ): Promise<T[]> {
    const { NFT_MSG_GETCHAIN: message } = nft;
    const keyOf = ({ table, name }: T): string => `${table} ${name}`;
    const all = await dumpObjects(socket, { family, message, codec, filter: {} as T, keyOf }); // all of its fields may lack
    return all.filter((found) => found.table === tableName);
  }

  function dump<T>(family: number, message: number, codec: Codec<T>, filter: T): Promise<T[]> {
    return dumpObjects(socket, { family, message, codec, filter });
  }

  return {
    tables: (family: number) => dump(family, nft.NFT_MSG_GETTABLE, codecs.table, {}),

    chains: (family: number, tableName: string) => dumpChains(family, tableName, codecs.chain),

    /** All rules of the table, or of one chain, in order. */
    rules: (family: number, tableName: string, chainName?: string) =>
      dump(family, nft.NFT_MSG_GETRULE, codecs.rule, { table: tableName, chain: chainName }),

    /** The heads have only the essential attributes. */
    chainHeads: (family: number, tableName: string) => dumpChains(family, tableName, codecs.chainHead),

    setHeads: (family: number, tableName: string) =>
      dump(family, nft.NFT_MSG_GETSET, codecs.setHead, { table: tableName }),

    ruleHeads: (family: number, tableName: string, chainName?: string) =>
      dump(family, nft.NFT_MSG_GETRULE, codecs.ruleHead, { table: tableName, chain: chainName }),

    /** The rules of all tables of a family. */
    ruleOutlines: (family: number) => dump(family, nft.NFT_MSG_GETRULE, codecs.ruleOutline, {}),

    /** Named and anonymous sets; the latter have the flag NFT_SET_ANONYMOUS. */
    sets: (family: number, tableName: string) => dump(family, nft.NFT_MSG_GETSET, codecs.set, { table: tableName }),

    counters: (family: number, tableName: string) =>
      dump(family, nft.NFT_MSG_GETOBJ, codecs.counter, { table: tableName, type: nft.NFT_OBJECT_COUNTER }),

    async elements(family: number, tableName: string, setName: string) {
      const filter: NftElementsObject = { table: tableName, set: setName };
      const parts = await dump(family, nft.NFT_MSG_GETSETELEM, codecs.elements, filter);
      return parts.flatMap((part) => part.elements ?? []);
    },
  };
}

interface DumpRequest<T> {
  readonly family: number;
  /** NFT_MSG_GET… */
  readonly message: number;
  readonly codec: Codec<T>;
  /** Attributes that restrict the dump. */
  readonly filter: T;
  /**
   * Identifies the objects of a dump that may skip some when others change: if all five dumps are interrupted, the union counts.
   *
   * @default the last dump counts
   */
  readonly keyOf?: (object: T) => string | undefined;
}

/** All objects of a kind. The dump is repeated if the ruleset changes meanwhile, up to 5 times (reference nfnetlink.md §10). */
export async function dumpObjects<T>(
  socket: Pick<NetlinkSocket, "dump">,
  { family, message, codec, filter, keyOf }: DumpRequest<T>,
): Promise<T[]> {
  const request = new MessageBuffer(128);
  putNfnetlink(request, NFNL_SUBSYS_NFTABLES, message, NLM_F_DUMP, family, (out) => codec.write(out, filter));
  let objects: T[] = [];
  const seen = new Map<string | undefined, T>();
  const isWhole = await dumpWithRetry(async () => {
    if (keyOf !== undefined) for (const object of objects) seen.set(keyOf(object), object);
    objects = [];
    let generation: number | undefined;
    let isMixed = false;
    await socket.dump(request, (reply) => {
      const { input, start, end, resourceId } = nfnetlinkPayload(reply);
      // The kernel never marks element dumps as interrupted, but each message has the generation.
      generation ??= resourceId;
      if (resourceId !== generation) isMixed = true;
      objects.push(codec.read(input, start, end));
    });
    if (isMixed) throw new NetlinkError("interrupted", "netlink: the ruleset changed during the dump: repeat it");
  });
  if (isWhole || keyOf === undefined) return objects;
  for (const object of objects) seen.set(keyOf(object), object);
  return [...seen.values()];
}
