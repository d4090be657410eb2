/**
 * The targets of iptables rules: their options, meaning and output format, as iptables 1.8.9 prints it. One table; any
 * other word after `-j` is a chain name.
 */
import { type IpFamily, joinHostPort } from "../../../net/ip.ts";
import { isProtocolName } from "../../../net/protocol.ts";
import {
  type ExtensionSyntax,
  extension,
  type GivenOptions,
  hex,
  parseAddress,
  parseMark,
  parseNumber,
  type RuleContext,
} from "./rule-options.ts";

const REJECT_WITH: Readonly<Record<IpFamily, readonly string[]>> = {
  IPv4: [
    "icmp-port-unreachable",
    "icmp-net-unreachable",
    "icmp-host-unreachable",
    "icmp-proto-unreachable",
    "icmp-net-prohibited",
    "icmp-host-prohibited",
    "icmp-admin-prohibited",
    "tcp-reset",
  ],
  IPv6: [
    "icmp6-port-unreachable",
    "icmp6-no-route",
    "icmp6-adm-prohibited",
    "icmp6-addr-unreachable",
    "icmp6-policy-fail",
    "icmp6-reject-route",
    "tcp-reset",
  ],
};

const BARE: ExtensionSyntax<object> = { options: {}, build: () => ({}), print: () => "" };

/** By the word after `-j`. */
export const TARGETS = {
  ACCEPT: extension("ACCEPT", BARE),
  DROP: extension("DROP", BARE),
  RETURN: extension("RETURN", BARE),
  REJECT: extension("REJECT", {
    options: { "--reject-with": 1 },
    build: (given, { family, protocol }) => {
      const known = REJECT_WITH[family];
      const answer = given.get("--reject-with")?.value ?? known[0] ?? "";
      if (!known.includes(answer)) throw given.error(`unknown reject type ${JSON.stringify(answer)}`);
      if (answer === "tcp-reset" && protocol !== "tcp") throw given.error("tcp-reset needs -p tcp");
      return { with: answer };
    },
    print: (target) => ` --reject-with ${target.with}`,
  }),
  MARK: extension("MARK", {
    options: { "--set-xmark": 1, "--set-mark": 1, "--and-mark": 1, "--or-mark": 1, "--xor-mark": 1 },
    build: buildMark,
    print: ({ value, mask }) => ` --set-xmark ${hex(value)}/${hex(mask)}`,
  }),
  MASQUERADE: extension("MASQUERADE", {
    options: { "--random": 0, "--random-fully": 0 },
    build: (given) => ({
      random: given.has("--random"),
      randomFully: given.has("--random-fully"),
    }),
    print: ({ random, randomFully }) => `${random ? " --random" : ""}${randomFully ? " --random-fully" : ""}`,
  }),
  REDIRECT: extension("REDIRECT", {
    options: { "--to-ports": 1, "--random": 0 },
    build: buildRedirect,
    print: ({ ports, random }) =>
      (ports === undefined ? "" : ` --to-ports ${ports.from === ports.to ? ports.from : `${ports.from}-${ports.to}`}`) +
      (random ? " --random" : ""),
  }),
  DNAT: extension("DNAT", {
    options: { "--to-destination": 1, "--random": 0, "--persistent": 0 },
    build: buildDnat,
    print: ({ address, port, random, persistent }) =>
      ` --to-destination ${port === undefined ? address : joinHostPort(address, port)}` +
      `${random ? " --random" : ""}${persistent ? " --persistent" : ""}`,
  }),
};

export type TargetKind = keyof typeof TARGETS;
/** A target with a fixed name. */
type NamedTarget<K extends TargetKind = TargetKind> = { [P in K]: TargetTypes[P] & { readonly kind: P } }[K];
type TargetTypes = { [K in TargetKind]: ReturnType<(typeof TARGETS)[K]["build"]> };
const SYNTAXES: { readonly [K in TargetKind]: ExtensionSyntax<NamedTarget<K>> } = TARGETS;

export type KernelTarget =
  | NamedTarget
  /** The rule only counts packets. */
  | { readonly kind: "none" }
  /** `-j`: returns here at the end of the chain. */
  | { readonly kind: "jump"; readonly chain: string }
  /** `-g`: returns to the caller of this chain. */
  | { readonly kind: "goto"; readonly chain: string };

export function isTargetName(name: string): name is TargetKind {
  return Object.hasOwn(TARGETS, name);
}

/** `-j …` or `-g …` as iptables-save prints it; empty for a rule without a target. */
export function printTarget(target: KernelTarget): string {
  switch (target.kind) {
    case "none":
      return "";
    case "jump":
      return `-j ${target.chain}`;
    case "goto":
      return `-g ${target.chain}`;
    default:
      return printNamed(target);
  }
}

function printNamed<K extends TargetKind>(target: NamedTarget<K>): string {
  return `-j ${target.kind}${SYNTAXES[target.kind].print(target)}`;
}

/** The new mark is `(old & ~mask) ^ value`. */
function buildMark(given: GivenOptions) {
  const option = given.exactlyOne(["--set-xmark", "--set-mark", "--and-mark", "--or-mark", "--xor-mark"]);
  const text = given.require(option).value;
  const { value, mask, hasMask } = parseMark(text);
  switch (option) {
    case "--set-xmark":
      return { value, mask };
    case "--set-mark":
      return { value, mask: (value | mask) >>> 0 };
    default:
      if (hasMask) throw given.error(`${option} takes no mask, got ${text}`);
      if (option === "--and-mark") return { value: 0, mask: ~value >>> 0 };
      return { value, mask: option === "--or-mark" ? value : 0 };
  }
}

/** Without ports, the packet keeps its port. */
function buildRedirect(given: GivenOptions, { protocol }: RuleContext) {
  const text = given.get("--to-ports")?.value;
  const random = given.has("--random");
  if (text === undefined) return { ports: undefined, random };
  const [first = "", last = first, ...rest] = text.split("-");
  const from = parseNumber("port", first, 65535);
  const to = parseNumber("port", last, 65535);
  if (rest.length > 0 || from > to) throw given.error(`port range ${JSON.stringify(text)} is not valid`);
  if (!isProtocolName(protocol ?? "")) throw given.error("a port needs -p tcp, udp or sctp");
  return { ports: { from, to }, random };
}

const DNAT_DESTINATION = /^(?:\[([^\]]*)\](?::(\d+))?|([0-9.]+):(\d+)|([^[\]]+))$/;

function buildDnat(given: GivenOptions, { family, protocol }: RuleContext) {
  const text = given.require("--to-destination").value;
  const match = DNAT_DESTINATION.exec(text);
  if (match === null) throw given.error(`destination ${JSON.stringify(text)} is not an address or address:port`);
  const portText = match[2] ?? match[4];
  const port = portText === undefined ? undefined : parseNumber("port", portText, 65535);
  if (port === 0) throw given.error(`port of ${JSON.stringify(text)} is not valid`);
  if (port !== undefined && !isProtocolName(protocol ?? "")) {
    throw given.error("a port needs -p tcp, udp or sctp");
  }
  return {
    address: parseAddress(match[1] ?? match[3] ?? match[5] ?? "", family),
    port,
    random: given.has("--random"),
    persistent: given.has("--persistent"),
  };
}
