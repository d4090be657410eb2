/** The targets of iptables rules as steps of a walk, those of other programs' rules too. */

import { REST } from "../../kernel/iptables/parser/listed-rules.ts";
import {
  type ForeignPart,
  foreignText,
  type LooseRule,
  parseLoosely,
} from "../../kernel/iptables/parser/loose-rule.ts";
import { type KernelTarget, printTarget } from "../../kernel/iptables/parser/rule-targets.ts";
import {
  type Cidr,
  type IpAddress,
  type IpFamily,
  ipBytes,
  ipFromBytes,
  parseCidr,
  parseIpAddress,
  splitCidr,
} from "../../net/ip.ts";
import { iptablesAction } from "../netfilter/actions.ts";
import { GO_ON, lost, NO_CONNECTION, type Step, type StepResult, type Verdict } from "../netfilter/program.ts";
import { copyStep, masquerade, redirect, translated } from "../netfilter/translations.ts";
import {
  ALL_BITS,
  type ConnectionMark,
  endText,
  hasConnection,
  type Packet,
  withDestination,
  withSource,
} from "../packet.ts";
import { ipSetName, type Surroundings } from "./surroundings.ts";

export interface RuleContext {
  readonly family: IpFamily;
  readonly surroundings: Surroundings;
  readonly hasChain: (name: string) => boolean;
}

/** Compiles the target of a rule; undefined for one that only counts, or changes nothing that a walk depends on. */
export function targetStep({ target, foreignTarget }: LooseRule, context: RuleContext): Step | undefined {
  if (foreignTarget !== undefined) return foreignStep(foreignTarget, context);
  if (target.kind === "none") return undefined;
  // A name that is neither a known target nor a chain is an extension's target.
  if ("chain" in target && !context.hasChain(target.chain))
    return foreignStep({ name: target.chain, words: [] }, context);
  const { facts } = context.surroundings;
  const asks =
    target.kind === "MASQUERADE" ? [facts.about.destination] : target.kind === "REDIRECT" ? [facts.about.source] : [];
  return {
    text: printTarget(target),
    asks,
    isAction: true,
    run: (packet) => act(target, packet, context.surroundings),
  };
}

const VERDICTS = {
  ACCEPT: { kind: "accept" },
  DROP: { kind: "drop" },
  RETURN: { kind: "return" },
} as const satisfies Record<string, Verdict>;

function act(target: Exclude<KernelTarget, { kind: "none" }>, packet: Packet, { facts }: Surroundings): StepResult {
  switch (target.kind) {
    case "jump":
    case "goto":
      return { kind: "verdict", verdict: target };
    case "ACCEPT":
    case "DROP":
    case "RETURN":
      return { kind: "verdict", verdict: VERDICTS[target.kind] };
    case "REJECT":
      return { kind: "verdict", verdict: { kind: "reject", answer: target.with } };
    case "MARK": {
      const mark = ((packet.mark & ~target.mask) ^ target.value) >>> 0;
      return { kind: "go-on", packet: { ...packet, mark }, said: `mark ${hex(mark)}` };
    }
    case "MASQUERADE":
      return masquerade(packet, facts);
    case "REDIRECT": {
      const { ports } = target;
      return ports === undefined || ports.from === ports.to
        ? redirect(packet, ports?.from, facts)
        : lost(`one of the ports ${ports.from} to ${ports.to} is chosen`);
    }
    case "DNAT": {
      const { address, port } = target;
      return translated(withDestination(packet, address, port), `dnat to ${endText(address, port)}`);
    }
  }
}

