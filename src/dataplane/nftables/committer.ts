/** Commits drafts, and puts off the deletions that the kernel does not accept yet. */
import type { Clock } from "../../async/clock.ts";
import { type Nftables, NftError, type NftOperation } from "../../kernel/nftables/nftables.ts";
import type { NftValue } from "../../kernel/nftables/ruleset.ts";
import type { Logger } from "../../logging/logger.ts";
import { frontendText } from "../../model/frontend.ts";
import { parseIpAddress } from "../../net/ip.ts";
import { isProtocolName } from "../../net/protocol.ts";
import type { Written } from "../../sync/backend.ts";
import { CommitCost } from "../shared/commit-cost.ts";
import type { Deletion, TransactionDraft } from "./draft.ts";
import { FLAT_SETS } from "./flat/names.ts";
import { SETS } from "./names.ts";

interface CommitterOptions {
  readonly nft: Nftables;
  /** Counts refused transactions of deferred deletions. */
  readonly cleanupFailures: { inc(): void };
  readonly log: Logger;
  readonly clock: Pick<Clock, "monotonicMs">;
}

export class Committer {
  /** Deletions that the kernel did not accept yet. */
  readonly deferred = new DeferredDeletions();
  readonly #cost = new CommitCost();
  readonly #options: CommitterOptions;
  #counts: Record<string, number> = {};
  #goneFrontends = new Set<string>();
  #kernelMs = 0;
  #endMs = Number.NEGATIVE_INFINITY;

  constructor(options: CommitterOptions) {
    this.#options = options;
  }

