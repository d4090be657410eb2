/**
 * nf_tables of this process's network namespace over netlink, without the `nft` program. Implements {@link Nftables} for any number
 * of tables, which share one socket and one subscription.
 */

import { Mutex } from "../../async/mutex.ts";
import type { Logger } from "../../logging/logger.ts";
import { isInterrupted, isNotFound, undefinedIf } from "../netlink/errors.ts";
import type { MessageBuffer } from "../netlink/message-buffer.ts";
import { TableReader } from "./netlink-content.ts";
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
import type { NftFamily } from "./ruleset.ts";
import { RulesetMonitor } from "./ruleset-monitor.ts";
import { openNftables } from "./wire/nftables-client.ts";

/** How often a table is read if it keeps changing. */
const READ_ATTEMPTS = 8;
/** How often a batch is resent because other programs, without touching the table, changed the generation. */
const MAX_REBASES = 50;

/**
 * Commits that will probably take longer are sent from a worker thread. The kernel checks the whole table for each batch:
 * with 10,000 Services this takes 4 ms, however small the batch is. Below this limit, switching threads costs more than it
 * gains.
 */
const SLOW_COMMIT_MS = 8;

/** Larger buffers are not kept. */
const SPARE_BYTES = 64 * 1024;

export interface NetlinkTableName {
  readonly family: NftFamily;
  readonly table: string;
}

/** The cost of a batch. */
export interface NetlinkCommit {
  /** Time in the kernel, and on the way there and back. */
  readonly milliseconds: number;
  readonly messages: number;
  readonly bytes: number;
}

export interface NetlinkRulesetOptions {
  /** For notifications while tables are watched. @default that of subscriptions */
  readonly receiveBufferBytes?: number;
  /** Called for each committed batch. */
  readonly onCommit?: (commit: NetlinkCommit) => void;
  /** Gets each transaction as text, at verbosity 9. @default not printed */
  readonly log?: Logger;
}

/** The tables of the network namespace. */
export interface NetlinkRuleset {
  /** Opens a table, which need not exist. The handle must be the table's only writer in this process. */
  open(name: NetlinkTableName): Nftables;
  /** Checks whether the kernel accepts the transaction, without applying it. @throws NftError as `transact` does. */
  check(name: NetlinkTableName, operations: Iterable<NftOperation>): Promise<void>;
  /** Closes the socket. All watches must have ended. */
  close(): Promise<void>;
}

