/** Facts about the node, rather than the packet, on which rules depend. */
import {
  cidrContains,
  familyOf,
  IP_FAMILIES,
  type IpAddress,
  type IpFamily,
  isLoopback,
  parseCidr,
  specialAddress,
} from "../net/ip.ts";
import { fieldsQuestion, type Key, type Question } from "./question.ts";
import { type Pattern, prefixRange } from "./value.ts";

/** The type of the route to an address, as `fib` and `addrtype` name it, in lower case. */
export type AddressType = "local" | "unicast" | "broadcast" | "multicast" | "unspec";

/** Undefined always means unknown: the walk then follows both answers. */
export interface NodeFacts {
  addressType(address: IpAddress): AddressType | undefined;
  /** The interface by which packets to this address leave the node. */
  outInterface(destination: IpAddress): string | undefined;
  /** The address that masquerading gives to packets to this address. */
  ownAddressTowards(destination: IpAddress): IpAddress | undefined;
  /** The Service that has this address; undefined also if Services are not known. */
  serviceAt(address: IpAddress): string | undefined;
  /** Whether it is an endpoint known to be on another node. */
  isRemoteEndpoint(address: IpAddress): boolean;
  /** Groups the addresses for which all of these functions return the same. */
  readonly about: Readonly<Record<"source" | "destination", Question>>;
}

/** The question about an unknown address: worded the same everywhere, so that one answer serves all rules. */
export function isLocalQuestion(address: IpAddress): string {
  return `${address} is an address of the node`;
}

interface KnownNode {
  /** Addresses of the node; loopback addresses may be left out. */
  readonly addresses: readonly IpAddress[];
  /** Whether {@link addresses} is complete, so that no other address is the node's. @default true */
  readonly isComplete?: boolean;
  /** Routes, longest prefix first. @default none */
  readonly routes?: readonly KnownRoute[];
  /** @default not known */
  readonly services?: KnownServices;
}

/** The Services of a plan. */
export interface KnownServices {
  /** `namespace/name` by address. */
  readonly addresses: ReadonlyMap<IpAddress, string>;
  readonly remoteEndpoints: ReadonlySet<IpAddress>;
}

export interface KnownRoute {
  readonly cidr: string;
  readonly device: string;
  /** The node's address that masquerading gives to packets on this route. */
  readonly address?: IpAddress;
}

/** Facts about a node whose addresses are known. */
export function nodeFacts({ addresses, isComplete = true, routes = [], services }: KnownNode): NodeFacts {
  const own = new Set(addresses);
  const ways = routes.flatMap(({ cidr, device, address }) => {
    const prefix = parseCidr(cidr);
    return prefix === undefined ? [] : [{ prefix, device, address }];
  });
  const keys = factKeys(own, ways);
  const wayTo = (destination: IpAddress) => ways.find(({ prefix }) => cidrContains(prefix, destination));
  const isOwn = (address: IpAddress) => own.has(address) || isLoopback(address);
  return {
    addressType(address) {
      if (isOwn(address)) return "local";
      const special = specialAddress(address);
      if (special === "multicast" || special === "broadcast") return special;
      if (special === "unspecified") return "unspec";
      return isComplete ? "unicast" : undefined;
    },
    outInterface: (destination) => (isOwn(destination) ? "lo" : wayTo(destination)?.device),
    // For packets to an own IPv6 address the kernel picks that address (RFC 6724 §5, rule 1); for IPv4, one of the node's.
    ownAddressTowards: (destination) =>
      isOwn(destination) && familyOf(destination) === "IPv6" ? destination : wayTo(destination)?.address,
    serviceAt: (address) => services?.addresses.get(address),
    isRemoteEndpoint: (address) => services?.remoteEndpoints.has(address) === true,
    about: { source: fieldsQuestion(["source"], keys), destination: fieldsQuestion(["destination"], keys) },
  };
}

/** Address ranges that belong to no other machine, by type (`specialAddress`). */
export const SPECIAL_RANGES: readonly (readonly [prefix: string, type: string])[] = [
  ["127.0.0.0/8", "local"],
  ["::1/128", "local"],
  ["224.0.0.0/4", "multicast"],
  ["ff00::/8", "multicast"],
  ["255.255.255.255/32", "broadcast"],
  ["0.0.0.0/32", "unspec"],
  ["::/128", "unspec"],
];

/** The pattern of a prefix; none if it is of the other family or cannot be read. */
export function prefixPatterns(text: string, family: IpFamily): Pattern[] {
  const cidr = parseCidr(text.trim());
  return cidr === undefined || familyOf(cidr) !== family ? [] : [prefixRange(cidr)];
}

/** Keys of both families: as numbers, a range of the other family splits off some addresses, which only adds classes. */
function factKeys(
  own: ReadonlySet<IpAddress>,
  ways: readonly { readonly prefix: Parameters<typeof prefixRange>[0] }[],
): Key[] {
  const key = (pattern: Pattern, outcome: string): Key => ({ patterns: [pattern], outcome });
  return [
    ...Array.from(own, (value) => key({ kind: "exact", value }, `${familyOf(value)} local`)),
    ...SPECIAL_RANGES.flatMap(([prefix, type]) =>
      IP_FAMILIES.flatMap((family) =>
        prefixPatterns(prefix, family).map((pattern) => key(pattern, `${family} ${type}`)),
      ),
    ),
    ...ways.map(({ prefix }) => key(prefixRange(prefix), prefix)),
  ];
}
