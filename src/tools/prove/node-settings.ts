/**
 * What ends a connection on a node although its rules lead it to an endpoint: settings of the kernel, and routes. Each was seen with
 * packets on Linux 6.1 to 7.3. Only packets that the proxy leads elsewhere are judged.
 */
import { cidrContains, type IpAddress, isLoopback, parseCidr } from "../../net/ip.ts";
import { prefixPatterns } from "../../trace/facts.ts";
import type { Packet } from "../../trace/packet.ts";
import { fieldsQuestion, whichOf } from "../../trace/question.ts";
import type { Pattern } from "../../trace/value.ts";
import { type Ask, loopbackOf } from "./asking.ts";

/** A route of the table `main`. */
export interface SetRoute {
  readonly cidr: string;
  /** `unicast`, `blackhole`, … */
  readonly type: string;
  /** Undefined if it has several, or none. */
  readonly device: string | undefined;
}

export interface XfrmPolicy {
  readonly source: string;
  readonly destination: string;
  /** In the words of `ip xfrm policy`. */
  readonly text: string;
}

export interface NodeSettings {
  /** A kernel parameter, by the path below /proc/sys; undefined if this kernel does not have it. */
  read(name: string): number | undefined;
  readonly devices: readonly string[];
  readonly bridges: ReadonlySet<string>;
  /** Devices that lead to other machines, by which clients may come in. */
  readonly uplinks: ReadonlySet<string>;
  /** Of xfrm, out and forward. */
  readonly policies: readonly XfrmPolicy[];
  /** Longest prefix first. Undefined: rules choose among several tables. */
  readonly routes: readonly SetRoute[] | undefined;
}

/**
 * @param after the packet as it leaves, or is delivered. @param ask reports what the answer depends on.
 * @returns what ends it, in words, with what to set; undefined if nothing does
 */
export function endingSetting(settings: NodeSettings, asked: Packet, after: Packet, ask: Ask): string | undefined {
  if (!isLedElsewhere(asked, after)) return undefined;
  const [count, most] = [settings.read("net/netfilter/nf_conntrack_count"), settings.read(CONNTRACK_MAX)];
  if (count !== undefined && most !== undefined && most > 0 && count >= most)
    return `a full table of connections: ${dotted(CONNTRACK_MAX)} = ${most} (set it higher)`;
  const isLocal = after.outInterface === "lo" || after.outInterface === "";
  const way = wayOf(settings, after.destination);
  if (!isLocal && way !== undefined && way.type !== "unicast")
    return `the route ${way.type} ${way.cidr} (ip route delete ${way.type} ${way.cidr})`;
  return asked.inInterface === ""
    ? ofLoopback(settings, asked, after, ask)
    : (ofDevice(settings, asked, ask) ?? (isLocal ? undefined : ofForwarding(settings, asked, after, ask)));
}

/**
 * What a policy does is not read: it is enough that its addresses are those of the packet or its answer, before or behind the proxy.
 *
 * @returns in words; undefined if none can meet a packet that the proxy leads elsewhere
 */
export function meetingPolicy(settings: NodeSettings, asked: Packet, after: Packet, ask: Ask): string | undefined {
  if (!isLedElsewhere(asked, after)) return undefined;
  const ends = [asked.destination, after.destination];
  const sides = settings.policies.flatMap(({ source, destination, text }) => [
    { text, near: source, far: destination },
    { text, near: destination, far: source },
  ]);
  const meeting = sides.filter(({ far }) => ends.some((end) => isWithin(far, end)));
  if (after.isSourceTranslated) return meeting[0]?.text;
  const keys = meeting.map(({ near }) => ({ patterns: prefixPatterns(near, asked.family), outcome: near }));
  if (keys.length > 0) ask(fieldsQuestion(["source"], keys), asked);
  return meeting.find(({ near }) => isWithin(near, asked.source))?.text;
}

const CONNTRACK_MAX = "net/netfilter/nf_conntrack_max";

/** A packet from a loopback address leaves only by devices that allow it (net/ipv4/route.c, __mkroute_output). */
function ofLoopback(settings: NodeSettings, asked: Packet, after: Packet, ask: Ask): string | undefined {
  const out = after.outInterface;
  if (asked.family !== "IPv4" || out === undefined || out === "lo") return undefined;
  const patterns = loopbackOf("IPv4");
  ask(fieldsQuestion(["source"], [{ patterns, outcome: "" }]), asked);
  if (!isLoopback(asked.source)) return undefined;
  const [one, all] = [conf("ipv4", out, "route_localnet"), conf("ipv4", "all", "route_localnet")];
  return settings.read(one) === 0 && settings.read(all) === 0 ? set(one, 0, 1) : undefined;
}

