/**
 * Whether maps have elements, without asking for each. The kernel checks, and does not apply, that it would delete all of them, and that it
 * would add them: it deletes none that is not there, and adds none to a map that has another value at its key (reference nfnetlink.md §11).
 * Of 250,000 elements that takes a third of the processor time. Comments are not looked at.
 */
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { writeElement, writeKey } from "./netlink-sets.ts";
import { lastNotAbove } from "./netlink-transaction.ts";
import type { FamilyLayout } from "./netlink-values.ts";
import type { NftElement, NftSet } from "./ruleset.ts";
import { NftBatch } from "./wire/batch.ts";
import type { NftablesClient } from "./wire/nftables-client.ts";

/** Elements in a message, which is refused for any of them. */
const GROUP_SIZE = 256;
/**
 * Groups in a batch, which holds a processor for about 25 ms. Before the kernel answers, it waits until nothing can look at what it takes
 * back, 5 to 15 ms.
 */
const GROUPS_AT_ONCE = 128;
/** The most that an element takes, except with long names. */
const ELEMENT_BYTES = 160;

/** Numbers groups of elements: those that follow each other and are of one set, as many as are checked together. Pure. */
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
  /** While the kernel has a portion, the next is encoded. */
  #underWay = Promise.resolve();

  constructor(client: Pick<NftablesClient, "check">, table: string, layout: FamilyLayout) {
    this.#client = client;
    this.#table = table;
    this.#layout = layout;
  }

  /** @param number of the element's group. @returns what to wait for before the next, if anything. */
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

  /** Numbers of the groups in which there is something else than was added, or may be. Rejects when the kernel cannot say. */
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
      batch.changeElements(kind, this.#table, set.name, elements, (out, one) => {
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
    // Told to the next who waits.
    this.#underWay.catch(() => {});
  }

  async #check({ groups, batches }: Portion): Promise<void> {
    for (const { batch, firsts } of batches) {
      const result = await this.#client.check(batch, { isSlow: true });
      batch.messages.release();
      if (result.committed) continue;
      for (const { error, kind } of result.failures) {
        const group = groups[lastNotAbove(firsts, error.facts.request?.index ?? -1)];
        // A kernel that is out of memory says so at the beginning of the batch, which is of no kind: nothing was looked at.
        const isOfOne = kind !== undefined && !result.isTruncated;
        for (const refused of isOfOne && group !== undefined ? [group] : groups) this.#refused.add(refused);
      }
    }
  }
}

class Portion {
  readonly groups: number[] = [];
  /** `firsts`: the first messages of the groups. */
  readonly batches;

  constructor(nfproto: number) {
    this.batches = (["delete", "add"] as const).map((kind) => {
      const messages = new MessageBuffer(GROUPS_AT_ONCE * GROUP_SIZE * ELEMENT_BYTES);
      return { kind, batch: new NftBatch(nfproto, { messages }), firsts: [] as number[] };
    });
  }
}
