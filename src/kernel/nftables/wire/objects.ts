/**
 * Attributes of tables, chains, rules, sets and elements in messages: reference nfnetlink.md §4. They are in the kernel's
 * order. Numbers and bytes are the kernel's; the layers above interpret them.
 */
import { attributes, binary, i32be, list, u32be, u64be, type ValueOf, zstring } from "../../netlink/attributes.ts";
import { data } from "./data.ts";
import { expression, jumpTarget, statefulExpression } from "./expressions.ts";

/** Some of the attributes of an object. */
function some<F, K extends keyof F>(fields: F, ...names: readonly K[]): Pick<F, K> {
  return Object.fromEntries(names.map((name) => [name, fields[name]])) as Pick<F, K>; // these names
}

export const table = attributes({
  name: [1, zstring],
  use: [3, u32be],
  handle: [4, u64be],
  flags: [2, u32be],
  owner: [7, u32be],
  userdata: [6, binary],
});

const hook = attributes({
  hooknum: [1, u32be],
  priority: [2, i32be],
  device: [3, zstring],
  devices: [4, list(1, zstring)],
});

const CHAIN = {
  table: [1, zstring],
  name: [3, zstring],
  handle: [2, u64be],
  hook: [4, hook],
  policy: [5, u32be],
  type: [7, zstring],
  counters: [8, attributes({ packets: [2, u64be], bytes: [1, u64be] })],
  flags: [10, u32be],
  /** The number of its rules, plus that of rules and elements that go to it. */
  use: [6, u32be],
  id: [11, u32be],
  userdata: [12, binary],
} as const;
export const chain = attributes(CHAIN);

/** Where a chain is, and whether the kernel calls it. */
export const hookedChain = attributes({ ...some(CHAIN, "table", "name", "handle"), hook: [4, binary] });

/** A chain without its statistics. */
export const chainHead = attributes(some(CHAIN, "table", "name", "hook", "policy", "type", "use"));

const RULE = {
  table: [1, zstring],
  chain: [2, zstring],
  handle: [3, u64be],
  position: [6, u64be],
  expressions: [4, list(1, expression)],
  userdata: [7, binary],
  id: [9, u32be],
  positionId: [10, u32be],
  chainId: [11, u32be],
} as const;
export const rule = attributes(RULE);

/** A rule without its expressions, except for the chain to which it finally goes. */
export const ruleHead = attributes({ ...some(RULE, "table", "chain", "handle", "userdata"), target: [4, jumpTarget] });

/** A rule with what no listing needs to know of its expressions: their names, and the data of iptables' own. */
export const ruleOutline = attributes({
  ...some(RULE, "table", "chain", "handle"),
  expressions: [4, list(1, attributes({ name: [1, zstring], data: [2, binary] }))],
});
/** A match or a target of iptables (NFTA_MATCH_*, NFTA_TARGET_*). */
export const extension = attributes({ name: [1, zstring], revision: [2, u32be], data: [3, binary] });

const description = attributes({
  size: [1, u32be],
  concat: [2, list(1, attributes({ length: [1, u32be] }))],
});

const SET = {
  table: [1, zstring],
  name: [2, zstring],
  handle: [16, u64be],
  flags: [3, u32be],
  keyType: [4, u32be],
  keyLength: [5, u32be],
  dataType: [6, u32be],
  dataLength: [7, u32be],
  objectType: [15, u32be],
  /** Milliseconds. */
  timeout: [11, u64be],
  gcInterval: [12, u32be],
  policy: [8, u32be],
  userdata: [13, binary],
  description: [9, description],
  /** The kernel's set implementation and the number of elements; newer kernels only. */
  implementation: [19, zstring],
  elementCount: [20, u32be],
  /** The expression that each element gets. */
  expression: [17, statefulExpression],
  expressions: [18, list(1, statefulExpression)],
  id: [10, u32be],
} as const;
export const set = attributes(SET);

/** A set's definition, without what `nft` needs to print it. Tens of thousands of heads are cheap to read. */
export const setHead = attributes({
  ...some(SET, "table", "name", "flags", "keyType", "dataType", "timeout", "policy", "elementCount", "expression"),
  description: [9, attributes({ size: [1, u32be] })],
  expressions: [18, binary],
});

export const element = attributes({
  key: [1, data],
  keyEnd: [10, data],
  data: [2, data],
  expression: [7, statefulExpression],
  expressions: [11, list(1, statefulExpression)],
  object: [9, zstring],
  flags: [3, u32be],
  /** Milliseconds. */
  timeout: [4, u64be],
  expiration: [5, u64be],
  userdata: [6, binary],
});

export const elements = attributes({
  table: [1, zstring],
  set: [2, zstring],
  setId: [4, u32be],
  elements: [3, list(1, element)],
});

/** A named counter. */
export const counter = attributes({
  table: [1, zstring],
  name: [2, zstring],
  type: [3, u32be],
  data: [4, attributes({ packets: [2, u64be], bytes: [1, u64be] })],
});

export const generation = attributes({ id: [1, u32be], processId: [2, u32be], processName: [3, zstring] });

export type NftTableObject = ValueOf<typeof table>;
export type NftChainHeadObject = ValueOf<typeof chainHead>;
export type NftSetHead = ValueOf<typeof setHead>;
export type NftSetObject = ValueOf<typeof set>;
export type NftElementObject = ValueOf<typeof element>;
export type NftElementsObject = ValueOf<typeof elements>;
export type NftGeneration = ValueOf<typeof generation>;
