/**
 * The match extensions of iptables rules: their options, meaning and output format, as iptables 1.8.9 prints it. One
 * table; extensions that are not in it are rejected.
 */

import type { IpFamily } from "../../../net/ip.ts";
import { isProtocolName, PROTOCOL_NUMBERS, type ProtocolName } from "../../../net/protocol.ts";
import { hashProgramText, readHashProgram } from "../hash-program.ts";
import {
  type ExtensionSyntax,
  extension,
  type GivenOptions,
  hex,
  parseAddress,
  parseMark,
  parseNames,
  parseNumber,
  quoteWord,
  type RuleContext,
} from "./rule-options.ts";

/** xt_comment keeps 255 bytes; the tools silently cut off the rest. */
const COMMENT_BYTES = 255;
/** xt_recent: the structure has 200 bytes for a list name, including the terminating zero. */
const RECENT_NAME_LENGTH = 199;
const NFACCT_NAME_LENGTH = 31;
const SET_NAME_LENGTH = 31;
const HALF_SCALE = 2 ** 31;

const ALL_ONES: Readonly<Record<IpFamily, string>> = {
  IPv4: "255.255.255.255",
  IPv6: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
};

/** Connection-tracking states of the match `state`, in the order in which the tools print them. */
export const STATES = ["INVALID", "NEW", "RELATED", "ESTABLISHED", "UNTRACKED"] as const;
/** States of the match `conntrack`. */
export const CONNTRACK_STATES = [...STATES, "SNAT", "DNAT"] as const;

/** Route types in the order in which the tools print them. */
export const ADDRESS_TYPES = [
  "UNSPEC",
  "UNICAST",
  "LOCAL",
  "BROADCAST",
  "ANYCAST",
  "MULTICAST",
  "BLACKHOLE",
  "UNREACHABLE",
  "PROHIBIT",
  "THROW",
  "NAT",
  "XRESOLVE",
] as const;

function not(negated: boolean): string {
  return negated ? " !" : "";
}

/** By the name after `-m`. */
export const MATCHES = {
  comment: extension("comment", {
    options: { "--comment": 1 },
    build: (given) => ({ text: truncated(given.require("--comment").value) }),
    print: ({ text }) => ` --comment ${quoteWord(text)}`,
  }),
  conntrack: connectionStates("conntrack", "--ctstate", CONNTRACK_STATES),
  state: connectionStates("state", "--state", STATES),
  addrtype: extension("addrtype", {
    options: { "--src-type": 1, "--dst-type": 1, "--limit-iface-in": 0, "--limit-iface-out": 0 },
    invertible: ["--src-type", "--dst-type"],
    build: (given) => {
      const source = addressTypes(given, "--src-type");
      const destination = addressTypes(given, "--dst-type");
      if (source === undefined && destination === undefined) throw given.error("give --src-type or --dst-type");
      const [in_, out] = [given.has("--limit-iface-in"), given.has("--limit-iface-out")];
      if (in_ && out) throw given.error("--limit-iface-in and --limit-iface-out exclude each other");
      /** Only addresses of the packet's own device count as local. */
      const device = in_ ? ("in" as const) : out ? ("out" as const) : undefined;
      return { source, destination, device };
    },
    print: ({ source, destination, device }) =>
      printTypes("--src-type", source) +
      printTypes("--dst-type", destination) +
      (device === undefined ? "" : ` --limit-iface-${device}`),
  }),
  mark: extension("mark", {
    options: { "--mark": 1 },
    invertible: ["--mark"],
    build: (given) => {
      const { value: text, negated } = given.require("--mark");
      const { value, mask } = parseMark(text);
      return { value, mask, negated };
    },
    print: ({ value, mask, negated }) =>
      `${not(negated)} --mark ${hex(value)}${mask === 0xffffffff ? "" : `/${hex(mask)}`}`,
  }),
  statistic: extension("statistic", {
    options: { "--mode": 1, "--probability": 1 },
    invertible: ["--probability"],
    build: (given) => {
      if (given.require("--mode").value !== "random") throw given.error("only --mode random is understood");
      const { value, negated } = given.require("--probability");
      const probability = /^[0-9.]+$/.test(value) ? Number(value) : Number.NaN;
      if (!(probability <= 1)) throw given.error(`probability ${JSON.stringify(value)} is not between 0 and 1`);
      // As the kernel stores it, in units of 1/2³¹: 2³⁰ is one half.
      return { probability: Math.round(probability * HALF_SCALE), negated };
    },
    print: ({ probability, negated }) => ` --mode random${not(negated)} --probability ${probabilityText(probability)}`,
  }),
  bpf: extension("bpf", {
    options: { "--bytecode": 1 },
    build(given, { family }) {
      const program = readHashProgram(given.require("--bytecode").value, family);
      if (program === undefined) throw given.error("only the hash of a client is understood");
      return { program };
    },
    print: ({ program }) => ` --bytecode "${hashProgramText(program)}"`,
  }),
  recent: extension("recent", {
    options: {
      "--set": 0,
      "--rcheck": 0,
      "--update": 0,
      "--remove": 0,
      "--seconds": 1,
      "--reap": 0,
      "--hitcount": 1,
      "--name": 1,
      "--mask": 1,
      "--rsource": 0,
      "--rdest": 0,
    },
    invertible: ["--set", "--rcheck", "--update", "--remove"],
    build: buildRecent,
    print: (match) =>
      `${not(match.negated)} --${match.action}` +
      (match.seconds === undefined ? "" : ` --seconds ${match.seconds}`) +
      (match.reap ? " --reap" : "") +
      (match.hitCount === undefined ? "" : ` --hitcount ${match.hitCount}`) +
      ` --name ${match.list} --mask ${match.mask} --r${match.side === "source" ? "source" : "dest"}`,
  }),
  nfacct: extension("nfacct", {
    options: { "--nfacct-name": 1 },
    build: (given) => {
      const counter = given.require("--nfacct-name").value;
      if (counter === "" || counter.length > NFACCT_NAME_LENGTH) {
        throw given.error(`counter name ${JSON.stringify(counter)} must have 1 to ${NFACCT_NAME_LENGTH} characters`);
      }
      return { counter };
    },
    // iptables 1.8.9 prints two spaces here.
    print: ({ counter }) => ` --nfacct-name  ${quoteWord(counter)}`,
  }),
  set: extension("set", {
    options: { "--match-set": 2 },
    invertible: ["--match-set"],
    build: buildSet,
    print: ({ name, directions, negated }) => `${not(negated)} --match-set ${name} ${directions.join(",")}`,
  }),
  physdev: extension("physdev", {
    options: { "--physdev-is-in": 0 },
    invertible: ["--physdev-is-in"],
    build: (given) => ({ isIn: !given.require("--physdev-is-in").negated }),
    print: ({ isIn }) => `${not(!isIn)} --physdev-is-in`,
  }),
  ipvs: extension("ipvs", {
    options: { "--vproto": 1, "--vaddr": 1, "--vport": 1 },
    build: buildIpvs,
    print: ({ protocolNumber, address, port }) =>
      (protocolNumber === undefined ? "" : ` --vproto ${protocolNumber}`) +
      (address === undefined ? "" : ` --vaddr ${address}`) +
      (port === undefined ? "" : ` --vport ${port}`),
  }),
  tcp: ports("tcp"),
  udp: ports("udp"),
  sctp: ports("sctp"),
};