/** A target that the rule parser does not read; it is followed if it is a known word or a chain. */
function foreignStep(part: ForeignPart, { hasChain, surroundings }: RuleContext): Step | undefined {
  const { name, words } = part;
  const text = `-j ${foreignText(part)}`;
  const step = (run: Step["run"]): Step => ({ text, asks: [], isAction: true, run });
  if (name === "NOTRACK" || (name === "CT" && words.includes("--notrack"))) {
    // Behind connection tracking it changes nothing.
    return step((packet) =>
      packet.isTracked ? GO_ON : { kind: "go-on", packet: { ...packet, state: "untracked" }, said: "not tracked" },
    );
  }
  if (hasChain(name)) return step(() => ({ kind: "verdict", verdict: { kind: "jump", chain: name } }));
  const value = (option: string) => (words.includes(option) ? words[words.indexOf(option) + 1] : undefined);
  switch (name) {
    case "CONNMARK":
      return step(connmark(words, text));
    case "SNAT":
      return step((packet) => sourceNat(packet, value("--to-source")));
    case "DNAT":
      return step((packet) => destinationNat(packet, value("--to-destination")));
    case "NETMAP":
      // No question tells which of the new addresses a rule compares.
      return { ...step((packet) => netmap(packet, parseCidr(value("--to") ?? ""))), asks: undefined };
    case "MASQUERADE":
      return {
        ...step((packet) => masquerade(packet, surroundings.facts)),
        asks: [surroundings.facts.about.destination],
      };
    case "REJECT":
      return step(() => ({ kind: "verdict", verdict: { kind: "reject", answer: value("--reject-with") } }));
    case "TEE":
      return copyStep(text, parseIpAddress(value("--gateway") ?? ""));
    case "SET":
      return step(() => setEntry(words, text));
    case "TPROXY":
      return step(() =>
        lost(`TPROXY gives it to the program that listens at port ${value("--on-port")}, and drops it if none does`),
      );
    case REST:
      return step(restOfNat);
    default: {
      const action = iptablesAction(name, text);
      if (action?.kind === "none") return undefined;
      const because = `the target ${name} ${action?.kind === "decides" ? action.because : "is not understood"}`;
      // To CT, a packet that has a connection is none of its business.
      return step(({ isTracked }) => (name === "CT" && isTracked ? GO_ON : lost(because)));
    }
  }
}

/** What packets add to a set or take out is not followed: afterwards it is not known what the set has. */
function setEntry([operation, name = ""]: readonly string[], text: string): StepResult {
  if (operation !== "--add-set" && operation !== "--del-set") return lost(`"${text}" is not understood`);
  return { kind: "go-on", entry: { set: ipSetName(name), key: "" }, said: `changes the set ${name}` };
}

/** Before routing, other rules may translate the destination, and behind it the source. */
function restOfNat(packet: Packet): StepResult {
  if (packet.isDestinationDecided)
    return { kind: "go-on", packet: { ...packet, isSourceKnown: false }, said: "the rest may translate the source" };
  const question = "a rule that is not in the dump translates it";
  return { kind: "unknown", question, yes: lost(question), no: GO_ON };
}

const hex = (mark: number): string => `0x${mark.toString(16)}`;

/** `ADDRESS`, `ADDRESS:PORT`, `[ADDRESS]:PORT` or `:PORT`; either may be a range, from which the kernel chooses. */
const END = /^(?:\[([^\]]*)\]|([\d.]*(?:-[\d.]*)?)|([\da-f:.]+(?:-[\da-f:.]+)?))(?::([\d-]+)(?:\/\d+)?)?$/;

function endOf(text: string | undefined): { readonly address: string; readonly port: number | undefined } | undefined {
  const [whole, bracketed, four, six, port] = END.exec(text ?? "") ?? [];
  if (whole === undefined) return undefined;
  return { address: bracketed ?? four ?? six ?? "", port: port === undefined ? undefined : Number(port) };
}

function destinationNat(packet: Packet, text: string | undefined): StepResult {
  const { address = "", port } = endOf(text) ?? {};
  const named = parseIpAddress(address);
  const isRange = named === undefined && address !== "";
  if (text === undefined || isRange || Number.isNaN(port)) return lost(`one of ${text} is chosen`);
  return translated(withDestination(packet, named, port), `dnat to ${endText(named ?? packet.destination, port)}`);
}

function sourceNat(packet: Packet, text: string | undefined): StepResult {
  const { address = "" } = endOf(text) ?? {};
  const source = address === "" ? packet.source : parseIpAddress(address);
  if (text === undefined) return lost("SNAT has no address");
  if (source !== undefined) return translated(withSource(packet, source), `snat to ${text}`);
  return translated({ ...withSource(packet, packet.source), isSourceKnown: false }, `snat to one of ${text}`);
}

