/**
 * nf_tables of this process's network namespace over netlink, without the `nft` program: {@link Nftables} for any number of
 * tables, which share one socket and one subscription.
 */

import { Mutex } from "../../async/mutex.ts";
import { isInterrupted, isNotFound, undefinedIf } from "../netlink/errors.ts";
import type { MessageBuffer } from "../netlink/message-buffer.ts";
import { readCounters, readElements, readTable } from "./netlink-content.ts";
import { fromNetlinkError, fromRefusal } from "./netlink-errors.ts";
import { type EncodedTransaction, encodeTransaction } from "./netlink-transaction.ts";
import { LAYOUTS } from "./netlink-values.ts";
import {
  type Nftables,
  NftError,
  type NftExpectation,
  type NftMark,
  type NftOperation,
  type NftTableContent,
  type NftTransactOptions,
} from "./nftables.ts";
import type { NftFamily, NftRule } from "./ruleset.ts";
import { RulesetMonitor } from "./ruleset-monitor.ts";
import { type CommitResult, openNftables } from "./wire/nftables-client.ts";
import { noteOf } from "./wire/userdata.ts";

/** How often a table is read again because it changed meanwhile. */
const READ_ATTEMPTS = 8;
/** How often a batch is sent again because others, who did not touch the table, moved the generation on. */
const MAX_REBASES = 50;

/**
 * A commit that will probably take longer is sent off the main thread. The kernel checks the whole table for each batch:
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
  /** Called for each batch that the kernel accepted. */
  readonly onCommit?: (commit: NetlinkCommit) => void;
}

/** The tables of the network namespace. */
export interface NetlinkRuleset {
  /** One table; it need not exist. Meant to be its only writer in this process. */
  open(name: NetlinkTableName): Nftables;
  /** Whether the kernel would accept the transaction; nothing is applied. @throws NftError as `transact` does. */
  check(name: NetlinkTableName, operations: Iterable<NftOperation>): Promise<void>;
  /**
   * The note that {@link leaveNote} left with a rule of a chain, if nothing at all has been committed in the namespace since, and the moment
   * of that; otherwise undefined.
   */
  note(
    name: NetlinkTableName,
    chain: string,
  ): Promise<{ readonly content: string; readonly mark: NftMark } | undefined>;
  /** Writes the only rule of a chain again, with a note. @throws NftError `conflict` when the ruleset is not in the generation any more. */
  leaveNote(name: NetlinkTableName, note: NetlinkNote): Promise<void>;
  /** Watching must have ended. */
  close(): Promise<void>;
}

/** What is left with a rule. */
export interface NetlinkNote {
  readonly chain: string;
  readonly rule: NftRule;
  /** Short, ASCII. */
  readonly content: string;
  /** In which the content is true. */
  readonly generation: number;
}