export type MatchKind = keyof typeof MATCHES;
/** A match of a given kind; generic so that code can index a table by kind and call the entry. */
export type KernelMatch<K extends MatchKind = MatchKind> = { [P in K]: MatchTypes[P] & { readonly kind: P } }[K];
type MatchTypes = { [K in MatchKind]: ReturnType<(typeof MATCHES)[K]["build"]> };
const SYNTAXES: { readonly [K in MatchKind]: ExtensionSyntax<KernelMatch<K>> } = MATCHES;

export function isMatchName(name: string): name is MatchKind {
  return Object.hasOwn(MATCHES, name);
}

/** `-m name` and its options, as iptables-save prints them. */
export function printMatch<K extends MatchKind>(match: KernelMatch<K>): string {
  return `-m ${match.kind}${SYNTAXES[match.kind].print(match)}`;
}

function truncated(text: string): string {
  if (text.length <= COMMENT_BYTES / 4) return text;
  const bytes = Buffer.from(text, "utf8");
  return bytes.length <= COMMENT_BYTES ? text : bytes.subarray(0, COMMENT_BYTES).toString("utf8");
}

function addressTypes(given: GivenOptions, option: string) {
  const found = given.get(option);
  if (found === undefined) return undefined;
  return { types: parseNames("address type", found.value, ADDRESS_TYPES), negated: found.negated };
}

function printTypes(option: string, types: ReturnType<typeof addressTypes>): string {
  return types === undefined ? "" : `${not(types.negated)} ${option} ${types.types.join(",")}`;
}

/** `value / 2³¹` with eleven decimals, ties to even, as C prints it. */
function probabilityText(value: number): string {
  const scaled = BigInt(value) * 10n ** 11n;
  const half = 1n << 30n;
  const rest = scaled & ((1n << 31n) - 1n);
  let digits = scaled >> 31n;
  if (rest > half || (rest === half && (digits & 1n) === 1n)) digits += 1n;
  const text = digits.toString().padStart(12, "0");
  return `${text.slice(0, -11)}.${text.slice(-11)}`;
}

