/**
 * Matches and targets of iptables as the kernel keeps them (linux/netfilter/xt_*.h, netfilter_ipv4/ipt_*.h), as iptables-save prints
 * them. nft only prints their names.
 */
import { type IpFamily, ipFromBytes, joinHostPort } from "../../net/ip.ts";
import { HOST_IS_LITTLE_ENDIAN } from "../netlink/constants.ts";
import { ADDRESS_TYPES, CONNTRACK_STATES } from "./parser/rule-matches.ts";
import { hex, quoteWord } from "./parser/rule-options.ts";

export interface ExtensionData {
  readonly type: "match" | "target";
  readonly name: string;
  readonly revision: number;
  readonly data: Uint8Array;
}

/** Names of IP sets by their numbers. */
export type SetNames = ReadonlyMap<number, string>;

/** @returns options behind `-m NAME` or `-j NAME`; undefined if something in it is not understood */
type Reader = (data: Buffer, revision: number, family: IpFamily, sets: SetNames) => string | undefined;

/** Undefined if it is not understood. */
export function extensionText(
  { type, name, revision, data }: ExtensionData,
  family: IpFamily,
  sets: SetNames = new Map(),
): string | undefined {
  const [revisions, read] = (type === "match" ? MATCHES : TARGETS).get(name) ?? [];
  // The numbers have the machine's order of bytes.
  if (read === undefined || revisions?.includes(revision) !== true || !HOST_IS_LITTLE_ENDIAN) return undefined;
  try {
    const bytes = Buffer.from(data.buffer, data.byteOffset, data.length);
    const options = read(bytes, revision, family, sets);
    return options === undefined ? undefined : `-${type === "match" ? "m" : "j"} ${name} ${options}`.trimEnd();
  } catch (error) {
    // Shorter than in any known kernel.
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

const ALL = 0xffff_ffff;
const PORTS = 0xffff;
const not = (isNegated: number | boolean): string => (isNegated ? "! " : "");
const bits = (names: readonly string[], set: number): string => names.filter((_, at) => (set >> at) & 1).join(",");
const listed = (...options: readonly (string | false)[]): string =>
  options.filter((option) => option !== false).join(" ");

function textAt(data: Buffer, at: number, most: number): string {
  const text = data.toString("utf8", at, at + most);
  return text.slice(0, Math.max(0, text.indexOf("\0")));
}

function rangeText(from: number, to: number, between = ":"): string {
  return from === to ? `${from}` : `${from}${between}${to}`;
}

/** Of a union, whose IPv4 address is in the first bytes. */
function addressAt(data: Buffer, at: number, family: IpFamily): string {
  return ipFromBytes(data.subarray(at, at + (family === "IPv4" ? 4 : 16)));
}

const markMatch: Reader = (data) => {
  const [value, mask] = [data.readUInt32LE(0), data.readUInt32LE(4)];
  return `${not(data.readUInt8(8))}--mark ${hex(value)}${mask === ALL ? "" : `/${hex(mask)}`}`;
};

/** @param places of the source ports, of the destination ports, and of the bits that negate them. */
const portsMatch =
  (source: number, destination: number, negatedAt: number): Reader =>
  (data) => {
    const one = (option: string, at: number, bit: number) => {
      const [from, to] = [data.readUInt16LE(at), data.readUInt16LE(at + 2)];
      const isNegated = (data.readUInt8(negatedAt) & bit) !== 0;
      return (isNegated || from !== 0 || to !== PORTS) && `${not(isNegated)}${option} ${rangeText(from, to)}`;
    };
    return listed(one("--sport", source, 1), one("--dport", destination, 2));
  };

const TCP_FLAGS = ["FIN", "SYN", "RST", "PSH", "ACK", "URG"];
const tcpPorts = portsMatch(0, 4, 11);

const tcpMatch: Reader = (data, ...rest) => {
  const [option, mask, wanted, negated] = data.subarray(8, 12);
  if (mask === undefined || wanted === undefined || negated === undefined) return undefined;
  return listed(
    tcpPorts(data, ...rest) || false,
    option !== 0 && `${not(negated & 8)}--tcp-option ${option}`,
    (mask > 0 || wanted > 0) &&
      `${not(negated & 4)}--tcp-flags ${bits(TCP_FLAGS, mask)} ${bits(TCP_FLAGS, wanted) || "NONE"}`,
  );
};

const sctpMatch: Reader = (data, ...rest) => {
  const [OF_CHUNKS, FLAGS_AT, NEGATED_AT] = [4, 284, 288];
  return data.readUInt32LE(FLAGS_AT) & OF_CHUNKS ? undefined : portsMatch(4, 0, NEGATED_AT)(data, ...rest);
};

const multiportMatch: Reader = (data) => {
  const [PORTS_AT, RANGES_AT, NEGATED_AT] = [2, 32, 47];
  const [option, count] = [["--sports", "--dports", "--ports"][data.readUInt8(0)], data.readUInt8(1)];
  if (option === undefined) return undefined;
  let text = "";
  for (let at = 0; at < count; at += 1) {
    // Between the ends of a range.
    const sign = data.readUInt8(RANGES_AT + at) === 0 ? "," : ":";
    text += `${data.readUInt16LE(PORTS_AT + 2 * at)}${at + 1 < count ? sign : ""}`;
  }
  return `${not(data.readUInt8(NEGATED_AT))}${option} ${text}`;
};

const addrtypeMatch: Reader = (data) => {
  const [source, destination, flags] = [data.readUInt16LE(0), data.readUInt16LE(2), data.readUInt32LE(4)];
  return listed(
    source !== 0 && `${not(flags & 1)}--src-type ${bits(ADDRESS_TYPES, source)}`,
    destination !== 0 && `${not(flags & 2)}--dst-type ${bits(ADDRESS_TYPES, destination)}`,
    (flags & 4) !== 0 && "--limit-iface-in",
    (flags & 8) !== 0 && "--limit-iface-out",
  );
};

const statisticMatch: Reader = (data) => {
  const [mode, negated, first] = [data.readUInt16LE(0), data.readUInt16LE(2) & 1, data.readUInt32LE(4)];
  if (mode === 0) return `--mode random ${not(negated)}--probability ${(first / 2 ** 31).toFixed(11)}`;
  return mode === 1 ? `--mode nth ${not(negated)}--every ${first + 1} --packet ${data.readUInt32LE(8)}` : undefined;
};

/** The bits of {@link CONNTRACK_STATES}; the first revision has eight. */
const STATE_BITS = [0, 3, 2, 1, 8, 6, 7];
const OF_CONNECTION = { state: 1, source: 4, destination: 8, sourcePort: 256, destinationPort: 512, direction: 4096 };
/** That `-m state` was given. */
const STATE_ALIAS = 8192;

const conntrackMatch: Reader = (data, revision, family) => {
  const [flags, negated] = [data.readUInt16LE(146), data.readUInt16LE(148)];
  const known = Object.values(OF_CONNECTION).reduce((all, bit) => all | bit, STATE_ALIAS);
  if ((flags & ~known) !== 0) return undefined;
  const states = revision === 1 ? data.readUInt8(150) : data.readUInt16LE(150);
  const one = (option: string, bit: number, value: () => string) =>
    (flags & bit) !== 0 && `${not(negated & bit)}${option} ${value()}`;
  const network = (at: number) => {
    const mask = data.subarray(at + 16, at + (family === "IPv4" ? 20 : 32));
    const length = mask.reduce((sum, byte) => sum + byte.toString(2).replaceAll("0", "").length, 0);
    return `${addressAt(data, at, family)}${length === 8 * mask.length ? "" : `/${length}`}`;
  };
  const port = (low: number, high: number) => rangeText(data.readUInt16LE(low), data.readUInt16LE(high));
  const isReply = (negated & OF_CONNECTION.direction) !== 0;
  return listed(
    one("--ctstate", OF_CONNECTION.state, () =>
      CONNTRACK_STATES.filter((_, at) => (states >> (STATE_BITS[at] ?? 0)) & 1).join(","),
    ),
    one("--ctorigsrc", OF_CONNECTION.source, () => network(0)),
    one("--ctorigdst", OF_CONNECTION.destination, () => network(32)),
    one("--ctorigsrcport", OF_CONNECTION.sourcePort, () => port(138, 154)),
    one("--ctorigdstport", OF_CONNECTION.destinationPort, () => port(140, 156)),
    (flags & OF_CONNECTION.direction) !== 0 && `--ctdir ${isReply ? "REPLY" : "ORIGINAL"}`,
  );
};

/** By XT_RECENT_*. */
const RECENT = new Map([
  [1, "--rcheck"],
  [2, "--set"],
  [4, "--update"],
  [8, "--remove"],
]);

const recentMatch: Reader = (data, revision, family) => {
  const [REAP, NAME_AT, NAME_BYTES, SIDE_AT, MASK_AT] = [32, 10, 200, 210, 212];
  const [seconds, count, what, negated] = [data.readUInt32LE(0), data.readUInt32LE(4), data.readUInt8(8), data[9]];
  const action = RECENT.get(what & ~REAP);
  if (action === undefined) return undefined;
  return listed(
    `${not(negated ?? 0)}${action}`,
    seconds !== 0 && `--seconds ${seconds}`,
    (what & REAP) !== 0 && "--reap",
    count !== 0 && `--hitcount ${count}`,
    `--name ${textAt(data, NAME_AT, NAME_BYTES)}`,
    revision > 0 && `--mask ${addressAt(data, MASK_AT, family)}`,
    data.readUInt8(SIDE_AT) === 0 ? "--rsource" : "--rdest",
  );
};

const physdevMatch: Reader = (data) => {
  const [negated, asked] = [data.readUInt8(64), data.readUInt8(65)];
  const one = (option: string, bit: number, value = "") =>
    (asked & bit) !== 0 && `${not(negated & bit)}--physdev-${option}${value}`;
  return listed(
    one("in", 1, ` ${textAt(data, 0, 16)}`),
    one("is-in", 8),
    one("out", 2, ` ${textAt(data, 32, 16)}`),
    one("is-out", 16),
    one("is-bridged", 4),
  );
};

const iprangeMatch: Reader = (data, _revision, family) => {
  const flags = data.readUInt8(64);
  const one = (option: string, bit: number, at: number) =>
    (flags & bit) !== 0 &&
    `${not(flags & (bit << 4))}${option} ${addressAt(data, at, family)}-${addressAt(data, at + 16, family)}`;
  return listed(one("--src-range", 1, 0), one("--dst-range", 2, 32));
};

const ownerMatch: Reader = (data) => {
  const [asked, negated] = [data.readUInt8(16), data.readUInt8(17)];
  const one = (option: string, bit: number, at: number) =>
    (asked & bit) !== 0 &&
    `${not(negated & bit)}${option} ${rangeText(data.readUInt32LE(at), data.readUInt32LE(at + 4), "-")}`;
  return listed(
    (asked & 4) !== 0 && `${not(negated & 4)}--socket-exists`,
    one("--uid-owner", 1, 0),
    one("--gid-owner", 2, 8),
  );
};

const bpfMatch: Reader = (data) => {
  const [BYTECODE, CODE_AT, INSTRUCTION_BYTES] = [0, 8, 8];
  if (data.readUInt16LE(0) !== BYTECODE) return undefined;
  const code = Array.from({ length: data.readUInt16LE(2) }, (_, index) => {
    const at = CODE_AT + INSTRUCTION_BYTES * index;
    return [data.readUInt16LE(at), data.readUInt8(at + 2), data.readUInt8(at + 3), data.readUInt32LE(at + 4)].join(" ");
  });
  return `--bytecode "${[code.length, ...code].join(",")}"`;
};

const icmpMatch =
  (option: string): Reader =>
  (data) => {
    const [type, from, to, negated] = data.subarray(0, 4);
    const code = from === 0 && to === 0xff ? "" : `/${from}`;
    return `${not(negated ?? 0)}${option} ${type === 0xff ? "any" : `${type}${code}`}`;
  };

const setMatch: Reader = (data, _revision, _family, sets) => {
  const [name, dimensions, flags] = [sets.get(data.readUInt16LE(0)), data.readUInt8(2), data.readUInt8(3)];
  // Counters of entries, and what to do with exceptions.
  if (name === undefined || flags >= 1 << 7 || data.subarray(4).some((byte) => byte !== 0)) return undefined;
  const directions = Array.from({ length: dimensions }, (_, at) => ((flags >> (at + 1)) & 1 ? "src" : "dst"));
  return `${not(flags & 1)}--match-set ${name} ${directions.join(",")}`;
};

const MATCHES: ReadonlyMap<string, readonly [revisions: readonly number[], Reader]> = new Map(
  Object.entries({
    addrtype: [[1], addrtypeMatch],
    bpf: [[1], bpfMatch],
    comment: [[0], (data) => `--comment ${quoteWord(textAt(data, 0, 256))}`],
    connmark: [[1], markMatch],
    conntrack: [[1, 2, 3], conntrackMatch],
    icmp: [[0], icmpMatch("--icmp-type")],
    icmp6: [[0], icmpMatch("--icmpv6-type")],
    iprange: [[1], iprangeMatch],
    mark: [[1], markMatch],
    multiport: [[1], multiportMatch],
    nfacct: [[0, 1], (data) => `--nfacct-name  ${quoteWord(textAt(data, 0, 32))}`],
    owner: [[1], ownerMatch],
    physdev: [[0], physdevMatch],
    recent: [[0, 1], recentMatch],
    sctp: [[0], sctpMatch],
    set: [[1, 2, 3, 4], setMatch],
    statistic: [[0], statisticMatch],
    tcp: [[0], tcpMatch],
    udp: [[0], portsMatch(0, 4, 8)],
  } satisfies Record<string, readonly [readonly number[], Reader]>),
);

/** NF_NAT_RANGE_*. */
const RANGE = { ADDRESSES: 1, PORTS: 2, RANDOM: 4, PERSISTENT: 8, FULLY: 16 } as const;
const KNOWN_RANGE = Object.values(RANGE).reduce((all: number, bit) => all | bit, 0);

/** @param toPorts what stands before ports alone, if there are no addresses. */
const translation =
  (option: string, toPorts: string | undefined): Reader =>
  (data, revision, family) => {
    // `nf_nat_ipv4_multi_range_compat`, or `nf_nat_range`.
    const [flagsAt, from, to, ports] = family === "IPv4" && revision === 0 ? [4, 8, 12, 16] : [0, 4, 20, 36];
    const flags = data.readUInt32LE(flagsAt);
    if ((flags & ~KNOWN_RANGE) !== 0 || (flagsAt > 0 && data.readUInt32LE(0) !== 1)) return undefined;
    const [first, last] = [addressAt(data, from, family), addressAt(data, to, family)];
    const addresses = (flags & RANGE.ADDRESSES) === 0 ? "" : first === last ? first : `${first}-${last}`;
    const span = rangeText(data.readUInt16BE(ports), data.readUInt16BE(ports + 2), "-");
    const port = (flags & RANGE.PORTS) !== 0 && span;
    const place = port === false ? addresses : addresses === "" ? `:${port}` : joinHostPort(addresses, port);
    return listed(
      toPorts === undefined ? place !== "" && `${option} ${place}` : port !== false && `${toPorts} ${port}`,
      (flags & RANGE.RANDOM) !== 0 && "--random",
      (flags & RANGE.FULLY) !== 0 && "--random-fully",
      (flags & RANGE.PERSISTENT) !== 0 && "--persistent",
    );
  };

const connmarkTarget: Reader = (data, revision) => {
  const [value, mask, packetMask] = [data.readUInt32LE(0), data.readUInt32LE(4), data.readUInt32LE(8)];
  // The second revision can shift the mark.
  if (revision > 1 && data.readUInt8(13) !== 0) return undefined;
  const mode = ["--set-xmark", "--save-mark", "--restore-mark"][data.readUInt8(revision > 1 ? 14 : 12)];
  if (mode === undefined) return undefined;
  if (mode === "--set-xmark") return `${mode} ${hex(value)}/${hex(mask)}`;
  return `${mode} --nfmask ${hex(packetMask)} --ctmask ${hex(mask)}`;
};

/** By the number; an empty name is an answer that iptables no longer gives. */
const REJECTIONS: Readonly<Record<IpFamily, readonly string[]>> = {
  IPv4: [
    ..."net-unreachable host-unreachable proto-unreachable port-unreachable".split(" ").map((name) => `icmp-${name}`),
    ...["", "icmp-net-prohibited", "icmp-host-prohibited", "tcp-reset", "icmp-admin-prohibited"],
  ],
  IPv6: [
    ...["icmp6-no-route", "icmp6-adm-prohibited", "", "icmp6-addr-unreachable", "icmp6-port-unreachable"],
    ...["", "tcp-reset", "icmp6-policy-fail", "icmp6-reject-route"],
  ],
};

const rejectTarget: Reader = (data, _revision, family) => {
  const answer = REJECTIONS[family][data.readUInt32LE(0)];
  return answer ? `--reject-with ${answer}` : undefined;
};

/** Helpers, time-outs and events decide nothing. */
const ctTarget: Reader = (data) => {
  const [flags, zone] = [data.readUInt16LE(0), data.readUInt16LE(2)];
  const [NO_TRACK, OF_ZONES] = [1, 4 | 8 | 16];
  return listed((flags & NO_TRACK) !== 0 && "--notrack", (zone !== 0 || (flags & OF_ZONES) !== 0) && `--zone ${zone}`);
};

const lifetimeTarget =
  (option: string): Reader =>
  (data) => {
    const mode = ["set", "inc", "dec"][data.readUInt8(0)];
    return mode && `--${option}-${mode} ${data.readUInt8(1)}`;
  };

const TARGETS: typeof MATCHES = new Map(
  Object.entries({
    CONNMARK: [[1, 2], connmarkTarget],
    CT: [[0, 1, 2], ctTarget],
    DNAT: [[0, 1, 2], translation("--to-destination", undefined)],
    HL: [[0], lifetimeTarget("hl")],
    MARK: [[2], (data) => `--set-xmark ${hex(data.readUInt32LE(0))}/${hex(data.readUInt32LE(4))}`],
    MASQUERADE: [[0], translation("", "--to-ports")],
    NOTRACK: [[0], () => ""],
    REDIRECT: [[0], translation("", "--to-ports")],
    REJECT: [[0], rejectTarget],
    // No question tells what it adds.
    SET: [[1, 2, 3], () => ""],
    SNAT: [[0, 1, 2], translation("--to-source", undefined)],
    TTL: [[0], lifetimeTarget("ttl")],
  } satisfies Record<string, readonly [readonly number[], Reader]>),
);
