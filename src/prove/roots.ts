/** All packets that a node can meet, by where they come from. */
import type { IpAddress, IpFamily } from "../net/ip.ts";
import { prefixPatterns, SPECIAL_RANGES } from "../trace/facts.ts";
import type { Pattern } from "../trace/value.ts";
import type { PacketClass, RootClass } from "./classes.ts";
import { addressDomain, Names, onlyAddresses, PORTS } from "./domain.ts";

const PROTOCOLS = ["tcp", "udp", "sctp", "icmp", "47"];
const INTERFACES = ["eth0", "eth1", "ens1"];

/**
 * What processes of the node send, from one of its addresses, and what comes in by an interface, from any other: routing drops
 * packets that come from outside with an address of the node (RFC 1812 §5.3.8), and those of no machine at all.
 *
 * @param hasSocketStage whether it makes a difference that a client has its socket on this node: then its pods are a root of their own.
 */
export function rootClasses(family: IpFamily, own: readonly IpAddress[], hasSocketStage = false): RootClass[] {
  const bits = family === "IPv4" ? 32 : 128;
  const special = SPECIAL_RANGES.flatMap(([prefix]) => prefixPatterns(prefix, family));
  const addresses = own.map((value): Pattern => ({ kind: "exact", value }));
  const rest = {
    sourcePort: PORTS,
    destination: addressDomain(bits, []),
    destinationPort: PORTS,
    protocol: new Names({ kind: "beginning", text: "" }, [], PROTOCOLS),
  };
  const none: Pattern & { kind: "exact" } = { kind: "exact", value: "" };
  const outside: PacketClass = {
    ...rest,
    source: addressDomain(bits, [...special, ...addresses]),
    inInterface: new Names({ kind: "beginning", text: "" }, [none], INTERFACES),
    bridgePort: new Names({ kind: "beginning", text: "" }, [], ["", "veth0"]),
  };
  const roots: RootClass[] = [{ packets: outside, origin: "elsewhere" }];
  if (hasSocketStage) roots.push({ packets: outside, origin: "socket" });
  if (addresses.length > 0) {
    const source = onlyAddresses(bits, addresses);
    roots.push({
      packets: { ...rest, source, inInterface: new Names(none, [], []), bridgePort: new Names(none, [], []) },
      origin: "socket",
    });
  }
  return roots;
}