/** What a device does not take in. */
function ofDevice(settings: NodeSettings, asked: Packet, ask: Ask): string | undefined {
  const { family, source, inInterface: device = "" } = asked;
  if (family === "IPv6") {
    const isOff = (name: string) => settings.read(conf("ipv6", name, "disable_ipv6")) === 1;
    return isIn(settings.devices.filter(isOff), asked, ask)
      ? set(conf("ipv6", device, "disable_ipv6"), 1, 0)
      : undefined;
  }
  const filterOf = (name: string) =>
    Math.max(...["all", name].map((one) => settings.read(conf("ipv4", one, "rp_filter")) ?? 0));
  const strict = [...settings.uplinks].filter((name) => filterOf(name) === 1);
  if (settings.routes === undefined || !isIn(strict, asked, ask)) return undefined;
  const keys = settings.routes.flatMap(({ cidr, device: to }) =>
    prefixPatterns(cidr, family).map((pattern: Pattern) => ({ patterns: [pattern], outcome: `${cidr} ${to}` })),
  );
  ask(fieldsQuestion(["source"], keys), asked);
  const back = wayOf(settings, source)?.device;
  // A machine of a network that another device of the node is in does not send by this one.
  if (back === undefined || back === device || !settings.uplinks.has(back)) return undefined;
  return `${set(conf("ipv4", device, "rp_filter"), 1, 2)}: the way back to its source is by ${back}`;
}

/** What keeps a packet of another machine or a pod, or the answer to it, from going on. */
function ofForwarding(settings: NodeSettings, asked: Packet, after: Packet, ask: Ask): string | undefined {
  const { family, inInterface: device = "" } = asked;
  const out = after.outInterface ?? "";
  if (family === "IPv6") {
    const all = conf("ipv6", "all", "forwarding");
    if (settings.read(all) === 0) return set(all, 0, 1);
  } else {
    const isOff = (name: string) => settings.read(conf("ipv4", name, "forwarding")) === 0;
    const off = settings.devices.filter((name) => name !== "lo" && isOff(name));
    const isEach = settings.devices.every((name) => name === "lo" || off.includes(name));
    if (isEach && off.length > 0) return set("net/ipv4/ip_forward", 0, 1);
    if (isIn(off, asked, ask)) return set(conf("ipv4", device, "forwarding"), 0, 1);
    if (off.includes(out)) return `${set(conf("ipv4", out, "forwarding"), 0, 1)}, which ends the answers`;
  }
  const calls = `net/bridge/bridge-nf-call-ip${family === "IPv4" ? "" : "6"}tables`;
  const isBeside = !after.isSourceTranslated && settings.bridges.has(out) && settings.read(calls) !== 1;
  return isBeside && isIn([out], asked, ask)
    ? `${set(calls, 0, 1)}: answers from ${out} to ${out} pass the rules by`
    : undefined;
}

/** Whether the packet comes in by one of the devices. */
function isIn(devices: readonly string[], asked: Packet, ask: Ask): boolean {
  if (devices.length > 0) ask(whichOf("inInterface", devices), asked);
  return devices.includes(asked.inInterface ?? "");
}

function wayOf({ routes = [] }: NodeSettings, address: IpAddress): SetRoute | undefined {
  return routes.find(({ cidr }) => isWithin(cidr, address));
}

function isWithin(cidr: string, address: IpAddress): boolean {
  const prefix = parseCidr(cidr);
  return prefix !== undefined && cidrContains(prefix, address);
}

const isLedElsewhere = (asked: Packet, after: Packet): boolean =>
  after.destination !== asked.destination || after.destinationPort !== asked.destinationPort;

const conf = (family: "ipv4" | "ipv6", device: string, name: string) => `net/${family}/conf/${device}/${name}`;
/** As `sysctl` takes it, where a dot in the name of a device is a slash. */
const dotted = (path: string): string => path.replace(/[./]/g, (sign) => (sign === "/" ? "." : "/"));
const set = (path: string, is: number, wanted: number): string => `${dotted(path)} = ${is} (set it to ${wanted})`;
