/**
 * What ends a connection on a node although its rules lead it to an endpoint: settings of the kernel, and routes. Each was seen with
 * packets on Linux 6.1 to 7.3. Only packets that the proxy leads elsewhere are judged.
 */
import { cidrContains, type IpAddress, isLoopback, parseCidr } from "../../net/ip.ts";
import { prefixPatterns } from "../../trace/facts.ts";
import type { Packet } from "../../trace/packet.ts";
import { fieldsQuestion, whichOf, within } from "../../trace/question.ts";
import { type Ask, exactly, loopbackOf } from "./asking.ts";
import { UnprovableError } from "./classes.ts";
import type { IpRules } from "./ip-rules.ts";

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
  readonly routes: IpRules;
  /** Ports of bridges that send nothing back to where it came from. */
  readonly withoutHairpin: readonly string[];
  /** The VRF that a device belongs to. */
  readonly vrfs: ReadonlyMap<string, string>;
}

/**
 * @param after the packet as it leaves, or is delivered. @param ask reports what the answer depends on.
 * @returns what ends it, in words, with what to set; undefined if nothing does
 */
export function endingSetting(settings: NodeSettings, asked: Packet, after: Packet, ask: Ask): string | undefined {
  if (!isLedElsewhere(asked, after)) return undefined;
  const [count, most] = [settings.read(CONNTRACK_COUNT), settings.read(CONNTRACK_MAX)];
  if (count !== undefined && most !== undefined && most > 0 && count >= most)
    return `a full table of connections: ${dotted(CONNTRACK_MAX)} = ${most} (set it higher)`;
  const isLocal = after.outInterface === "lo" || after.outInterface === "";
  const isOwn = asked.inInterface === "";
  const vrf = isIn([...settings.vrfs.keys()], asked, ask) && settings.vrfs.get(asked.inInterface ?? "");
  if (vrf) throw new UnprovableError(`${asked.inInterface} belongs to the VRF ${vrf}, whose routes are not read`);
  return (
    (isOwn ? ofLoopback(settings, asked, after, ask) : ofDevice(settings, asked, after, ask)) ??
    ofRoutes(settings, asked, after, isLocal, ask) ??
    (isOwn || isLocal ? undefined : ofForwarding(settings, asked, after, ask))
  );
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

const CONNTRACK_COUNT = "net/netfilter/nf_conntrack_count";
const CONNTRACK_MAX = "net/netfilter/nf_conntrack_max";

/** A packet from a loopback address leaves only by devices that allow it (net/ipv4/route.c, __mkroute_output). */
function ofLoopback(settings: NodeSettings, asked: Packet, after: Packet, ask: Ask): string | undefined {
  const out = after.outInterface;
  if (asked.family !== "IPv4" || out === undefined || out === "lo") return undefined;
  ask(within("source", loopbackOf("IPv4")), asked);
  if (!isLoopback(asked.source)) return undefined;
  const [one, all] = [conf("ipv4", out, "route_localnet"), conf("ipv4", "all", "route_localnet")];
  return settings.read(one) === 0 && settings.read(all) === 0 ? set(one, 0, 1) : undefined;
}

/** What a device does not take in. */
function ofDevice(settings: NodeSettings, asked: Packet, after: Packet, ask: Ask): string | undefined {
  const { family, inInterface: device = "" } = asked;
  if (family === "IPv6") {
    const isOff = (name: string) => settings.read(conf("ipv6", name, "disable_ipv6")) === 1;
    return isIn(settings.devices.filter(isOff), asked, ask)
      ? set(conf("ipv6", device, "disable_ipv6"), 1, 0)
      : undefined;
  }
  const filterOf = (name: string) =>
    Math.max(...["all", name].map((one) => settings.read(conf("ipv4", one, "rp_filter")) ?? 0));
  const strict = [...settings.uplinks].filter((name) => filterOf(name) === 1);
  if (!isIn(strict, asked, ask)) return undefined;
  // The kernel looks for the way back before rules of its own mark.
  const answer = { packet: { ...after, source: asked.source }, isAnswer: true, device: "lo", mark: 0 };
  const back = settings.routes.way(answer, ask)?.device;
  // A machine of a network that another device of the node is in does not send by this one.
  if (back === undefined || back === device || !settings.uplinks.has(back)) return undefined;
  return `${set(conf("ipv4", device, "rp_filter"), 1, 2)}: the way back to its source is by ${back}`;
}

/** The kernel looks up a route for a process before the rules, and again if they translate the destination; for the answer, too. */
function ofRoutes({ routes }: NodeSettings, asked: Packet, after: Packet, isLocal: boolean, ask: Ask) {
  const { inInterface, source } = asked;
  const device = inInterface === "" ? "lo" : (inInterface ?? "");
  const packet = { ...after, source };
  if (inInterface === "") {
    // A socket that is redirected before it connects has another destination.
    const first = { ...packet, destination: after.original.destination };
    const before = routes.ending({ packet: first, isAnswer: false, device, mark: 0 }, ask);
    if (before !== undefined) return `${before}, which a process needs before any rule`;
  }
  const there = isLocal ? undefined : routes.ending({ packet, isAnswer: false, device, mark: after.routedMark }, ask);
  if (there !== undefined || inInterface === "" || !routes.endsSome) return there;
  const answer = { packet, isAnswer: true, device: after.outInterface || "lo", mark: 0 };
  // A client to whom no route leads is none.
  const back = routes.way(answer, ask) && routes.ending(answer, ask);
  return back && `${back}, which ends the answers`;
}

/** What keeps a packet of another machine or a pod, or the answer to it, from going on. */
function ofForwarding(settings: NodeSettings, asked: Packet, after: Packet, ask: Ask): string | undefined {
  const { family, inInterface: device = "" } = asked;
  const out = after.outInterface ?? "";
  if (family === "IPv6") {
    const all = conf("ipv6", "all", "forwarding");
    if (settings.read(all) === 0) {
      // From Linux 6.17 on, a device may forward alone (net/ipv6/ip6_output.c, ip6_forward).
      const alone = settings.devices.filter((name) => settings.read(conf("ipv6", name, "force_forwarding")) === 1);
      if (!isIn(alone, asked, ask)) return set(all, 0, 1);
      if (!alone.includes(out)) return `${set(all, 0, 1)}, which ends the answers`;
    }
  } else {
    const isOff = (name: string) => settings.read(conf("ipv4", name, "forwarding")) === 0;
    const off = settings.devices.filter((name) => name !== "lo" && isOff(name));
    const isEach = settings.devices.every((name) => name === "lo" || off.includes(name));
    if (isEach && off.length > 0) return set("net/ipv4/ip_forward", 0, 1);
    if (isIn(off, asked, ask)) return set(conf("ipv4", device, "forwarding"), 0, 1);
    if (off.includes(out)) return `${set(conf("ipv4", out, "forwarding"), 0, 1)}, which ends the answers`;
  }
  const calls = `net/bridge/bridge-nf-call-ip${family === "IPv4" ? "" : "6"}tables`;
  if (!settings.bridges.has(out) || !isIn([out], asked, ask)) return undefined;
  if (settings.read(calls) !== 1)
    return after.isSourceTranslated
      ? undefined
      : `${set(calls, 0, 1)}: answers from ${out} to ${out} pass the rules by`;
  ask(whichOf("source", [after.destination]), asked);
  if (asked.source !== after.destination) return undefined;
  // The bridge itself sends it on, by the port that it came in by.
  ask(within("bridgePort", exactly(settings.withoutHairpin)), asked);
  const { bridgePort: port = "" } = asked;
  return settings.withoutHairpin.includes(port)
    ? `${port}, which sends nothing back to its pod (bridge link set dev ${port} hairpin on)`
    : undefined;
}

/** Whether the packet comes in by one of the devices. */
function isIn(devices: readonly string[], asked: Packet, ask: Ask): boolean {
  if (devices.length > 0) ask(whichOf("inInterface", devices), asked);
  return devices.includes(asked.inInterface ?? "");
}

function isWithin(cidr: string, address: IpAddress): boolean {
  const prefix = parseCidr(cidr);
  return prefix !== undefined && cidrContains(prefix, address);
}

const isLedElsewhere = (asked: Packet, after: Packet): boolean =>
  after.destination !== asked.destination || after.destinationPort !== asked.destinationPort;

/** All that {@link NodeSettings.read} is asked for on a node with these devices. */
export function parametersOf(devices: readonly string[]): readonly string[] {
  const ofDevices = ["all", ...devices].flatMap((device) => [
    ...["rp_filter", "route_localnet", "forwarding", "accept_local"].map((name) => conf("ipv4", device, name)),
    ...["disable_ipv6", "forwarding", "force_forwarding"].map((name) => conf("ipv6", device, name)),
  ]);
  const calls = ["iptables", "ip6tables"].map((name) => `net/bridge/bridge-nf-call-${name}`);
  return [...ofDevices, ...calls, CONNTRACK_COUNT, CONNTRACK_MAX];
}

const conf = (family: "ipv4" | "ipv6", device: string, name: string) => `net/${family}/conf/${device}/${name}`;
/** As `sysctl` takes it, where a dot in the name of a device is a slash. */
const dotted = (path: string): string => path.replace(/[./]/g, (sign) => (sign === "/" ? "." : "/"));
const set = (path: string, is: number, wanted: number): string => `${dotted(path)} = ${is} (set it to ${wanted})`;
