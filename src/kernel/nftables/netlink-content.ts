/** Reads a table from the kernel, in the form of the contract in `nftables.ts`. */

import { giveTurn, isTurnDue } from "../../async/turns.ts";
import type { IpAddress } from "../../net/ip.ts";
import { NetlinkError, undefinedIf } from "../netlink/errors.ts";
import { ElementChecks, groupNumbers } from "./element-checks.ts";
import { targetTypeId, writeElement } from "./netlink-sets.ts";
import { decodeKey, type FamilyLayout, keyTypesOf, TARGET } from "./netlink-values.ts";
import type { NftChainContent, NftExpectation, NftSetContent, NftTableContent } from "./nftables.ts";
import { digestOfOrigin } from "./rule-digest.ts";
import {
  DYNAMIC_SET_SIZE,
  elementKey,
  type NftElement,
  type NftHook,
  type NftKeyType,
  type NftSet,
  type NftTarget,
  type NftVerdict,
} from "./ruleset.ts";
import * as nft from "./wire/constants.ts";
import type { NftVerdictData } from "./wire/data.ts";
import { type ElementAnswer, ElementQuery } from "./wire/element-query.ts";
import type { NftablesClient } from "./wire/nftables-client.ts";
import type { NftChainHeadObject, NftElementObject, NftSetHead } from "./wire/objects.ts";
import { commentOf, originOf } from "./wire/userdata.ts";

const OBJECTS_PER_LOOK = 128;
/**
 * How often chains are listed until none is missing. The kernel lists the chains of all tables by position: if other programs delete
 * theirs meanwhile, it skips some of ours, but still lists the rules of those. Each list has its gaps at other places.
 */
const CHAIN_LISTS = 8;
/** Listing smaller sets is faster than comparing them. */
const LEAST_COMPARED = 2_000;
const QUESTIONS_AT_ONCE = 512;

export type TableClient = Pick<
  NftablesClient,
  "tables" | "chainHeads" | "rules" | "ruleHeads" | "setHeads" | "elements" | "counters" | "ask" | "check"
>;

/** A chain under construction. */
interface ChainContent extends NftChainContent {
  readonly ruleDigests: (string | undefined)[];
  targets?: string[];
}

/** A set that is compared. */
interface Comparison {
  readonly set: NftSet;
  /** How many elements the kernel has at keys that are not expected, as far as it has been asked. */
  unseen: number;
  /** What it has at the keys where it differs from what is expected. */
  readonly others: Map<string, NftElement | undefined>;
}

/** Reads one table. */
export class TableReader {
  readonly #client: TableClient;
  readonly #table: string;
  readonly #layout: FamilyLayout;

  constructor(client: TableClient, table: string, layout: FamilyLayout) {
    this.#client = client;
    this.#table = table;
    this.#layout = layout;
  }

