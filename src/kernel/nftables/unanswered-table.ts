/**
 * Which endpoints do not answer, as packets report it: a table of our own beside the rules of any mode. It counts the SYNs of tracked
 * connections that are sent again, by endpoint and a part of the clients, so that a flood of clients adds nothing.
 */
import { type IpFamily, joinHostPort, parseHostPort } from "../../net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../net/protocol.ts";
import { UNANSWERED_TABLE } from "./delete-tables.ts";
import { fromNetlinkError, fromRefusal } from "./netlink-errors.ts";
import {
  bitwise,
  CT_STATE_NEW,
  CT_STATUS_DNAT,
  compare,
  ctHasAny,
  HASHED_BEHIND,
  metaIs,
  register,
  ruleExpressions,
  transport,
} from "./netlink-expressions.ts";
import { encodeTransaction } from "./netlink-transaction.ts";
import { decodeKey, type FamilyLayout, LAYOUTS } from "./netlink-values.ts";
import type { NftOperation } from "./nftables.ts";
import type { NftElement, NftSet } from "./ruleset.ts";
import type { NftBatch } from "./wire/batch.ts";
import * as nft from "./wire/constants.ts";
import type { NftExpression } from "./wire/expressions.ts";
import { openNftables } from "./wire/nftables-client.ts";

const COMMENT = "endpoints that do not answer kube-proxy's clients";

/**
 * What packets reported since the last look. `source` is one of a few parts of all clients: two parts are two clients for certain.
 * ICMP errors of this node count as unanswered.
 */
export type PacketEvidence =
  | { readonly kind: "unanswered"; readonly endpoint: string; readonly source: string; readonly count: number }
  | { readonly kind: "answered"; readonly endpoint: string };

/** Endpoints of the family, as `ip:port`. */
export interface ObservedEndpoints {
  /** Whose unanswered SYNs are counted. */
  readonly watched: ReadonlySet<string>;
  /** Whose answers are counted: every TCP packet costs a little while there is any. */
  readonly suspects: ReadonlySet<string>;
}

/** One family's table. If it was deleted, the next call makes it again. */
export interface UnansweredObserver {
  observe(endpoints: ObservedEndpoints): Promise<void>;
  /** What is new since the last call. */
  read(): Promise<readonly PacketEvidence[]>;
  /** Removes the table. */
  close(): Promise<void>;
}

const CLIENT_PARTS = 4;
const WATCHED: NftSet = { name: "watched", key: ["address", "port"], isMap: false };
const SUSPECTS: NftSet = { name: "suspects", key: ["address", "port"], isMap: false, hasCounters: true };
const UNANSWERED: NftSet = {
  name: "unanswered",
  key: ["address", "port", "slot"],
  slots: CLIENT_PARTS,
  isMap: false,
  timeoutSeconds: 10,
  size: 16_384,
  hasCounters: true,
};
const HOOKS = ["prerouting", "output"] as const;
/** Before destination NAT, but after connection tracking. */
const PRIORITY = -110;
const NO_TABLE: NftOperation = { kind: "delete-table" };
const NO_ENDPOINTS: ObservedEndpoints = { watched: new Set(), suspects: new Set() };

/**
 * Makes the table, in place of one that another process left. @throws NftError if the kernel lacks something.
 * @param isTranslated whether rules translate all connections of Services; if not, those to the endpoints themselves count, too
 */
export async function openUnansweredObserver(family: IpFamily, isTranslated: boolean): Promise<UnansweredObserver> {
  const table = new FamilyTable(LAYOUTS[family === "IPv4" ? "ip" : "ip6"], isTranslated);
  try {
    await table.make();
  } catch (error) {
    await table.close().catch(() => {}); // the first error counts
    throw error;
  }
  return table;
}

class FamilyTable implements UnansweredObserver {
  readonly #client = openNftables();
  readonly #layout: FamilyLayout;
  readonly #isTranslated: boolean;
  #observed = NO_ENDPOINTS;
  /** The packets of each element at the last look. */
  #packets = new Map<string, number>();

  constructor(layout: FamilyLayout, isTranslated: boolean) {
    this.#layout = layout;
    this.#isTranslated = isTranslated;
  }

