/**
 * Matches that the rule parser does not read whole. What is known of a packet decides; the rest is a question that names the match.
 */
import { type ForeignPart, foreignText } from "../../kernel/iptables/parser/loose-rule.ts";
import { parseCidr, parseIpAddress } from "../../net/ip.ts";
import { PROTOCOL_NAMES, PROTOCOL_NUMBERS } from "../../net/protocol.ts";
import { asked, GO_ON, lost, NO_MATCH, type Step, type StepResult } from "../netfilter/program.ts";
import { type Flow, hasConnection, hasFlags, type Packet, tcpFlag, WITH_PORTS } from "../packet.ts";
import { ofOriginal, type PacketField, type Question, whichOf, within } from "../question.ts";
import { fits, orderOf, type Pattern, prefixRange, type Scalar } from "../value.ts";

interface Option {
  readonly name: string;
  readonly value: string;
  readonly negated: boolean;
}

interface Judge {
  /** What the answer depends on; undefined if no question says it. */
  asks(option: Option): readonly Question[] | undefined;
  /** Whether an option holds, leaving aside that it may be negated; undefined if not known. */
  holds(option: Option, packet: Packet): boolean | undefined;
}

/** Matches whose answer differs from rule to rule, and from packet to packet. */
const COUNTING = new Set(["limit", "hashlimit", "quota", "statistic", "connlimit", "recent", "rateest"]);

/** @param rule its text, for questions that only concern this rule. */
export function foreignStep(part: ForeignPart, rule: string): Step {
  const text = /^[-!]/.test(part.name) ? foreignText(part) : `-m ${foreignText(part)}`;
  const question = COUNTING.has(part.name) ? `${text} matches in "${rule}"` : `${text} matches`;
  const ask = part.words.includes("--restore-skmark") ? { ...asked(question), yes: RESTORED } : asked(question);
  const options = optionsOf(part);
  const every = Number(options.find(({ name }) => name === "--every")?.value);
  if (part.name === "statistic" && every >= 1) return { text, asks: [], run: () => oneOf(every) };
  const judge = OTHER_PROTOCOLS.has(part.name) ? ofOtherProtocol : JUDGES[part.name];
  const asks = options.map((option) => judge?.asks(option) ?? (judge === undefined ? [] : undefined));
  return {
    text,
    asks: asks.some((one) => one === undefined) ? undefined : asks.flatMap((one) => one ?? []),
    run(packet) {
      const answers = options.map((option) => {
        const holds = judge?.holds(option, packet);
        return holds === undefined ? undefined : holds !== option.negated;
      });
      if (answers.includes(false)) return NO_MATCH;
      return answers.length === 0 || answers.includes(undefined) ? ask : GO_ON;
    },
  };
}

const RESTORED = lost("the mark of the socket, which the packet gets, is not known");

function oneOf(every: number): StepResult {
  const match = { odds: 1 / every, result: GO_ON };
  return every === 1 ? GO_ON : { kind: "choice", options: [match, { odds: 1 - 1 / every, result: NO_MATCH }] };
}

function optionsOf({ words }: ForeignPart): Option[] {
  const options: Option[] = [];
  let negated = false;
  for (const word of words) {
    const last = options.at(-1);
    if (word === "!") negated = true;
    else if (word.startsWith("--") || last === undefined) {
      options.push({ name: word, value: "", negated });
      negated = false;
    } else options[options.length - 1] = { ...last, value: `${last.value} ${word}`.trim() };
  }
  return options;
}

/** Matches of headers that packets to ports of Services do not have. */
const OTHER_PROTOCOLS = new Set(["icmp", "icmp6", "icmpv6", "ipv6-icmp", "esp", "ah", "dccp", "mh", "udplite"]);
const ofOtherProtocol: Judge = {
  asks: () => [whichOf("protocol", PROTOCOL_NAMES)],
  holds: ({ negated }, { protocol }) => (PROTOCOL_NAMES.some((name) => name === protocol) ? negated : undefined),
};

const FLAG_SETS: Readonly<Record<string, number>> = { ALL: 0x3f, NONE: 0 };
/** @returns undefined if the match has no such word */
function flagBits(words: string): number | undefined {
  const bits = words.split(",").map((word) => FLAG_SETS[word] ?? tcpFlag(word));
  return bits.reduce((all, one) => (all === undefined || one === undefined ? undefined : all | one), 0);
}
const ORIGINAL_FIELDS: Readonly<Record<string, keyof Flow>> = {
  ...{ "--ctorigsrc": "source", "--ctorigdst": "destination" },
  ...{ "--ctorigsrcport": "sourcePort", "--ctorigdstport": "destinationPort" },
};

