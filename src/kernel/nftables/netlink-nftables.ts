/**
 * nf_tables of this process's network namespace over netlink, without the `nft` program: {@link Nftables} for any number of
 * tables, which share one socket and one subscription.
 */

import { Mutex } from "../../async/mutex.ts";
import { isInterrupted, isNotFound } from "../netlink/errors.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { readCounters, readElements, readTable } from "./netlink-content.ts";
import { fromNetlinkError, fromRefusal } from "./netlink-errors.ts";
import { ELEMENT_BYTES, type EncodedTransaction, encodeTransaction } from "./netlink-transaction.ts";
import { LAYOUTS } from "./netlink-values.ts";
import {
  type Nftables,
  NftError,
  type NftExpectation,
  type NftOperation,
  type NftTableContent,
  type NftTransactOptions,
} from "./nftables.ts";
import type { NftFamily } from "./ruleset.ts";
import { RulesetMonitor } from "./ruleset-monitor.ts";
import { type CommitResult, openNftables } from "./wire/nftables-client.ts";

/** How often a table is read again because it changed meanwhile. */
const READ_ATTEMPTS = 8;
/** How often a batch is sent again because others, who did not touch the table, moved the generation on. */
const MAX_REBASES = 50;

/**
 * What will probably take longer than this is sent off the main thread. The kernel checks the whole table for each batch:
 * with 10,000 services that is 4 milliseconds, however small the batch is. Below, the way to another thread and back would
 * cost more than it is worth.
 */
const SLOW_COMMIT_MS = 8;

/** A buffer of more bytes is not kept. */
const SPARE_BYTES = 64 * 1024;

/** Names a table. */
export interface NetlinkTableName {
  readonly family: NftFamily;
  readonly table: string;
}

/** What a batch cost. */
export interface NetlinkCommit {
  /** In the kernel, and on the way to it and back. */
  readonly milliseconds: number;
  readonly messages: number;
  readonly bytes: number;
}

export interface NetlinkRulesetOptions {
  /** For what the kernel announces while tables are watched. @default that of subscriptions */
  readonly receiveBufferBytes?: number;
  /** Told of each batch that the kernel accepted. */
  readonly onCommit?: (commit: NetlinkCommit) => void;
}

/** The tables of the network namespace. */
export interface NetlinkRuleset {
  /** One table; it need not exist. Meant to be its only writer in this process. */
  open(name: NetlinkTableName): Nftables;
  /** Whether the kernel would accept the transaction; nothing is applied. @throws NftError as `transact` does. */
  check(name: NetlinkTableName, operations: Iterable<NftOperation>): Promise<void>;
  /** Watching must have ended. */
  close(): Promise<void>;
}