  async make(): Promise<void> {
    this.#packets.clear();
    const table: NftOperation = { kind: "add-table", comment: COMMENT };
    const sets = [WATCHED, SUSPECTS, UNANSWERED].map((set): NftOperation => ({ kind: "add-set", set }));
    const chains = HOOKS.map((hook): NftOperation => {
      return { kind: "add-chain", chain: { name: hook, hook: { type: "filter", hook, priority: PRIORITY } } };
    });
    // A table can only be deleted where there is one.
    const whole = [table, NO_TABLE, table, ...sets, ...chains, ...changes(NO_ENDPOINTS, this.#observed)];
    await this.#commit(whole, true);
  }

  async observe(endpoints: ObservedEndpoints): Promise<void> {
    const before = this.#observed;
    this.#observed = endpoints;
    const hasOtherRules = before.suspects.size > 0 !== endpoints.suspects.size > 0;
    const flushed = hasOtherRules ? HOOKS.map((chain): NftOperation => ({ kind: "flush-chain", chain })) : [];
    const all = [...changes(before, endpoints), ...flushed];
    await this.#commit(all, hasOtherRules).catch((error: unknown) => this.#makeAgain(error));
  }

  async read(): Promise<readonly PacketEvidence[]> {
    const found: PacketEvidence[] = [];
    const packets = new Map<string, number>();
    const sets = this.#observed.suspects.size > 0 ? [UNANSWERED, SUSPECTS] : [UNANSWERED];
    try {
      for (const set of sets) await this.#readSet(set, packets, found);
    } catch (error) {
      await this.#makeAgain(error);
    }
    this.#packets = packets;
    return found;
  }

  async close(): Promise<void> {
    try {
      await this.#commit([NO_TABLE], false);
    } catch (error) {
      if (fromNetlinkError(error).code !== "not_found") throw error;
    } finally {
      await this.#client.close();
    }
  }

  async #readSet({ name, key }: NftSet, packets: Map<string, number>, found: PacketEvidence[]): Promise<void> {
    for (const element of await this.#client.elements(this.#layout.nfproto, UNANSWERED_TABLE, name)) {
      const values = element.key?.value && decodeKey(key, element.key.value, this.#layout);
      if (values === undefined || element.expression?.kind !== "counter") continue;
      const id = `${name} ${values.join(" ")}`;
      const { packets: now = 0 } = element.expression;
      const before = this.#packets.get(id) ?? 0;
      packets.set(id, now);
      // An element that was away meanwhile counts from the beginning.
      const count = now < before ? now : now - before;
      if (count === 0) continue;
      const [ip, port, part] = values.map(String);
      const endpoint = joinHostPort(ip ?? "", port ?? "");
      if (part === undefined) found.push({ kind: "answered", endpoint });
      else found.push({ kind: "unanswered", endpoint, source: part, count });
    }
  }

  async #makeAgain(error: unknown): Promise<void> {
    const said = fromNetlinkError(error);
    if (said.code !== "not_found") throw said;
    await this.make();
  }

  async #commit(operations: readonly NftOperation[], hasRules: boolean): Promise<void> {
    const transaction = await encodeTransaction({ layout: this.#layout, table: UNANSWERED_TABLE }, operations);
    if (hasRules) this.#addRules(transaction.batch);
    const result = await this.#client.commit(transaction.batch);
    if (!result.committed) throw fromRefusal(result, transaction);
  }

  #addRules(batch: NftBatch): void {
    const layout = this.#layout;
    for (const chain of HOOKS) {
      const isOutput = chain === "output";
      const rules = [sentAgain(layout, isOutput, this.#isTranslated ? CT_STATUS_DNAT : CT_STATUS_CONFIRMED)];
      if (isOutput) rules.push(...OWN_ERRORS[layout.family].codes.map((code) => ownError(layout, code)));
      if (this.#observed.suspects.size > 0) rules.push(answer(layout, isOutput));
      for (const expressions of rules) batch.add("rule", { table: UNANSWERED_TABLE, chain, expressions });
    }
  }
}

function changes(before: ObservedEndpoints, next: ObservedEndpoints): readonly NftOperation[] {
  const ofSet = (set: NftSet, was: ReadonlySet<string>, is: ReadonlySet<string>): readonly NftOperation[] => [
    { kind: "delete-elements", set, keys: keysOf(was.difference(is)) },
    { kind: "add-elements", set, elements: keysOf(is.difference(was)).map((key) => ({ key })) },
  ];
  return [...ofSet(WATCHED, before.watched, next.watched), ...ofSet(SUSPECTS, before.suspects, next.suspects)];
}

function keysOf(endpoints: ReadonlySet<string>): readonly NftElement["key"][] {
  const parsed = [...endpoints].map(parseHostPort).filter((endpoint) => endpoint !== undefined);
  return parsed.map(({ address, port }) => [address, port]);
}

const CT_STATE_RELATED = 4;
const CT_STATUS_CONFIRMED = 8;
const TCP_FLAGS_AT = 13;
const [SYN, RST, FIN_SYN_RST_ACK] = [0x02, 0x04, 0x17];
/** ICMP for a destination without a route, and for one whose neighbor entry fails. */
const OWN_ERRORS = {
  ip: { protocol: 1, type: 3, codes: [0, 1] },
  ip6: { protocol: 58, type: 1, codes: [0, 3] },
} as const;

/** The SYN of a connection that was not answered. When the first SYN comes here, its connection has no status yet. */
function sentAgain(layout: FamilyLayout, isOutput: boolean, status: number): readonly NftExpression[] {
  return [
    ...protocol(PROTOCOL_NUMBERS.TCP),
    ...tcpFlags(FIN_SYN_RST_ACK, SYN),
    ...ctHasAny(nft.NFT_CT_STATE, CT_STATE_NEW),
    ...ctHasAny(nft.NFT_CT_STATUS, status),
    ...(isOutput ? [] : fromElsewhere(layout)),
    ...count(layout),
  ];
}

/** An error of this node for a client: then the kernel may have dropped even the first SYN, and {@link sentAgain} matches none. */
function ownError(layout: FamilyLayout, code: number): readonly NftExpression[] {
  const { protocol: icmp, type } = OWN_ERRORS[layout.family];
  return [
    ...protocol(icmp),
    transport(0, 2),
    compare(Uint8Array.of(type, code)),
    ...ctHasAny(nft.NFT_CT_STATE, CT_STATE_RELATED),
    { kind: "ct", key: nft.NFT_CT_PROTOCOL, dreg: nft.NFT_REG_1, direction: nft.IP_CT_DIR_ORIGINAL },
    compare(Uint8Array.of(PROTOCOL_NUMBERS.TCP)),
    ...count(layout),
  ];
}

/** Any packet of the endpoint: one that accepts no more connections may still serve its open ones. */
function answer(layout: FamilyLayout, isOutput: boolean): readonly NftExpression[] {
  return [
    ...protocol(PROTOCOL_NUMBERS.TCP),
    // A reset that leaves this node may come from one of its rules.
    ...(isOutput ? tcpFlags(RST, 0) : fromElsewhere(layout)),
    { kind: "ct", key: nft.NFT_CT_DIRECTION, dreg: nft.NFT_REG_1 },
    compare(Uint8Array.of(nft.IP_CT_DIR_REPLY)),
    ...endpointIn(SUSPECTS, layout),
  ];
}

/** What the node sends to itself has passed output, and has the status by then even if it is a first SYN. */
function fromElsewhere(layout: FamilyLayout): readonly NftExpression[] {
  const loopback = { kind: "in-interface", name: "lo", isPrefix: false, negate: true } as const;
  return ruleExpressions({ statements: [loopback] }, layout, () => "");
}

function protocol(number: number): readonly NftExpression[] {
  return metaIs(nft.NFT_META_L4PROTO, Uint8Array.of(number));
}

function tcpFlags(mask: number, value: number): readonly NftExpression[] {
  return [transport(TCP_FLAGS_AT, 1), bitwise(Uint8Array.of(mask)), compare(Uint8Array.of(value))];
}

/** `ct reply ip saddr . ct reply proto-src @set`; leaves the endpoint in the first registers. */
function endpointIn({ name }: NftSet, layout: FamilyLayout): readonly NftExpression[] {
  const lookup = { kind: "lookup", fields: ["reply-saddr", "reply-sport"], set: name } as const;
  return ruleExpressions({ statements: [lookup] }, layout, () => "");
}

/** `update @unanswered { ct reply ip saddr . ct reply proto-src . jhash ct original ip saddr mod 4 }`, if the endpoint is watched. */
function count(layout: FamilyLayout): readonly NftExpression[] {
  const part = layout.addressBytes / 4 + 1;
  const client = register(part + HASHED_BEHIND);
  const key = layout.family === "ip" ? nft.NFT_CT_SRC_IP : nft.NFT_CT_SRC_IP6;
  const hashed = { sreg: client, dreg: register(part), len: layout.addressBytes, modulus: CLIENT_PARTS };
  return [
    ...endpointIn(WATCHED, layout),
    { kind: "ct", key, dreg: client, direction: nft.IP_CT_DIR_ORIGINAL },
    { kind: "hash", ...hashed, seed: 1, type: nft.NFT_HASH_JENKINS },
    { kind: "dynset", setName: UNANSWERED.name, op: nft.NFT_DYNSET_OP_UPDATE, sregKey: nft.NFT_REG_1 },
  ];
}
