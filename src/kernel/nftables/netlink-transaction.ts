/**
 * Encodes operations as one netlink batch, and maps a rejected message back to its operation. Encoding yields to the event
 * loop: a first batch can have a hundred thousand messages.
 */

import { giveTurn, isTurnDue } from "../../async/turns.ts";
import type { MessageBuffer } from "../netlink/message-buffer.ts";
import { ruleExpressions } from "./netlink-expressions.ts";
import { setObject, writeElement, writeKey } from "./netlink-sets.ts";
import type { FamilyLayout } from "./netlink-values.ts";
import { type NftChainHead, NftError, type NftOperation } from "./nftables.ts";
import { originOfDigest, ruleDigest } from "./rule-digest.ts";
import type { NftSet } from "./ruleset.ts";
import { NftBatch } from "./wire/batch.ts";
import { NF_ACCEPT, NF_DROP, NF_INET_HOOKS, NFT_OBJECT_COUNTER, NFT_TABLE_F_DORMANT } from "./wire/constants.ts";
import { commentUserdata, ruleUserdata } from "./wire/userdata.ts";

const OPERATIONS_PER_LOOK = 16;
const ELEMENTS_PER_LOOK = 1024;

/** Distinguishes this process's names from those of an earlier process, and from the kernel's own such as `__map17`. */
const NAME_STAMP = Math.floor(Math.random() * 36 ** 5).toString(36);
let lastName = 0;

/**
 * A name for an anonymous set. The kernel could number `__map%d` itself, but then it scans the names of all sets of the table
 * each time: with 10,000 Services that took half of its time for a full batch. It still walks along all sets three times for each
 * anonymous set, so short names make a first load cheaper.
 */
function anonymousSetName(isShort: boolean): string {
  lastName += 1;
  return isShort ? `_${lastName.toString(36)}` : `__${lastName.toString(36)}_${NAME_STAMP}`;
}

interface TransactionTarget {
  readonly layout: FamilyLayout;
  readonly table: string;
  /** Whether nothing in the table is from an earlier process, whose names could collide. @default false */
  readonly isNew?: boolean;
}

export interface EncodedTransaction {
  readonly batch: NftBatch;
  /** The base chains that are added, or undefined for the table itself. */
  readonly hooked: readonly (NftChainHead | undefined)[];
  /** The index of the operation that a message belongs to; undefined for the batch markers. */
  operationOf(message: number): number | undefined;
}

/**
 * Encodes operations in order. @throws NftError `failed`, with the index of an operation whose values cannot be encoded.
 *
 * @param generation makes the kernel reject the batch if the ruleset is in another one.
 * @param messages an empty buffer to write to.
 */
export async function encodeTransaction(
  target: TransactionTarget,
  operations: Iterable<NftOperation>,
  generation?: number,
  messages?: MessageBuffer,
): Promise<EncodedTransaction> {
  const batch = new NftBatch(target.layout.nfproto, {
    ...(generation !== undefined && { generation }),
    ...(messages && { messages }),
  });
  /** The index of each operation's first message. */
  const firstMessages: number[] = [];
  const hooked: (NftChainHead | undefined)[] = [];
  for (const operation of operations) {
    const index = firstMessages.push(batch.messages.count) - 1;
    if (operation.kind === "add-table") hooked.push(undefined);
    else if (operation.kind === "add-chain" && operation.chain.hook !== undefined) hooked.push(operation.chain);
    try {
      for (const _step of encode(batch, target, operation)) if (isTurnDue()) await giveTurn();
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw new NftError("failed", `nftables: ${operation.kind}: ${error.message}`, index, { cause: error });
    }
    if (index % OPERATIONS_PER_LOOK === 0 && isTurnDue()) await giveTurn();
  }
  const end = batch.messages.count;
  return {
    batch,
    hooked,
    operationOf: (message) => (message < 1 || message >= end ? undefined : lastNotAbove(firstMessages, message)),
  };
}

/** The index of the last entry of an ascending list that is not above `value`; 0 if all are above. */
export function lastNotAbove(ascending: readonly number[], value: number): number {
  let low = 0;
  let high = ascending.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((ascending[middle] ?? 0) <= value) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Encodes one operation, and pauses within many elements, so that the caller can yield. */
function* encode(batch: NftBatch, target: TransactionTarget, operation: NftOperation): Generator<undefined, void> {
  const { table, layout } = target;
  switch (operation.kind) {
    case "add-table": {
      const flags = operation.isDormant === true ? NFT_TABLE_F_DORMANT : 0;
      return batch.add("table", { name: table, flags, userdata: commentUserdata(operation.comment) });
    }
    case "delete-table":
      return batch.delete("table", { name: table });
    case "add-chain":
      return addChain(batch, table, operation.chain);
    case "flush-chain":
      return batch.delete("rule", { table, chain: operation.chain });
    case "delete-chain":
      return batch.deleteEmptyChain({ table, name: operation.chain });
    case "add-rule":
      return addRule(batch, target, operation);
    case "add-counter":
      return batch.add("counter", { table, name: operation.counter, type: NFT_OBJECT_COUNTER, data: {} });
    case "delete-counter":
      return batch.delete("counter", { table, name: operation.counter, type: NFT_OBJECT_COUNTER });
    case "add-set":
      return batch.add("set", { ...setObject(operation.set, layout), table });
    case "flush-set":
      return batch.delete("elements", { table, set: operation.set.name });
    case "delete-set":
      return batch.delete("set", { table, name: operation.set });
    case "add-elements":
      return yield* changeElements(batch, target, "add", operation.set, operation.elements, writeElement);
    case "delete-elements":
      return yield* changeElements(batch, target, "delete", operation.set, operation.keys, writeKey);
  }
}

function* changeElements<T>(
  batch: NftBatch,
  { table, layout }: TransactionTarget,
  kind: "add" | "delete",
  set: NftSet,
  items: readonly T[],
  write: (out: MessageBuffer, set: NftSet, item: T, layout: FamilyLayout) => void,
): Generator<undefined, void> {
  for (let start = 0; start < items.length; start += ELEMENTS_PER_LOOK) {
    if (start > 0) yield;
    const some = items.slice(start, start + ELEMENTS_PER_LOOK);
    batch.changeElements(kind, { table, set: set.name }, some, (out, item) => write(out, set, item, layout));
  }
}

function addChain(batch: NftBatch, table: string, { name, hook, comment }: NftChainHead): void {
  batch.add("chain", {
    table,
    name,
    ...(hook && {
      type: hook.type,
      hook: { hooknum: NF_INET_HOOKS[hook.hook], priority: hook.priority },
      policy: hook.policy === "drop" ? NF_DROP : NF_ACCEPT,
    }),
    ...(comment === undefined ? {} : { userdata: commentUserdata(comment) }),
  });
}

function addRule(
  batch: NftBatch,
  { table, layout, isNew = false }: TransactionTarget,
  { chain, rule, digest = ruleDigest(rule) }: Extract<NftOperation, { kind: "add-rule" }>,
): void {
  const expressions = ruleExpressions(rule, layout, ({ object, elements }) => {
    const setId = batch.takeSetId();
    const name = anonymousSetName(isNew);
    batch.add("set", { ...object, table, name, id: setId });
    batch.addElements(table, { setId }, elements);
    return name;
  });
  const userdata = ruleUserdata(rule.comment, originOfDigest(digest));
  batch.add("rule", { table, chain, expressions, userdata });
}
