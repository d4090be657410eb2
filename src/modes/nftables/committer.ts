/** Commits drafts, and defers the deletions that the kernel does not accept yet. */
import type { Clock } from "../../async/clock.ts";
import type { Written } from "../../contract/backend.ts";
import { type Nftables, NftError, type NftOperation } from "../../kernel/nftables/nftables.ts";
import type { NftValue } from "../../kernel/nftables/ruleset.ts";
import type { Logger } from "../../logging/logger.ts";
import { frontendText } from "../../model/frontend.ts";
import { parseIpAddress } from "../../net/ip.ts";
import { isProtocolName } from "../../net/protocol.ts";
import { CommitCost } from "../shared/commit-cost.ts";
import type { Deletion, TransactionDraft } from "./draft.ts";
import { FLAT_SETS } from "./flat/names.ts";
import { SETS } from "./names.ts";

interface CommitterOptions {
  readonly nft: Nftables;
  /** Counts rejected transactions of deferred deletions. */
  readonly cleanupFailures: { inc(): void };
  readonly log: Logger;
  readonly clock: Pick<Clock, "monotonicMs">;
}

export class Committer {
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
   * Commits a draft; an empty one is not sent. If the kernel rejects a deletion because something still refers to the
   * object, the draft is committed without its deletions, and those are retried later.
   *
   * @param generation reject with `conflict` if the ruleset is no longer in this generation.
   */
  async commit(draft: TransactionDraft, generation?: number): Promise<void> {
    const withheld: Deletion[] = [];
    for (;;) {
      try {
        await this.#transact(draft, generation);
        break;
      } catch (error) {
        if (!(error instanceof NftError) || error.code !== "busy" || error.operation === undefined) throw error;
        const deletions = draft.withholdDeletions(error.operation);
        if (deletions === undefined) throw error;
        this.#options.log.v(2, "Still in use, to be deleted by a later sync", {
          reason: error.message,
          deletions: deletions.length,
        });
        // There may be more than a call takes arguments.
        for (const deletion of deletions) withheld.push(deletion);
      }
    }
    const nowMs = this.#options.clock.monotonicMs();
    for (const deletion of withheld) this.deferred.add(deletion, nowMs);
  }

  /** How long to wait before the next commit, based on the cost of the last ones. */
  get restMs(): number {
    return this.#cost.restMs(this.#options.clock.monotonicMs());
  }

  /**
   * What was committed since the last call: operation counts by nft verb, and the deleted non-TCP frontends in the
   * format of `frontendKey`.
   */
  take(): { readonly written: Written; readonly goneFrontends: ReadonlySet<string> } {
    const taken = { written: { counts: this.#counts, kernelMs: this.#kernelMs }, goneFrontends: this.#goneFrontends };
    this.#counts = {};
    this.#goneFrontends = new Set();
    this.#kernelMs = 0;
    return taken;
  }

  /** Tries the deferred deletions that are old enough. Never rejects because of a refusal by the kernel. */
  async deleteDeferred(): Promise<void> {
    const due = this.deferred.due(this.#options.clock.monotonicMs());
    // The chains that a set's elements lead to can be deleted only some time after the set is gone.
    await this.#delete(due.filter(({ kind }) => kind === "delete-set"));
    await this.#delete(due.filter(({ kind }) => kind === "delete-chain"));
  }

  async #delete(deletions: readonly Deletion[]): Promise<void> {
    const { nft, cleanupFailures, log, clock } = this.#options;
    let due = deletions;
    // After the last refusal the remaining ones wait for the next call: each refusal costs a transaction.
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
        // The kernel accepted everything before the offender.
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
    // Other commits may have finished in the meantime.
    for (const [kind, count] of Object.entries(tally.counts)) {
      // The nft verb: `add element` of `add-elements`.
      const verb = kind.replace("-", " ").replace(/s$/, "");
      this.#counts[verb] = (this.#counts[verb] ?? 0) + count;
    }
    for (const frontend of tally.goneFrontends) this.#goneFrontends.add(frontend);
    const ownMs = endMs - Math.max(startMs, this.#endMs);
    this.#endMs = endMs;
    this.#kernelMs += ownMs;
    this.#cost.note(tally.operations, ownMs, endMs);
    if (this.deferred.size > 0) this.deferred.forgetAdded(draft.operations());
  }
}

/** Counts of the operations of a draft. */
interface Tally {
  operations: number;
  /** By kind. */
  readonly counts: Record<string, number>;
  readonly goneFrontends: string[];
}

/**
 * The operations of a draft, counted as they are consumed. A module function: V8 gives a closure made for each draft a
 * hidden class in the old generation, and through it the whole draft would survive young-generation collections.
 */
function* tallied(draft: TransactionDraft, tally: Tally): Iterable<NftOperation> {
  const { counts } = tally;
  for (const operation of draft.operations()) {
    tally.operations += 1;
    counts[operation.kind] = (counts[operation.kind] ?? 0) + sizeOf(operation);
    if (operation.kind === "delete-elements" && FRONTEND_SETS.has(operation.set.name)) {
      for (const key of operation.keys) noteFrontend(key, tally.goneFrontends);
    }
    yield operation;
  }
}

/** The sets that lead to Services, in either layout. */
const FRONTEND_SETS: ReadonlySet<string> = new Set([
  ...[SETS.serviceIPs, SETS.serviceNodePorts, FLAT_SETS.frontends, FLAT_SETS.nodePorts],
]);

/** A key is `address . protocol . port`, or `protocol . port` for a node port. */
function noteFrontend(key: readonly NftValue[], gone: string[]): void {
  const port = key.at(-1);
  const protocol = key.at(-2);
  const address = key.length === 3 ? key[0] : undefined;
  if (typeof port !== "number" || typeof protocol !== "string" || !isProtocolName(protocol)) return;
  if (protocol === "tcp") return;
  const ip = typeof address === "string" ? parseIpAddress(address) : undefined;
  if (key.length === 2 || ip !== undefined) gone.push(frontendText(protocol, ip, port));
}

function sizeOf(operation: NftOperation): number {
  if (operation.kind === "add-elements") return operation.elements.length;
  return operation.kind === "delete-elements" ? operation.keys.length : 1;
}

/** How many refusals one attempt at deferred deletions accepts. */
const MOST_REFUSALS = 8;

/** How long after the transaction that removed the last reference every kernel lets a chain be deleted. */
const RELEASED_AFTER_MS = 1000;

function nameOf(deletion: Deletion): string {
  return deletion.kind === "delete-chain" ? deletion.chain : deletion.set;
}

/**
 * Chains and sets that nothing of ours refers to any more, but that the kernel does not delete yet: kernels before 6.2
 * release the references of deleted elements only some time after the transaction, and rules of other programs may
 * refer to anything. Reference nftables-operation.md §11.5.
 */
class DeferredDeletions extends Map<string, { readonly deletion: Deletion; readonly sinceMs: number }> {
  /** Moves it to the end of the queue. @param nowMs monotonic. */
  add(deletion: Deletion, nowMs: number): void {
    this.forget(deletion);
    // Chain and set names never collide: affinity sets have a prefix of their own.
    this.set(nameOf(deletion), { deletion, sinceMs: nowMs });
  }

  /** Forgets a deletion that is done or pointless. */
  forget(deletion: Deletion): void {
    this.delete(nameOf(deletion));
  }

  /** Forgets the objects that a transaction has added back. */
  forgetAdded(operations: Iterable<NftOperation>): void {
    for (const operation of operations) {
      if (operation.kind === "add-chain") this.delete(operation.chain.name);
      else if (operation.kind === "add-rule") this.delete(operation.chain);
      else if (operation.kind === "add-set") this.delete(operation.set.name);
    }
  }

  /** The deletions that are old enough for a retry. */
  due(nowMs: number): Deletion[] {
    const due = [...this.values()].filter(({ sinceMs }) => nowMs - sinceMs >= RELEASED_AFTER_MS);
    return due.map(({ deletion }) => deletion);
  }
}