/** Opens the namespace's nf_tables. @throws NetlinkError if the kernel has none. */
export function openNetlinkRuleset({ onCommit, log, ...options }: NetlinkRulesetOptions = {}): NetlinkRuleset {
  const client = openNftables();
  /** Held for all attempts of a transaction, so that none of ours can come between or overtake it. */
  const turns = new Mutex();
  let last = { milliseconds: 0, messages: 1 };
  const monitor = new RulesetMonitor({ client, ...options });

  async function currentMark(): Promise<NftMark> {
    const { id: generation = 0, commits } = await client.generation();
    return { generation, commits };
  }

  function open({ family, table }: NetlinkTableName): Nftables {
    const layout = LAYOUTS[family];
    const target = { nfproto: layout.nfproto, table };
    const reader = new TableReader(client, table, layout);
    /** The number of this handle's transactions, and its value when the table was last read. */
    let transactions = 0;
    let lastRead = { generation: -1, transactions: -1 };
    /** The table did not exist when read, and the kernel has accepted everything since: all its contents are ours. */
    let isNew = false;
    /** A reusable buffer from an earlier transaction; nearly all are small. */
    let spare: MessageBuffer | undefined;

    /**
     * @param generation given if the batch results from a comparison of the whole table. Its rules may bind large maps, and then the kernel
     * visits all their elements: 35 ms with 30,000 Services, for a few messages.
     */
    async function send(transaction: EncodedTransaction, generation: number | undefined): Promise<void> {
      const { batch, hooked } = transaction;
      let before = generation ?? (hooked.length > 0 ? (await currentMark()).generation : 0);
      for (let rebases = 0; ; rebases++) {
        const expectedMs = last.milliseconds * Math.max(1, batch.size / last.messages);
        const startMs = performance.now();
        const isSlow = generation !== undefined || expectedMs > SLOW_COMMIT_MS;
        const result = await client.commit(batch, { isSlow });
        last = { milliseconds: performance.now() - startMs, messages: Math.max(1, batch.size) };
        if (result.committed) {
          onCommit?.({ ...last, bytes: batch.messages.bytes.length });
          transactions += 1;
          // The commit has succeeded even if this fails.
          if (hooked.length > 0)
            await noteHooked(transaction, (before + 1) >>> 0, generation !== undefined).catch(() =>
              monitor.chains.forget(),
            );
          return;
        }
        const refusal = fromRefusal(result, transaction);
        isNew = false;
        if (refusal.code !== "conflict" || generation === undefined || rebases >= MAX_REBASES) throw refusal;
        const isLastRead = lastRead.generation === generation && lastRead.transactions === transactions;
        const current = await currentMark();
        if (!isLastRead || !(await monitor.isUntouched(target, generation, current))) throw refusal;
        before = current.generation;
        batch.setGeneration(before);
      }
    }

    /** @param isCompared whether what was read told which chains were not there before this generation. */
    async function noteHooked({ hooked }: EncodedTransaction, next: number, isCompared: boolean): Promise<void> {
      const after = await currentMark();
      const isSure =
        isCompared ||
        (isNew && after.generation === next && (await monitor.isUntouched(target, lastRead.generation, after)));
      const events = hooked.map((chain) => {
        return { table: `${family} ${table}`, chain: chain?.name, isCertain: isSure && chain?.isThere !== true };
      });
      monitor.chains.committed(isSure ? next : after.generation, events);
    }

    async function transact(
      operations: Iterable<NftOperation>,
      { generation }: NftTransactOptions = {},
    ): Promise<void> {
      const messages = spare;
      spare = undefined;
      const given = log?.isVerbose(9) === true ? await printed(operations, { family, table }, log) : operations;
      // Encode outside of the turn: the kernel may still be working on the previous transaction.
      const transaction = await encodeTransaction({ layout, table, isNew }, given, generation, messages);
      const { batch } = transaction;
      try {
        if (batch.size > 0) await turns.run(() => send(transaction, generation));
      } catch (error) {
        // A refusal has changed nothing.
        if (!(error instanceof NftError)) monitor.chains.forget();
        throw fromNetlinkError(error);
      } finally {
        batch.messages.reset(SPARE_BYTES);
        spare = batch.messages;
      }
    }

    async function readConsistently(expected: NftExpectation | undefined): Promise<NftTableContent | undefined> {
      let before = await currentMark();
      for (let attempt = 1; ; attempt++) {
        const objects = await reader.read(expected).catch((error: unknown) => {
          // The table was deleted meanwhile: the generation has changed, so this reads again.
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
      transact,
      read: (expected) => withNftErrors(readConsistently(expected)),
      mark: currentMark,
      async generationIfUntouched(mark) {
        const now = await turns.run(async () => ({ ...(await currentMark()), transactions }));
        const isAlone = now.generation - mark.generation === now.commits - mark.commits;
        if (!isAlone && !(await monitor.isUntouched(target, mark.generation, now))) return undefined;
        lastRead = now;
        return now.generation;
      },
      readElements: (set) => withNftErrors(reader.elements(set).catch(undefinedIf("ENOENT"))),
      withCatchAll: (sets) => withNftErrors(reader.withCatchAll(sets)),
      readTargets: (chains) => withNftErrors(reader.targets(chains)),
      async readCounters() {
        return (await withNftErrors(reader.counters().catch(undefinedIf("ENOENT")))) ?? new Map();
      },
      watch: (onChange, signal) => withNftErrors(monitor.watch(target, onChange, signal)),
      chainHistory: () => turns.run(async () => withNftErrors(monitor.chainHistory(await currentMark()))),
    };
  }

  return {
    open,
    async check({ family, table }, operations) {
      const transaction = await encodeTransaction({ layout: LAYOUTS[family], table }, operations);
      // Before it answers, the kernel waits 5 to 15 ms until no reader can still see what it rolls back.
      const result = await withNftErrors(client.check(transaction.batch, { isSlow: true }));
      if (!result.committed) throw fromRefusal(result, transaction);
    },
    close: () => client.close(),
  };
}

/** Logs the operations as commands of `nft -f`, and returns them. */
async function printed(
  operations: Iterable<NftOperation>,
  { family, table }: NetlinkTableName,
  log: Logger,
): Promise<readonly NftOperation[]> {
  // Loaded only here: no other part of a running proxy prints rules.
  const { operationText } = await import("./ruleset-text.ts");
  const all = [...operations];
  const transaction = all.map((operation) => operationText(operation, family, table)).join("\n");
  if (all.length > 0) log.v(9, "Running nftables transaction", { transaction });
  return all;
}

async function withNftErrors<T>(work: Promise<T>): Promise<T> {
  return await work.catch((error: unknown) => {
    throw fromNetlinkError(error);
  });
}