  /**
   * Carries out a draft; an empty one is not sent. Deletions are not worth a refusal: when one of them is refused because
   * something still refers to the object, the rest is done without any, and they are tried again later.
   *
   * @param generation refuse with `conflict` when the ruleset is not in this generation any more.
   */
  async commit(draft: TransactionDraft, generation?: number): Promise<void> {
    const withheld: Deletion[] = [];
    for (;;) {
      try {
        await this.#transact(draft, generation);
        break;
      } catch (error) {
        if (!(error instanceof NftError) || error.code !== "busy") throw error;
        if (error.operation === undefined || !draft.isDeletion(error.operation)) throw error;
        const deletions = draft.withholdDeletions(error.operation);
        this.#options.log.v(2, "Still in use, to be deleted by a later sync", {
          reason: error.message,
          deletions: deletions.length,
        });
        withheld.push(...deletions);
      }
    }
    const nowMs = this.#options.clock.monotonicMs();
    for (const deletion of withheld) this.deferred.add(deletion, nowMs);
  }

  /** How long to wait with the next commit, by what the last ones cost. */
  get restMs(): number {
    return this.#cost.restMs(this.#options.clock.monotonicMs());
  }

  /**
   * What was committed since the last call: in nft's words, and the frontends of other protocols than TCP that were deleted, as
   * `frontendKey` writes them.
   */
  take(): { readonly written: Written; readonly goneFrontends: ReadonlySet<string> } {
    const taken = { written: { counts: this.#counts, kernelMs: this.#kernelMs }, goneFrontends: this.#goneFrontends };
    this.#counts = {};
    this.#goneFrontends = new Set();
    this.#kernelMs = 0;
    return taken;
  }

  /** Tries the deferred deletions that are old enough. Never rejects for what the kernel refuses. */
  async deleteDeferred(): Promise<void> {
    const due = this.deferred.due(this.#options.clock.monotonicMs());
    // Chains that elements of a set lead to are free only some time after the set has gone.
    await this.#delete(due.filter(({ kind }) => kind === "delete-set"));
    await this.#delete(due.filter(({ kind }) => kind === "delete-chain"));
  }

  async #delete(deletions: readonly Deletion[]): Promise<void> {
    const { nft, cleanupFailures, log, clock } = this.#options;
    let due = deletions;
    // Those that are left then wait for their turn: each refusal costs a transaction.
    for (let refusals = 0; due.length > 0 && refusals < MOST_REFUSALS; ) {
      try {
        await nft.transact(due);
        for (const deletion of due) this.deferred.forget(deletion);
        return;
      } catch (error) {
        if (!(error instanceof NftError)) throw error;
        const { operation = due.length } = error;
        const offender = due[operation];
        if (offender !== undefined && error.code === "not_found") this.deferred.forget(offender);
        else {
          refusals += 1;
          cleanupFailures.inc();
          log.error("Unable to delete stale chains; will retry later", error);
          for (const deletion of offender === undefined ? due : [offender]) {
            this.deferred.add(deletion, clock.monotonicMs());
          }
        }
        if (offender === undefined) return;
        // What comes before it was accepted.
        await this.#delete(due.slice(0, operation));
        due = due.slice(operation + 1);
      }
    }
  }

  async #transact(draft: TransactionDraft, generation: number | undefined): Promise<void> {
    if (draft.isEmpty) return;
    const { nft, clock } = this.#options;
    const startMs = clock.monotonicMs();
    const tally: Tally = { operations: 0, counts: {}, goneFrontends: [] };
    await nft.transact(tallied(draft, tally), { generation });
    const endMs = clock.monotonicMs();
    // Others may have ended since it began.
    for (const [word, count] of Object.entries(tally.counts)) this.#counts[word] = (this.#counts[word] ?? 0) + count;
    for (const frontend of tally.goneFrontends) this.#goneFrontends.add(frontend);
    const ownMs = endMs - Math.max(startMs, this.#endMs);
    this.#endMs = endMs;
    this.#kernelMs += ownMs;
    this.#cost.note(tally.operations, ownMs, endMs);
    if (this.deferred.size > 0) this.deferred.forgetAdded(draft.operations());
  }
}

/** Counts the operations of a draft while it is sent. */
interface Tally {
  operations: number;
  /** In nft's words. */
  readonly counts: Record<string, number>;
  readonly goneFrontends: string[];
}

/**
 * The operations of a draft, counted as they are taken. A function of the module: one made for each draft is given a hidden class by
 * the engine, which is old from the start, and through it all of the draft would outlive the collections of the young generation.
 */
function* tallied(draft: TransactionDraft, tally: Tally): Iterable<NftOperation> {
  const { counts } = tally;
  for (const operation of draft.operations()) {
    tally.operations += 1;
    const word = WORDS[operation.kind];
    counts[word] = (counts[word] ?? 0) + sizeOf(operation);
    if (operation.kind === "delete-elements" && FRONTEND_SETS.has(operation.set.name)) {
      for (const key of operation.keys) noteFrontend(key, tally.goneFrontends);
    }
    yield operation;
  }
}

/** What leads to Services, in either layout. */
const FRONTEND_SETS: ReadonlySet<string> = new Set([
  ...[SETS.serviceIPs, SETS.serviceNodePorts, FLAT_SETS.frontends, FLAT_SETS.nodePorts],
]);

/** A key is `address . protocol . port`, or `protocol . port` of a node port. */
function noteFrontend(key: readonly NftValue[], gone: string[]): void {
  const port = key.at(-1);
  const protocol = key.at(-2);
  const address = key.length === 3 ? key[0] : undefined;
  if (typeof port !== "number" || typeof protocol !== "string" || !isProtocolName(protocol)) return;
  if (protocol === "tcp") return;
  const ip = typeof address === "string" ? parseIpAddress(address) : undefined;
  if (key.length === 2 || ip !== undefined) gone.push(frontendText(protocol, ip, port));
}

/** In nft's words. */
const WORDS: Readonly<Record<NftOperation["kind"], string>> = {
  "add-table": "add table",
  "delete-table": "delete table",
  "add-chain": "add chain",
  "flush-chain": "flush chain",
  "delete-chain": "delete chain",
  "add-rule": "add rule",
  "add-counter": "add counter",
  "delete-counter": "delete counter",
  "add-set": "add set",
  "flush-set": "flush set",
  "delete-set": "delete set",
  "add-elements": "add element",
  "delete-elements": "delete element",
};

function sizeOf(operation: NftOperation): number {
  if (operation.kind === "add-elements") return operation.elements.length;
  return operation.kind === "delete-elements" ? operation.keys.length : 1;
}

/** So many deferred deletions are found to be in use at once. */
const MOST_REFUSALS = 8;

/** How long after the transaction that removed the last reference a chain can be deleted on every kernel. */
const RELEASED_AFTER_MS = 1000;

interface Deferred {
  readonly deletion: Deletion;
  readonly sinceMs: number;
}

function nameOf(deletion: Deletion): string {
  return deletion.kind === "delete-chain" ? deletion.chain : deletion.set;
}

/**
 * Chains and sets that nothing of ours refers to any more, but that the kernel would not delete yet: before 6.2 it gives up
 * the references of deleted elements only some time after the transaction, and rules of others may refer to anything.
 * Reference nftables-operation.md §11.5.
 */
class DeferredDeletions {
  // Names of chains and of sets never meet: those of affinity sets begin with another word.
  readonly #deletions = new Map<string, Deferred>();

  /** Puts it behind all others. @param nowMs monotonic. */
  add(deletion: Deletion, nowMs: number): void {
    this.forget(deletion);
    this.#deletions.set(nameOf(deletion), { deletion, sinceMs: nowMs });
  }

  get size(): number {
    return this.#deletions.size;
  }

  has(name: string): boolean {
    return this.#deletions.has(name);
  }

  /** Forgets a deletion that is done, or has become pointless. */
  forget(deletion: Deletion): void {
    this.#deletions.delete(nameOf(deletion));
  }

  /** Forgets what a transaction has added again. */
  forgetAdded(operations: Iterable<NftOperation>): void {
    for (const operation of operations) {
      if (operation.kind === "add-chain") this.#deletions.delete(operation.chain.name);
      else if (operation.kind === "add-rule") this.#deletions.delete(operation.chain);
      else if (operation.kind === "add-set") this.#deletions.delete(operation.set.name);
    }
  }

  /** Deletions that are old enough to be tried again. */
  due(nowMs: number): Deletion[] {
    const due: Deletion[] = [];
    for (const { deletion, sinceMs } of this.#deletions.values()) {
      if (nowMs - sinceMs >= RELEASED_AFTER_MS) due.push(deletion);
    }
    return due;
  }
}
