/** What rules ask of the node and not of the packet. */
import { cidrContains, type IpAddress, isLoopback, parseCidr, specialAddress } from "../net/ip.ts";

/** The type of the route to an address, as `fib` and `addrtype` name it, in lower case. */
export type AddressType = "local" | "unicast" | "broadcast" | "multicast" | "unspec";

/** Undefined always means: not known. Then the walk goes both ways. */
export interface NodeFacts {
  addressType(address: IpAddress): AddressType | undefined;
  /** The interface by which packets to this address leave. */
  outInterface(destination: IpAddress): string | undefined;
  /** The address that masquerading gives to packets to this address. */
  ownAddressTowards(destination: IpAddress): IpAddress | undefined;
}

/** What has to be known where it is not: the same words everywhere, so that one answer serves all rules. Pure. */
export function isLocalQuestion(address: IpAddress): string {
  return `${address} is an address of the node`;
}

export interface KnownNode {
  /** Addresses of the node; those of loopback need not be given. */
  readonly addresses: readonly IpAddress[];
  /** Whether {@link addresses} are all there are: others are not the node's then. @default true */
  readonly isComplete?: boolean;
  /** Interfaces by the prefixes behind them, the longest first. @default none */
  readonly routes?: readonly KnownRoute[];
}

export interface KnownRoute {
  readonly cidr: string;
  readonly device: string;
  /** The node's own, that packets by this way get when they are masqueraded. */
  readonly address?: IpAddress;
}

/** Facts of a node whose addresses are known. Pure. */
export function nodeFacts({ addresses, isComplete = true, routes = [] }: KnownNode): NodeFacts {
  const own = new Set<string>(addresses);
  const ways = routes.flatMap(({ cidr, device, address }) => {
    const prefix = parseCidr(cidr);
    return prefix === undefined ? [] : [{ prefix, device, address }];
  });
  const wayTo = (destination: IpAddress) => ways.find(({ prefix }) => cidrContains(prefix, destination));
  return {
    addressType(address) {
      if (own.has(address) || isLoopback(address)) return "local";
      switch (specialAddress(address)) {
        case "multicast":
        case "broadcast":
          return specialAddress(address) === "multicast" ? "multicast" : "broadcast";
        case "unspecified":
          return "unspec";
        default:
          return isComplete ? "unicast" : undefined;
      }
    },
    outInterface: (destination) =>
      own.has(destination) || isLoopback(destination) ? "lo" : wayTo(destination)?.device,
    ownAddressTowards: (destination) => wayTo(destination)?.address,
  };
}