function buildRecent(given: GivenOptions, { family }: RuleContext) {
  const action = given.exactlyOne(["--set", "--rcheck", "--update", "--remove"]);
  const seconds = given.get("--seconds");
  const hitCount = given.get("--hitcount");
  const isCheck = action === "--rcheck" || action === "--update";
  if ((seconds !== undefined || hitCount !== undefined) && !isCheck) {
    throw given.error("--seconds and --hitcount go with --rcheck or --update only");
  }
  if (given.has("--reap") && seconds === undefined) throw given.error('option "--reap" also requires "--seconds"');
  const list = given.get("--name")?.value ?? "DEFAULT";
  if (list === "" || list.length > RECENT_NAME_LENGTH || list.includes("/")) {
    throw given.error(`list name ${JSON.stringify(list)} is not valid`);
  }
  const mask = parseAddress(given.get("--mask")?.value ?? ALL_ONES[family], family);
  return {
    action: RECENT_ACTIONS[action],
    negated: given.require(action).negated,
    list,
    seconds: seconds && parseNumber("seconds", seconds.value, 0x7fffffff),
    hitCount: hitCount && parseNumber("hit count", hitCount.value, 255),
    /** Drops entries older than `seconds` during the check. */
    reap: given.has("--reap"),
    mask,
    /**
     * Whether `mask` is the default because none was given. It prints the same, but for IPv4 it is another rule: the
     * tools then set the unused bytes of the structure to all ones, and `-D` compares them.
     */
    hasDefaultMask: family === "IPv4" ? !given.has("--mask") : mask === ALL_ONES.IPv6,
    side: given.has("--rdest") ? ("destination" as const) : ("source" as const),
  };
}

const RECENT_ACTIONS = { "--set": "set", "--rcheck": "rcheck", "--update": "update", "--remove": "remove" } as const;

const SET_FLAGS = /^(?:src|dst)(?:,(?:src|dst)){0,5}$/;

function buildSet(given: GivenOptions) {
  const { value, negated } = given.require("--match-set");
  const [name = "", flags = ""] = value.split(" ");
  if (name === "" || name.length > SET_NAME_LENGTH) {
    throw given.error(`set name ${JSON.stringify(name)} must have 1 to ${SET_NAME_LENGTH} characters`);
  }
  if (!SET_FLAGS.test(flags)) throw given.error(`directions ${JSON.stringify(flags)} are not src and dst`);
  return { name, directions: flags.split(",") as ("src" | "dst")[], negated }; // the pattern above matched
}

/** Matches connections of one virtual server; negations are not supported. */
function buildIpvs(given: GivenOptions, { family }: RuleContext) {
  const protocol = given.get("--vproto")?.value.toLowerCase();
  const address = given.get("--vaddr")?.value;
  const port = given.get("--vport")?.value;
  if (protocol === undefined && address === undefined && port === undefined) {
    throw given.error("only --vproto, --vaddr and --vport are understood");
  }
  return {
    /** The protocol's number: 6, 17 or 132. */
    protocolNumber: protocol === undefined ? undefined : protocolNumber(protocol),
    address: address === undefined ? undefined : parseAddress(address, family),
    port: port === undefined ? undefined : parseNumber("port", port, 65535),
  };
}

function protocolNumber(text: string): number {
  return isProtocolName(text) ? PROTOCOL_NUMBERS[text] : parseNumber("protocol", text, 255);
}

function connectionStates<K extends "conntrack" | "state", S extends string>(
  kind: K,
  option: string,
  known: readonly S[],
) {
  return extension(kind, {
    options: { [option]: 1 },
    invertible: [option],
    build: (given) => {
      const { value, negated } = given.require(option);
      return { states: parseNames("connection state", value, known), negated };
    },
    print: ({ states, negated }) => `${not(negated)} ${option} ${states.join(",")}`,
  });
}

function ports<K extends ProtocolName>(protocol: K) {
  return extension(protocol, {
    options: { "--sport": 1, "--dport": 1 },
    invertible: ["--sport", "--dport"],
    aliases: { "--source-port": "--sport", "--destination-port": "--dport" },
    build: (given, context) => {
      if (context.protocol !== protocol) throw given.error(`needs -p ${protocol}`);
      return { source: portRange(given, "--sport"), destination: portRange(given, "--dport") };
    },
    print: ({ source, destination }) => printPorts("--sport", source) + printPorts("--dport", destination),
  });
}

/** Ports from `from` to `to`, inclusive. */
export interface PortRange {
  readonly from: number;
  readonly to: number;
  readonly negated: boolean;
}

/** `80`, `80:90`, `:90` or `80:`; also undefined for all ports, which the kernel cannot tell from no match. */
function portRange(given: GivenOptions, option: string): PortRange | undefined {
  const found = given.get(option);
  if (found === undefined) return undefined;
  const [first = "", last, ...rest] = found.value.split(":");
  if (rest.length > 0) throw given.error(`port range ${JSON.stringify(found.value)} is not valid`);
  const from = first === "" && last !== undefined ? 0 : parseNumber("port", first, 65535);
  const to = last === undefined ? from : last === "" ? 65535 : parseNumber("port", last, 65535);
  if (from > to) throw given.error(`port range ${JSON.stringify(found.value)} is empty`);
  return from === 0 && to === 65535 && !found.negated ? undefined : { from, to, negated: found.negated };
}

function printPorts(option: string, range: PortRange | undefined): string {
  if (range === undefined) return "";
  const text = range.from === range.to ? `${range.from}` : `${range.from}:${range.to}`;
  return `${not(range.negated)} ${option} ${text}`;
}
