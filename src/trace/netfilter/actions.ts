/**
 * What the actions of rules do beside what a walk follows (verdicts, translations, marks, entries of sets): one table for nftables
 * and iptables. An action that is not in it is not understood. Seen with packets on Linux 6.1 to 7.3.
 */
import { isAtLeast, type KernelVersion } from "../../kernel/kernel-version.ts";

export type Action =
  /** It changes nothing that decides where the packet goes. */
  | { readonly kind: "none" }
  /** The kernel refuses it: the rule ends. */
  | { readonly kind: "ends" }
  /** It ends or turns the way of a packet in a manner that a walk does not follow. @param because in words */
  | { readonly kind: "decides"; readonly because: string };

const NONE: Action = { kind: "none" };
const decides = (because: string): Action => ({ kind: "decides", because });

const QUEUED = decides("hands the packet to another program, and may drop it if none listens");
const TAKEN = decides("hands the packet to another program");
const SYNPROXY = decides("answers in the place of the server, and opens a connection of its own");
const LIFETIME = decides("changes how many routers the packet may pass: at 1, this node drops it");
const ZONE = decides(
  "puts packets into another connection table: answers are found there only if they are put into it, too",
);
const ADDRESS = decides("changes an address without the connection: answers do not fit");
/** Linux 7.3 does not write these fields and ends the rule. */
const HEADER = decides("changes the header, or ends the rule, from Linux 7.3 on");
const REFUSED_FROM: KernelVersion = { major: 7, minor: 3 };
const HEADER_AS_IT_IS = decides("changes the header");

/** By the name of a statement, or what it sets: `meta priority`, `ip dscp`. */
const NFTABLES: Readonly<Record<string, Action>> = {
  ...named(NONE, ["counter", "log", "comment", "continue", "last", "ct helper", "ct timeout", "secmark"]),
  "ct expectation": decides("drops the packet if the connection that it expects is expected already"),
  // Later packets of an offloaded connection skip all hooks.
  ...named(NONE, ["flow", "reset"]),
  ...named(NONE, ["meta priority", "meta nftrace", "meta secmark", "ct label", "ct event", "ct secmark"]),
  "tcp option maxseg": NONE,
  ...named(NONE, ["ip dscp", "ip ecn", "ip id", "ip6 dscp", "ip6 ecn", "ip6 flowlabel", "ether saddr", "ether daddr"]),
  queue: QUEUED,
  ...named(TAKEN, ["tproxy", "fwd"]),
  synproxy: SYNPROXY,
  "meta pkttype": decides("changes the packet's type: only packets for this host are forwarded"),
  "ct zone": ZONE,
  ...named(LIFETIME, ["ip ttl", "ip6 hoplimit"]),
  ...named(ADDRESS, ["ip saddr", "ip daddr", "ip6 saddr", "ip6 daddr"]),
  ...named(HEADER, ["ip protocol", "ip version", "ip length", "ip frag-off", "ip hdrlength", "tcp flags"]),
  ...named(HEADER, ["ip6 nexthdr", "ip6 version", "ip6 length"]),
  ...named(HEADER_AS_IT_IS, ["ip checksum", "tcp sequence", "tcp ackseq", "tcp window", "tcp checksum", "tcp doff"]),
};

/** By the name behind `-j`. */
const IPTABLES: Readonly<Record<string, Action>> = {
  ...named(NONE, ["LOG", "NFLOG", "ULOG", "AUDIT", "TRACE", "LED", "IDLETIMER", "RATEEST"]),
  ...named(NONE, ["DSCP", "TOS", "ECN", "TCPMSS", "TCPOPTSTRIP", "CHECKSUM", "CLASSIFY", "SECMARK", "CONNSECMARK"]),
  ...named(QUEUED, ["QUEUE", "NFQUEUE"]),
  TPROXY: TAKEN,
  SYNPROXY,
  ...named(ADDRESS, ["SNPT", "DNPT"]),
  CLUSTERIP: decides("drops what another node answers"),
};

function named(action: Action, names: readonly string[]): Record<string, Action> {
  return Object.fromEntries(names.map((name) => [name, action]));
}

/** The next routers are few: containers, and nodes of the cluster. */
const ENOUGH_ROUTERS = 32;

/** @param value what is set, if it is a constant. @returns undefined if it is not understood */
export function nftablesAction(name: string, value?: unknown, kernel?: KernelVersion): Action | undefined {
  const isUsual =
    name === "meta pkttype"
      ? value === "host" || value === "unicast"
      : typeof value === "number" && value >= ENOUGH_ROUTERS;
  const action = NFTABLES[name];
  if (action === HEADER && kernel !== undefined && isAtLeast(kernel, REFUSED_FROM)) return { kind: "ends" };
  return isUsual && (action === LIFETIME || name === "meta pkttype") ? NONE : action;
}

/** @param options what follows the target's name. @returns undefined if it is not understood */
export function iptablesAction(target: string, options: string): Action | undefined {
  if (target === "CT") return /--zone/.test(options) ? ZONE : NONE;
  if (target !== "TTL" && target !== "HL") return IPTABLES[target];
  const [, operation, number] = /--(?:ttl|hl)-(set|inc|dec) (\d+)/.exec(options) ?? [];
  return operation === "inc" || (operation === "set" && Number(number) >= ENOUGH_ROUTERS) ? NONE : LIFETIME;
}