  /**
   * Reads a table piece by piece; undefined if there is none. It may change meanwhile: compare generations.
   *
   * @param expected large sets are compared with this and not listed, if the kernel tells how many elements they have.
   * @throws NetlinkError `ENOENT` if the table is deleted meanwhile; `interrupted` if chains with rules are missing from all lists.
   */
  async read(expected?: NftExpectation): Promise<Omit<NftTableContent, "generation"> | undefined> {
    const [client, table, layout] = [this.#client, this.#table, this.#layout];
    const { nfproto } = layout;
    const found = (await client.tables(nfproto)).find(({ name }) => name === table);
    if (found === undefined) return undefined;
    const { flags: tableFlags = 0 } = found;
    const chains = new Map<string, ChainContent>();
    let looks = 0;
    const pauseIfDue = () => (++looks % OBJECTS_PER_LOOK === 0 && isTurnDue() ? giveTurn() : undefined);
    const listChains = async (): Promise<void> => {
      for (const chain of await client.chainHeads(nfproto, table)) {
        if (chain.name === undefined || chains.has(chain.name)) continue;
        const pause = pauseIfDue();
        if (pause !== undefined) await pause;
        chains.set(chain.name, { hook: hookOf(chain), ruleDigests: [] });
      }
    };
    await listChains();
    const rules = await client.ruleHeads(nfproto, table);
    for (let lists = 1; rules.some(({ chain = "" }) => !chains.has(chain)); lists += 1) {
      if (lists === CHAIN_LISTS) {
        throw new NetlinkError(
          "interrupted",
          `netlink: table ${table} has rules in chains that the kernel did not list`,
        );
      }
      await listChains();
    }
    for (const { chain = "", userdata, target } of rules) {
      const pause = pauseIfDue();
      if (pause !== undefined) await pause;
      const content = chains.get(chain);
      content?.ruleDigests.push(digestOfOrigin(originOf(userdata)));
      if (content === undefined || target === undefined) continue;
      if (content.targets === undefined) content.targets = [target];
      else content.targets.push(target);
    }
    const sets = new Map<string, NftSetContent>();
    const compared = new Map<string, Comparison>();
    for (const set of await client.setHeads(nfproto, table)) {
      const { name, flags = 0, dataType, timeout } = set;
      if (name === undefined || (flags & nft.NFT_SET_ANONYMOUS) !== 0) continue;
      const key = keyOf(set, layout);
      const isFilledByPackets = (flags & (nft.NFT_SET_TIMEOUT | nft.NFT_SET_EVAL)) !== 0;
      const isReadable = key !== undefined && !isFilledByPackets;
      const { elementCount = 0 } = set;
      const comparable = expected?.sets.get(name);
      const isCompared = elementCount >= LEAST_COMPARED && comparable?.key.join() === key?.join();
      if (isCompared && comparable !== undefined)
        compared.set(name, { set: comparable, unseen: elementCount, others: new Map() });
      const elements = isReadable && !compared.has(name) ? await this.elements({ name, key }) : [];
      sets.set(name, {
        key,
        isMap: (flags & nft.NFT_SET_MAP) !== 0 && dataType === nft.NFT_TYPES.verdict,
        ...((flags & nft.NFT_SET_MAP) !== 0 && dataType === targetTypeId(layout) ? { hasTargets: true } : {}),
        ...(set.expression?.kind === "counter" ? { hasCounters: true } : {}),
        timeoutSeconds: timeout === undefined ? undefined : timeout / 1000,
        elements,
      });
    }
    if (expected !== undefined && compared.size > 0) {
      await this.#compare(compared, expected);
      for (const [name, { set, unseen, others }] of compared) {
        const content = sets.get(name);
        if (content === undefined) continue;
        // Unexpected elements cannot be queried by key: list the set.
        if (unseen !== 0) sets.set(name, { ...content, elements: await this.elements(set) });
        else sets.set(name, { ...content, others });
      }
    }
    return {
      isDormant: (tableFlags & nft.NFT_TABLE_F_DORMANT) !== 0,
      hasOtherFlags: (tableFlags & ~nft.NFT_TABLE_F_DORMANT) !== 0,
      chains,
      sets,
      counters: await this.counters(),
    };
  }

  /** Queries the element that catches all keys. @returns the sets that have one. */
  async withCatchAll(sets: Iterable<NftSet>): Promise<readonly NftSet[]> {
    const found: NftSet[] = [];
    const questions = this.#questioner<{ readonly set: NftSet }>(({ set }, _element, answer) => {
      if (answer !== "missing") found.push(set);
    });
    for (const set of sets) await questions.ask({ set }, { key: [] });
    await questions.send();
    return found;
  }

  /** Where the rules of these chains translate destinations to. */
  async targets(chains: Iterable<string>): Promise<ReadonlyMap<string, readonly NftTarget[]>> {
    const [client, table, layout] = [this.#client, this.#table, this.#layout];
    const { nfproto } = layout;
    const found = new Map<string, NftTarget[]>();
    for (const chain of chains) {
      const rules = (await client.rules(nfproto, table, chain).catch(undefinedIf("ENOENT"))) ?? [];
      const targets: NftTarget[] = [];
      for (const { expressions = [] } of rules) {
        if (!expressions.some(({ kind }) => kind === "nat")) continue;
        const constants = expressions.flatMap((one) => (one.kind === "immediate" ? [one.data?.value ?? NO_BYTES] : []));
        const fixed = targetOf(Buffer.concat(constants), layout);
        if (fixed !== undefined) targets.push(fixed);
        for (const one of expressions) {
          if (one.kind !== "lookup" || one.dreg === undefined || one.set === undefined) continue;
          const elements = (await client.elements(nfproto, table, one.set).catch(undefinedIf("ENOENT"))) ?? [];
          for (const { data } of elements) {
            const target = data?.value && targetOf(data.value, layout);
            if (target !== undefined) targets.push(target);
          }
        }
      }
      if (targets.length > 0) found.set(chain, targets);
      if (isTurnDue()) await giveTurn();
    }
    return found;
  }

  /** Reads the packets of each named counter. */
  async counters(): Promise<ReadonlyMap<string, number>> {
    const counters = await this.#client.counters(this.#layout.nfproto, this.#table);
    return new Map(counters.map(({ name = "", data }) => [name, data?.packets ?? 0]));
  }

  /** Reads all elements of a set. @throws NetlinkError `ENOENT` if there is no such set. */
  async elements({ name, key }: Pick<NftSet, "name" | "key">): Promise<NftElement[]> {
    const elements: NftElement[] = [];
    let looks = 0;
    for (const object of await this.#client.elements(this.#layout.nfproto, this.#table, name)) {
      const element = elementOf(object, key, this.#layout);
      if (element !== undefined) elements.push(element);
      if (++looks % OBJECTS_PER_LOOK === 0 && isTurnDue()) await giveTurn();
    }
    return elements;
  }

  /**
   * Queries each expected element. In maps with targets, consecutive elements with the same comment are only checked
   * ({@link ElementChecks}), except for the first of them; groups that fail the check are queried too.
   */
  async #compare(sets: ReadonlyMap<string, Comparison>, expected: NftExpectation): Promise<void> {
    const questions = this.#questioner<Comparison>((state, element, answer) => {
      if (answer !== "missing") state.unseen -= 1;
      if (answer === "as expected") return;
      const found = answer === "missing" ? undefined : elementOf(answer, state.set.key, this.#layout);
      state.others.set(elementKey(element.key), found);
    });
    function* expectedElements() {
      const groupOf = groupNumbers();
      let before: { readonly set: string; readonly element: NftElement } | undefined;
      for (const one of expected.elements(sets)) {
        const state = sets.get(one.set);
        const isFirst = one.set !== before?.set || one.element.comment !== before.element.comment;
        before = one;
        if (state === undefined) continue;
        const group = isFirst || state.set.hasTargets !== true ? undefined : groupOf(state.set);
        yield { state, element: one.element, group };
      }
    }
    const checks = new ElementChecks(this.#client, this.#table, this.#layout);
    for (const { state, element, group } of expectedElements()) {
      if (group === undefined) await questions.ask(state, element);
      else {
        state.unseen -= 1;
        const pause = checks.add(group, state.set, element);
        if (pause !== undefined) await pause;
      }
    }
    const refused = await checks.refused();
    for (const { state, element, group } of refused.size === 0 ? [] : expectedElements()) {
      if (group === undefined || !refused.has(group)) continue;
      state.unseen += 1;
      await questions.ask(state, element);
    }
    await questions.send();
  }

  /** Queries elements of sets, many at once. @param onAnswer gets an element, and what the kernel has at its key */
  #questioner<T extends { readonly set: NftSet }>(
    onAnswer: (about: T, element: NftElement, answer: ElementAnswer) => void,
  ) {
    const [client, layout] = [this.#client, this.#layout];
    const query = new ElementQuery(layout.nfproto, this.#table);
    const asked: (readonly [T, NftElement])[] = [];
    const send = async (): Promise<void> => {
      if (query.size === 0) return;
      await client.ask(query, (index, answer) => {
        const one = asked[index];
        if (one !== undefined) onAnswer(...one, answer);
      });
      query.reset();
      asked.length = 0;
    };
    const ask = async (about: T, element: NftElement): Promise<void> => {
      query.add(about.set.name, (out) => writeElement(out, about.set, element, layout));
      asked.push([about, element]);
      if (query.size >= QUESTIONS_AT_ONCE) await send();
    };
    return { ask, send };
  }
}

const NO_BYTES = new Uint8Array();

const HOOK_NAMES: ReadonlyMap<number, NftHook["hook"]> = new Map(
  (Object.keys(nft.NF_INET_HOOKS) as NftHook["hook"][]).map((name) => [nft.NF_INET_HOOKS[name], name]), // the table's own keys
);

function hookOf({ type, hook, policy }: NftChainHeadObject): NftChainContent["hook"] {
  if (hook === undefined) return undefined;
  const name = HOOK_NAMES.get(hook.hooknum ?? -1);
  if (name === undefined || (type !== "filter" && type !== "nat")) return "other";
  const known: NftHook = { type, hook: name, priority: hook.priority ?? 0 };
  return policy === nft.NF_ACCEPT ? known : { ...known, policy: "drop" };
}

/**
 * Undefined for sets with other key types, and for sets of other kinds: with intervals, with values that are neither
 * verdicts nor targets, with a limited size, or with elements that expire or limit.
 */
function keyOf(set: NftSetHead, layout: FamilyLayout): NftKeyType[] | undefined {
  const { flags = 0, keyType = 0, dataType, timeout, policy = 0, description, expression, expressions } = set;
  const isMap = (flags & nft.NFT_SET_MAP) !== 0;
  const kind = flags & ~nft.NFT_SET_MAP;
  const isDynamic = kind === (nft.NFT_SET_TIMEOUT | nft.NFT_SET_EVAL) && timeout !== undefined;
  if (kind !== 0 && !isDynamic) return undefined;
  if (isMap && dataType !== targetTypeId(layout) && (isDynamic || dataType !== nft.NFT_TYPES.verdict)) return undefined;
  const { size = 0 } = description ?? {};
  // Sets that packets fill have the kernel's default size, or more.
  if (size !== 0 && !(isDynamic && (isMap ? size > DYNAMIC_SET_SIZE : size === DYNAMIC_SET_SIZE))) return undefined;
  if (policy !== 0 || (expression !== undefined && expression.kind !== "counter") || expressions !== undefined)
    return undefined;
  return keyTypesOf(keyType, layout);
}

/** Undefined if the key does not have the length of these types. */
function elementOf(
  { key: data, data: value, flags = 0, userdata, expression }: NftElementObject,
  key: readonly NftKeyType[],
  layout: FamilyLayout,
): NftElement | undefined {
  const isCatchAll = (flags & nft.NFT_SET_ELEM_CATCHALL) !== 0;
  const values = isCatchAll ? [] : data?.value && decodeKey(key, data.value, layout);
  if (values === undefined) return undefined;
  const verdict = value?.verdict && verdictOf(value.verdict);
  const target = value?.value && targetOf(value.value, layout);
  const comment = commentOf(userdata);
  return {
    key: values,
    ...(verdict === undefined ? {} : { verdict }),
    ...(target === undefined ? {} : { target }),
    ...(comment === undefined ? {} : { comment }),
    ...(expression?.kind === "counter" ? { packets: expression.packets ?? 0 } : {}),
  };
}

/** @param bytes an address and a port, with or without the padding of a map's value */
function targetOf(bytes: Uint8Array, layout: FamilyLayout): NftTarget | undefined {
  const whole = bytes.length === layout.addressBytes + 2 ? Buffer.concat([bytes, new Uint8Array(2)]) : bytes;
  const [ip, port] = decodeKey(TARGET, whole, layout) ?? [];
  return ip === undefined ? undefined : { ip: ip as IpAddress, port: Number(port) }; // decoded as TARGET says
}

/** Undefined for verdicts that elements of this program never have. */
function verdictOf({ code, chain = "" }: NftVerdictData): NftVerdict | undefined {
  const kind = (["drop", "jump", "goto"] as const).find((one) => nft.VERDICT_CODES[one] === code);
  if (kind === undefined) return undefined;
  return kind === "drop" ? { kind } : { kind, chain };
}