/** Opens the namespace's nf_tables. @throws NetlinkError when the kernel has none. */
export function openNetlinkRuleset({ onCommit, ...options }: NetlinkRulesetOptions = {}): NetlinkRuleset {
  const client = openNftables();
  /** Held from a transaction's first attempt to its last: nothing of ours comes between, and the next one is not before it. */
  const turns = new Mutex();
  let last = { milliseconds: 0, messages: 1 };
  const monitor = new RulesetMonitor({ client, ...options });

  /**
   * @param isOfWhole the batch follows from a comparison of the whole table. Its rules may bind large maps, and then the kernel looks at each
   * of their elements: 35 ms at 30,000 services, in a few messages.
   */
  async function commit({ batch }: EncodedTransaction, isOfWhole: boolean): Promise<CommitResult> {
    const expectedMs = last.milliseconds * Math.max(1, batch.size / last.messages);
    const startMs = performance.now();
    const result = await client.commit(batch, { isSlow: isOfWhole || expectedMs > SLOW_COMMIT_MS });
    last = { milliseconds: performance.now() - startMs, messages: Math.max(1, batch.size) };
    if (result.committed) onCommit?.({ ...last, bytes: batch.messages.bytes.length });
    return result;
  }

  async function currentMark(): Promise<NftMark> {
    const { id: generation = 0, commits } = await client.generation();
    return { generation, commits };
  }

  function open({ family, table }: NetlinkTableName): Nftables {
    const layout = LAYOUTS[family];
    const target = { nfproto: layout.nfproto, table };
    /** Transactions of this handle, and how many there had been when the table was last read. */
    let transactions = 0;
    let lastRead = { generation: -1, transactions: -1 };
    /** There was no table when it was read, and the kernel has accepted everything since: all in it is ours. */
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
        const current = await currentMark();
        if (!isLastRead || !(await monitor.isUntouched(target, generation, current))) throw refusal;
        transaction.batch.setGeneration(current.generation);
      }
    }

    async function transact(operations: Iterable<NftOperation>, { generation }: NftTransactOptions): Promise<void> {
      const messages = spare;
      spare = undefined;
      // While the kernel works on one transaction, the next is encoded.
      const transaction = await encodeTransaction({ layout, table, isNew }, operations, generation, messages);
      const { batch } = transaction;
      try {
        if (batch.size > 0) await turns.run(() => send(transaction, generation));
      } finally {
        if (batch.messages.out.capacity <= SPARE_BYTES) {
          batch.messages.reset();
          spare = batch.messages;
        } else batch.messages.release();
      }
    }

    async function readConsistently(expected: NftExpectation | undefined): Promise<NftTableContent | undefined> {
      let before = await currentMark();
      for (let attempt = 1; ; attempt++) {
        const objects = await readTable(client, table, layout, expected).catch((error: unknown) => {
          // Deleted while it was being read: the generation has changed, and it is read again.
          if (isNotFound(error)) return undefined;
          if (isInterrupted(error)) return "torn";
          throw error;
        });
        const after = await currentMark();
        const { generation } = after;
        const isStill = generation === before.generation;
        if (objects !== "torn" && (isStill || (await monitor.isUntouched(target, before.generation, after)))) {
          lastRead = { generation, transactions };
          if (objects === undefined) isNew = true;
          return objects && { generation, ...objects };
        }
        if (attempt === READ_ATTEMPTS) {
          throw new NftError("conflict", `nftables: table ${family} ${table} changed each time it was read`, undefined);
        }
        before = after;
      }
    }

    return {
      family,
      transact: (operations, options = {}) => withNftErrors(transact(operations, options)),
      read: (expected) => withNftErrors(readConsistently(expected)),
      mark: currentMark,
      async generationIfUntouched(mark) {
        const now = await turns.run(async () => ({ ...(await currentMark()), transactions }));
        const isAlone = now.generation - mark.generation === now.commits - mark.commits;
        if (!isAlone && !(await monitor.isUntouched(target, mark.generation, now))) return undefined;
        lastRead = now;
        return now.generation;
      },
      readElements: ({ name, key }) =>
        withNftErrors(readElements(client, { table, name, key }, layout).catch(undefinedIf("ENOENT"))),
      async readCounters() {
        return (await withNftErrors(readCounters(client, table, layout).catch(undefinedIf("ENOENT")))) ?? new Map();
      },
      watch: (onChange, signal) => withNftErrors(monitor.watch(target, onChange, signal)),
    };
  }

  return {
    open,
    async check({ family, table }, operations) {
      const transaction = await encodeTransaction({ layout: LAYOUTS[family], table }, operations);
      // Before it answers, the kernel waits until nothing can look at what it takes back: 5 to 15 ms.
      const result = await withNftErrors(client.check(transaction.batch, { isSlow: true }));
      if (!result.committed) throw fromRefusal(result, transaction);
    },
    async note({ family, table }, chain) {
      const mark = await currentMark();
      const rules = await client.ruleHeads(LAYOUTS[family].nfproto, table, chain).catch(undefinedIf("ENOENT"));
      const [, generation, content] = /^(\d+) (.*)$/.exec(noteOf(rules?.[0]?.userdata) ?? "") ?? [];
      return content === undefined || Number(generation) !== mark.generation ? undefined : { content, mark };
    },
    async leaveNote({ family, table }, { chain, rule, content, generation }) {
      // The commit itself is counted, too; the kernel leaves 0 out.
      const note = `${(generation + 1) % 2 ** 32 || 1} ${content}`;
      const operations: NftOperation[] = [
        { kind: "flush-chain", chain },
        { kind: "add-rule", chain, rule, note },
      ];
      const transaction = await encodeTransaction({ layout: LAYOUTS[family], table }, operations, generation);
      const result = await withNftErrors(turns.run(() => commit(transaction, true)));
      if (!result.committed) throw fromRefusal(result, transaction);
    },
    close: () => client.close(),
  };
}

async function withNftErrors<T>(work: Promise<T>): Promise<T> {
  return await work.catch((error: unknown) => {
    throw fromNetlinkError(error);
  });
}
