/**
 * Chains and sets that nothing of ours refers to any more, but that the kernel would not delete yet: before 6.2 it gives up
 * the references of deleted elements only some time after the transaction, and rules of others may refer to anything.
 * Reference nftables-operation.md §11.5.
 */
import type { NftOperation } from "../../kernel/nftables/nftables.ts";
import type { Deletion } from "./draft.ts";

/** How long after the transaction that removed the last reference a chain can be deleted on every kernel. */
const RELEASED_AFTER_MS = 1000;

interface Deferred {
  readonly deletion: Deletion;
  readonly sinceMs: number;
}

function nameOf(deletion: Deletion): string {
  return deletion.kind === "delete-chain" ? deletion.chain : deletion.set;
}

export class DeferredDeletions {
  // Names of chains and of sets never meet: those of affinity sets begin with another word.
  readonly #deletions = new Map<string, Deferred>();

  /** @param nowMs monotonic. */
  add(deletion: Deletion, nowMs: number): void {
    this.#deletions.set(nameOf(deletion), { deletion, sinceMs: nowMs });
  }

  get size(): number {
    return this.#deletions.size;
  }

  has(name: string): boolean {
    return this.#deletions.has(name);
  }

  /** It is gone. */
  forget(deletion: Deletion): void {
    this.#deletions.delete(nameOf(deletion));
  }

  /** After a transaction: what it has added is wanted again. */
  forgetAdded(operations: Iterable<NftOperation>): void {
    if (this.#deletions.size === 0) return;
    for (const operation of operations) {
      if (operation.kind === "add-chain") this.#deletions.delete(operation.chain.name);
      else if (operation.kind === "add-rule") this.#deletions.delete(operation.chain);
      else if (operation.kind === "add-set") this.#deletions.delete(operation.set.name);
    }
  }

  /** Deletions that are old enough to be tried again: chains before the sets that their rules used. */
  due(nowMs: number): Deletion[] {
    const due: Deletion[] = [];
    for (const { deletion, sinceMs } of this.#deletions.values()) {
      if (nowMs - sinceMs >= RELEASED_AFTER_MS) due.push(deletion);
    }
    return due;
  }
}