/** The source before routing is left alone, and the destination behind it. */
function netmap(packet: Packet, to: Cidr | undefined): StepResult {
  if (to === undefined) return lost("NETMAP has no network");
  const isSource = packet.isDestinationDecided;
  const mapped = withPrefix(isSource ? packet.source : packet.destination, to);
  const changed = isSource
    ? { ...withSource(packet, mapped), sourcePort: packet.sourcePort }
    : withDestination(packet, mapped, undefined);
  return translated(changed, `netmap: the ${isSource ? "source" : "destination"} becomes ${mapped}`);
}

function withPrefix(address: IpAddress, to: Cidr): IpAddress {
  const { address: network, length } = splitCidr(to);
  const prefix = ipBytes(network);
  return ipFromBytes(
    ipBytes(address).map((byte, index) => {
      const mask = (0xff00 >> Math.min(Math.max(length - 8 * index, 0), 8)) & 0xff;
      return ((prefix[index] ?? 0) & mask) | (byte & ~mask);
    }),
  );
}

/** `CONNMARK` without the shifts of its revision 2 (net/netfilter/xt_connmark.c, connmark_tg_shift). */
function connmark([action = "", ...words]: readonly string[], text: string): Step["run"] {
  const change = changeOf(action, words);
  if (change === undefined) return () => lost(`"${text}" is not understood`);
  const { nfBits, ctMask } = change;
  return (packet) => {
    const { value, known } = packet.connectionMark;
    if (!hasConnection(packet)) return NO_CONNECTION;
    if (action !== "--restore-mark") {
      const set = (value & ~ctMask) ^ (action === "--save-mark" ? packet.mark & nfBits : nfBits);
      return marked(packet, { value: set, known: known | ctMask });
    }
    const restored = (connectionMark: number): StepResult => {
      const mark = ((packet.mark & ~nfBits) ^ (connectionMark & ctMask)) >>> 0;
      const after = marked(packet, { value: connectionMark, known: known | ctMask }).packet;
      return { kind: "go-on", packet: { ...after, mark }, said: `mark ${hex(mark)}` };
    };
    const unknown = (ctMask & ~known) >>> 0;
    if (unknown === 0) return restored(value);
    const isOneBit = (unknown & (unknown - 1)) === 0;
    const yes = isOneBit ? restored(value | unknown) : lost("the connection's mark is not known");
    const question = `the connection's mark has ${isOneBit ? "" : "any of "}${hex(unknown)}`;
    return { kind: "unknown", question, yes, no: restored(value) };
  };
}

/** The bits of the packet's mark, or those set, and the bits of the connection's mark that change. */
function changeOf(
  action: string,
  words: readonly string[],
): { readonly nfBits: number; readonly ctMask: number } | undefined {
  if (action === "--save-mark" || action === "--restore-mark") {
    const bits = new Map(words.flatMap((word, at) => (at % 2 === 0 ? [[word, Number(words[at + 1])] as const] : [])));
    if ([...bits.keys()].some((option) => !["--mask", "--nfmask", "--ctmask"].includes(option))) return undefined;
    const mask = bits.get("--mask") ?? ALL_BITS;
    return { nfBits: bits.get("--nfmask") ?? mask, ctMask: bits.get("--ctmask") ?? mask };
  }
  // The rest is as in MARK.
  const { target } = parseLoosely(`-j MARK ${[action, ...words].join(" ")}`, "IPv4");
  return target.kind === "MARK" ? { nfBits: target.value, ctMask: target.mask } : undefined;
}

function marked(packet: Packet, { value, known }: ConnectionMark) {
  const connectionMark: ConnectionMark = { value: (value & known) >>> 0, known: known >>> 0 };
  const mask = connectionMark.known === ALL_BITS ? "" : `/${hex(connectionMark.known)}`;
  const said = `the connection's mark ${hex(connectionMark.value)}${mask}`;
  return { kind: "go-on", packet: { ...packet, connectionMark }, said } as const;
}