/** Opens the namespace's nf_tables. @throws NetlinkError when the kernel has none. */
export function openNetlinkRuleset({ onCommit, ...options }: NetlinkRulesetOptions = {}): NetlinkRuleset {
  const client = openNftables();
  const commits = new Mutex();
  let committed = 0;
  let last = { milliseconds: 0, messages: 1 };
  const monitor = new RulesetMonitor({ client, commits, committed: () => committed, ...options });

  /**
   * One commit at a time, so that the monitor can tell when all have been announced.
   *
   * @param isOfWhole that it follows from a look at the whole table. The rules among it may bind large maps, of which the kernel looks at each
   * element: 35 ms at 30,000 services, in a few messages.
   */
  function commit({ batch }: EncodedTransaction, isOfWhole: boolean): Promise<CommitResult> {
    return commits.run(async () => {
      const expectedMs = last.milliseconds * Math.max(1, batch.size / last.messages);
      const startMs = performance.now();
      const result = await client.commit(batch, { isSlow: isOfWhole || expectedMs > SLOW_COMMIT_MS });
      last = { milliseconds: performance.now() - startMs, messages: Math.max(1, batch.size) };
      if (result.committed && batch.size > 0) {
        committed += 1;
        onCommit?.({ ...last, bytes: batch.byteLength });
      }
      return result;
    });
  }

  async function currentGeneration(): Promise<number> {
    return (await client.generation()).id ?? 0;
  }

  function open({ family, table }: NetlinkTableName): Nftables {
    const layout = LAYOUTS[family];
    const target = { nfproto: layout.nfproto, table };
    const encoding = new Mutex();
    const turns = new Mutex();
    /** Transactions of this handle, and how many there had been when the table was last read. */
    let transactions = 0;
    let lastRead = { generation: -1, transactions: -1 };
    /** The table was not there when it was looked for, and everything since was accepted: all in it is ours. */
    let isNew = false;
    /** The buffer of an earlier transaction that was small, as nearly all are. */
    let spare: MessageBuffer | undefined;

    async function send(transaction: EncodedTransaction, generation: number | undefined): Promise<void> {
      for (let rebases = 0; ; rebases++) {
        const result = await commit(transaction, generation !== undefined);
        if (result.committed) {
          transactions += 1;
          return;
        }
        const refusal = fromRefusal(result, transaction);
        isNew = false;
        if (refusal.code !== "conflict" || generation === undefined || rebases >= MAX_REBASES) throw refusal;
        const isLastRead = lastRead.generation === generation && lastRead.transactions === transactions;
        const current = await currentGeneration();
        if (!isLastRead || !(await monitor.isUntouched(target, generation, current))) throw refusal;
        transaction.batch.setGeneration(current);
      }
    }

    async function encode(
      operations: Iterable<NftOperation>,
      { generation, elements = 0 }: NftTransactOptions,
    ): Promise<EncodedTransaction> {
      // It has its place in the batch before it is known.
      const expected = typeof generation === "function" ? 0 : generation;
      const bytes = elements * ELEMENT_BYTES;
      const messages = bytes > SPARE_BYTES ? new MessageBuffer(bytes) : spare;
      if (messages === spare) spare = undefined;
      try {
        return await encodeTransaction({ layout, table, isNew }, operations, expected, messages);
      } catch (error) {
        throw fromNetlinkError(error);
      }
    }

    async function sendAndRelease(transaction: EncodedTransaction, generation: number | undefined): Promise<void> {
      try {
        if (transaction.batch.size > 0) await send(transaction, generation);
      } catch (error) {
        throw fromNetlinkError(error);
      } finally {
        release(transaction);
      }
    }

    function release({ batch: { messages } }: EncodedTransaction): void {
      if (messages.out.capacity <= SPARE_BYTES) {
        messages.reset();
        spare = messages;
      } else messages.release();
    }

    /** Others may be encoded and sent until it is known what generation it is for. */
    async function transactLater(
      operations: Iterable<NftOperation>,
      options: NftTransactOptions,
      ask: () => Promise<number>,
    ): Promise<void> {
      const transaction = await encoding.run(() => encode(operations, options));
      let generation: number | undefined;
      try {
        if (transaction.batch.size > 0) {
          generation = await ask();
          transaction.batch.setGeneration(generation);
        }
      } catch (error) {
        release(transaction);
        throw fromNetlinkError(error);
      }
      await turns.run(() => sendAndRelease(transaction, generation));
    }

    async function readConsistently(expected: NftExpectation | undefined): Promise<NftTableContent | undefined> {
      let before = await currentGeneration();
      for (let attempt = 1; ; attempt++) {
        const objects = await readTable(client, table, layout, expected).catch((error: unknown) => {
          // Deleted while it was being read: the generation has changed, and it is read again.
          if (isNotFound(error)) return undefined;
          if (isInterrupted(error)) return "torn";
          throw error;
        });
        const after = await currentGeneration();
        if (objects !== "torn" && (after === before || (await monitor.isUntouched(target, before, after)))) {
          lastRead = { generation: after, transactions };
          if (objects === undefined) isNew = true;
          return objects && { generation: after, ...objects };
        }
        if (attempt === READ_ATTEMPTS) {
          throw new NftError("conflict", `nftables: table ${family} ${table} changed each time it was read`, undefined);
        }
        before = after;
      }
    }

    return {
      family,
      async transact(operations, options = {}) {
        const { generation } = options;
        if (typeof generation === "function") return await transactLater(operations, options, generation);
        // While the kernel works on one transaction, the next is encoded.
        const { sending } = await encoding.run(async () => {
          const transaction = await encode(operations, options);
          return { sending: turns.run(() => sendAndRelease(transaction, generation)) };
        });
        await sending;
      },
      async read(expected) {
        try {
          return await readConsistently(expected);
        } catch (error) {
          throw fromNetlinkError(error);
        }
      },
      mark: () => commits.run(async () => ({ generation: await currentGeneration(), commits: committed })),
      async generationIfUntouched(mark) {
        const now = await commits.run(async () => ({
          generation: await currentGeneration(),
          commits: committed,
          transactions,
        }));
        const isAlone = now.generation - mark.generation === now.commits - mark.commits;
        if (!isAlone && !(await monitor.isUntouched(target, mark.generation, now.generation))) return undefined;
        lastRead = now;
        return now.generation;
      },
      async readElements({ name, key }) {
        try {
          return await readElements(client, { table, name, key }, layout);
        } catch (error) {
          if (isNotFound(error)) return undefined;
          throw fromNetlinkError(error);
        }
      },
      async readCounters() {
        try {
          return await readCounters(client, table, layout);
        } catch (error) {
          if (isNotFound(error)) return new Map();
          throw fromNetlinkError(error);
        }
      },
      async watch(onChange, signal) {
        try {
          await monitor.watch(target, onChange, signal);
        } catch (error) {
          throw fromNetlinkError(error);
        }
      },
    };
  }

  return {
    open,
    async check({ family, table }, operations) {
      try {
        const transaction = await encodeTransaction({ layout: LAYOUTS[family], table }, operations);
        // Before it answers, the kernel waits until nothing can look at what it takes back: 5 to 15 ms.
        const result = await client.check(transaction.batch, { isSlow: true });
        if (!result.committed) throw fromRefusal(result, transaction);
      } catch (error) {
        throw fromNetlinkError(error);
      }
    },
    close: () => client.close(),
  };
}