const JUDGES: Readonly<Record<string, Judge>> = {
  multiport: {
    asks: ({ name, value }) => portFields(name).map((field) => within(field, patternsOf(value, ":"))),
    holds: ({ name, value }, packet) =>
      isOneIn(
        portFields(name).map((field) => packet[field]),
        value,
        ":",
      ),
  },
  iprange: {
    asks: ({ name, value }) => [within(rangeField(name), patternsOf(value, "-"))],
    holds: ({ name, value }, packet) => isOneIn([packet[rangeField(name)]], value, "-"),
  },
  connmark: {
    asks: () => [],
    holds({ value: text, negated }, packet) {
      if (!hasConnection(packet)) return negated;
      const [value = 0, mask = 0xffff_ffff] = text.split("/").map(Number);
      const { value: mark, known } = packet.connectionMark;
      if (((mark ^ value) & mask & known) !== 0) return false;
      return (mask & ~known) === 0 ? true : undefined;
    },
  },
  tcp: {
    asks: () => [],
    holds({ name, value }, packet) {
      const [mask, wanted] = (name === "--syn" ? "FIN,SYN,RST,ACK SYN" : value).split(" ").map(flagBits);
      return mask === undefined || wanted === undefined ? undefined : hasFlags(packet, mask, wanted);
    },
  },
  owner: {
    asks: () => [whichOf("inInterface", [""])],
    holds: (_option, { origin }) => (origin === "socket" ? undefined : false),
  },
  ipvs: {
    asks: () => [],
    holds({ name, negated }, { virtualServer }) {
      if (name === "--ipvs") return virtualServer !== undefined;
      return virtualServer === undefined ? negated : undefined;
    },
  },
  physdev: {
    asks: ({ value }) => [whichOf("bridgePort", ["", value])],
    holds({ name, value }, { bridgePort }) {
      if (bridgePort === "") return false;
      const isKnown = name === "--physdev-in" && bridgePort !== undefined && !value.endsWith("+");
      return isKnown ? bridgePort === value : undefined;
    },
  },
  conntrack: {
    asks({ name, value }) {
      const field = ORIGINAL_FIELDS[name];
      if (field !== undefined)
        return [...(isPort(field) ? [OF_PORTS] : []), ofOriginal(field, patternsOf(value, betweenOf(field)))];
      return name === "--ctproto" ? [whichOf("protocol", [...Object.keys(NUMBERS), value])] : [];
    },
    holds({ name, value, negated }, packet) {
      if (!hasConnection(packet)) return negated;
      const { protocol, original, state, isRefusal } = packet;
      if (name === "--ctproto")
        return isRefusal || state === "related" ? undefined : [protocol, `${NUMBERS[protocol]}`].includes(value);
      if (name === "--ctdir" && (state === "new" || isRefusal)) return value === (isRefusal ? "REPLY" : "ORIGINAL");
      const field = ORIGINAL_FIELDS[name];
      if (field !== undefined && isPort(field) && !isRefusal && !WITH_PORTS.includes(protocol)) return undefined;
      // It may be another's connection.
      return field === undefined || (state === "related" && !isRefusal)
        ? undefined
        : isOneIn([original[field]], value, betweenOf(field));
    },
  },
};

const NUMBERS: Readonly<Record<string, number>> = { ...PROTOCOL_NUMBERS, icmp: 1, icmpv6: 58 };

const isPort = (field: string) => field.endsWith("Port");
const betweenOf = (field: string) => (isPort(field) ? ":" : "-");
const OF_PORTS = whichOf("protocol", WITH_PORTS);

function portFields(option: string): readonly PacketField[] {
  if (/^--(?:s|source-)ports?$/.test(option)) return ["sourcePort"];
  return /^--(?:d|destination-)ports?$/.test(option) ? ["destinationPort"] : ["sourcePort", "destinationPort"];
}

const rangeField = (option: string): PacketField => (option === "--src-range" ? "source" : "destination");

const patternsOf = (text: string, between: string) => text.split(",").flatMap((one) => patternOf(one, between) ?? []);

/** Whether one of the values is in one of the ranges; undefined if not known. */
function isOneIn(values: readonly (Scalar | undefined)[], text: string, between: string): boolean | undefined {
  const patterns = text.split(",").map((one) => patternOf(one, between));
  if (patterns.some((one) => one !== undefined && values.some((value) => value !== undefined && fits(one, value))))
    return true;
  return values.includes(undefined) || patterns.includes(undefined) ? undefined : false;
}

/** A port, an address or a prefix, or a range with `between` between its ends. */
function patternOf(text: string, between: string): Pattern | undefined {
  const cidr = parseCidr(text);
  if (cidr !== undefined) return prefixRange(cidr);
  const [from, to = from] = text
    .split(between)
    .map((end) => orderOf(/^\d+$/.test(end) ? Number(end) : (parseIpAddress(end) ?? "")));
  return from === undefined || to === undefined ? undefined : { kind: "range", first: from, last: to };
}
