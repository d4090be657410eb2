/**
 * Checks whether maps have elements, without reading each. A batch that deletes the elements, and one that adds them, are sent for checking
 * only: the kernel rejects deleting a missing element, and adding one whose key has another value (reference nfnetlink.md §11). For 250,000
 * elements this takes a third of the processor time of reading them. Comments are not compared.
 */
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { writeElement, writeKey } from "./netlink-sets.ts";
import { lastNotAbove } from "./netlink-transaction.ts";
import type { FamilyLayout } from "./netlink-values.ts";
import type { NftElement, NftSet } from "./ruleset.ts";
import { NftBatch, operationOfType } from "./wire/batch.ts";
import type { NftablesClient } from "./wire/nftables-client.ts";

/** Elements per message; the kernel rejects the whole message for any of them. */
const GROUP_SIZE = 256;
/**
 * Groups per batch, which keeps a processor busy for about 25 ms. Before it answers, the kernel waits 5 to 15 ms until no reader can still
 * see what it rolls back.
 */
const GROUPS_AT_ONCE = 128;
/** The most bytes per element, except with long names. */
const ELEMENT_BYTES = 160;

/** Assigns group numbers: consecutive elements of one set form a group, up to {@link GROUP_SIZE}, and are checked together. */
export function groupNumbers(): (set: NftSet) => number {
  let number = -1;
  let last: NftSet | undefined;
  let size = 0;
  return (set) => {
    if (set !== last || size === GROUP_SIZE) {
      number += 1;
      last = set;
      size = 0;
    }
    size += 1;
    return number;
  };
}

export class ElementChecks {
  readonly #client: Pick<NftablesClient, "check">;
  readonly #table: string;
  readonly #layout: FamilyLayout;
  readonly #refused = new Set<number>();
  #group: { readonly number: number; readonly set: NftSet; readonly elements: NftElement[] } | undefined;
  #portion: Portion | undefined;
  /** The check that is running: meanwhile the next portion is encoded. */
  #underWay = Promise.resolve();

  constructor(client: Pick<NftablesClient, "check">, table: string, layout: FamilyLayout) {
    this.#client = client;
    this.#table = table;
    this.#layout = layout;
  }

  /** @param number the element's group number. @returns what to await before the next call, if anything. */
  add(number: number, set: NftSet, element: NftElement): Promise<void> | undefined {
    if (this.#group?.number === number) {
      this.#group.elements.push(element);
      return undefined;
    }
    this.#encode();
    this.#group = { number, set, elements: [element] };
    if (this.#portion?.groups.length === GROUPS_AT_ONCE) return this.#send();
    return isTurnDue() ? giveTurn() : undefined;
  }

  /** The numbers of groups that differ, or may differ, from what the kernel has. Rejects if the kernel cannot be asked. */
  async refused(): Promise<ReadonlySet<number>> {
    this.#encode();
    await this.#send();
    await this.#underWay;
    return this.#refused;
  }

  #encode(): void {
    if (this.#group === undefined) return;
    this.#portion ??= new Portion(this.#layout.nfproto);
    const { number, set, elements } = this.#group;
    this.#group = undefined;
    this.#portion.groups.push(number);
    for (const { kind, batch, firsts } of this.#portion.batches) {
      firsts.push(batch.messages.count);
      batch.changeElements(kind, { table: this.#table, set: set.name }, elements, (out, one) => {
        if (kind === "add") writeElement(out, set, one, this.#layout);
        else writeKey(out, set, one.key, this.#layout);
      });
    }
  }

  async #send(): Promise<void> {
    await this.#underWay;
    const portion = this.#portion;
    this.#portion = undefined;
    if (portion === undefined) return;
    this.#underWay = this.#check(portion);
    // The next call that awaits it gets the error.
    this.#underWay.catch(() => {});
  }

  async #check({ groups, batches }: Portion): Promise<void> {
    for (const { batch, firsts } of batches) {
      const result = await this.#client.check(batch, { isSlow: true });
      batch.messages.release();
      if (result.committed) continue;
      for (const { request } of result.errors.map(({ facts }) => facts)) {
        const group = groups[lastNotAbove(firsts, request?.index ?? -1)];
        // A kernel that is out of memory reports that at the batch marker, no operation: then nothing was checked.
        const isOfOne = request !== undefined && operationOfType(request.type) !== undefined && !result.isTruncated;
        for (const refused of isOfOne && group !== undefined ? [group] : groups) this.#refused.add(refused);
      }
    }
  }
}

class Portion {
  readonly groups: number[] = [];
  /** `firsts`: the index of each group's first message. */
  readonly batches;

  constructor(nfproto: number) {
    this.batches = (["delete", "add"] as const).map((kind) => {
      const messages = new MessageBuffer(GROUPS_AT_ONCE * GROUP_SIZE * ELEMENT_BYTES);
      return { kind, batch: new NftBatch(nfproto, { messages }), firsts: [] as number[] };
    });
  }
}
