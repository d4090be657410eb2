/** What rules ask of the node and not of the packet. */
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

/** Undefined always means: not known. Then the walk goes both ways. */
export interface NodeFacts {
  addressType(address: IpAddress): AddressType | undefined;
  /** The interface by which packets to this address leave. */
  outInterface(destination: IpAddress): string | undefined;
  /** The address that masquerading gives to packets to this address. */
  ownAddressTowards(destination: IpAddress): IpAddress | undefined;
  /** The Service whose address this is; undefined also where Services are not known. */
  serviceAt(address: IpAddress): string | undefined;
  /** Whether it is an endpoint that is known to be on another node. */
  isRemoteEndpoint(address: IpAddress): boolean;
  /** Addresses for which all of these have the same answers. */
  readonly about: Readonly<Record<"source" | "destination", Question>>;
}

/** What has to be known where it is not: the same words everywhere, so that one answer serves all rules. Pure. */
export function isLocalQuestion(address: IpAddress): string {
  return `${address} is an address of the node`;
}

interface KnownNode {
  /** Addresses of the node; those of loopback need not be given. */
  readonly addresses: readonly IpAddress[];
  /** Whether {@link addresses} are all there are: others are not the node's then. @default true */
  readonly isComplete?: boolean;
  /** Interfaces by the prefixes behind them, the longest first. @default none */
  readonly routes?: readonly KnownRoute[];
  /** @default not known */
  readonly services?: KnownServices;
}

/** Of what is planned. */
export interface KnownServices {
  /** `namespace/name` by address. */
  readonly addresses: ReadonlyMap<IpAddress, string>;
  readonly remoteEndpoints: ReadonlySet<IpAddress>;
}

export interface KnownRoute {
  readonly cidr: string;
  readonly device: string;
  /** The node's own, that packets by this way get when they are masqueraded. */
  readonly address?: IpAddress;
}

/** Facts of a node whose addresses are known. Pure. */
export function nodeFacts({ addresses, isComplete = true, routes = [], services }: KnownNode): NodeFacts {
  const own = new Set(addresses);
  const ways = routes.flatMap(({ cidr, device, address }) => {
    const prefix = parseCidr(cidr);
    return prefix === undefined ? [] : [{ prefix, device, address }];
  });
  const keys = factKeys(own, ways);
  const wayTo = (destination: IpAddress) => ways.find(({ prefix }) => cidrContains(prefix, destination));
  return {
    addressType(address) {
      if (own.has(address) || isLoopback(address)) return "local";
      const special = specialAddress(address);
      if (special === "multicast" || special === "broadcast") return special;
      if (special === "unspecified") return "unspec";
      return isComplete ? "unicast" : undefined;
    },
    outInterface: (destination) =>
      own.has(destination) || isLoopback(destination) ? "lo" : wayTo(destination)?.device,
    // To an address of the node itself the kernel prefers that address (RFC 6724 §5, rule 1); of IPv4 it takes one of the node's.
    ownAddressTowards: (destination) =>
      own.has(destination) && familyOf(destination) === "IPv6" ? destination : wayTo(destination)?.address,
    serviceAt: (address) => services?.addresses.get(address),
    isRemoteEndpoint: (address) => services?.remoteEndpoints.has(address) === true,
    about: { source: fieldsQuestion(["source"], keys), destination: fieldsQuestion(["destination"], keys) },
  };
}

/** Ranges of the addresses that are not those of any machine, by their type (`specialAddress`). */
export const SPECIAL_RANGES: readonly (readonly [prefix: string, type: string])[] = [
  ["127.0.0.0/8", "local"],
  ["::1/128", "local"],
  ["224.0.0.0/4", "multicast"],
  ["ff00::/8", "multicast"],
  ["255.255.255.255/32", "broadcast"],
  ["0.0.0.0/32", "unspec"],
  ["::/128", "unspec"],
];

/** The pattern of a prefix, where it is one of the family. */
export function prefixPatterns(text: string, family: IpFamily): Pattern[] {
  const cidr = parseCidr(text.trim());
  return cidr === undefined || familyOf(cidr) !== family ? [] : [prefixRange(cidr)];
}

/** Those of both families: a range of the other one takes some addresses apart, which harms nothing while they are no part of another. */
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
