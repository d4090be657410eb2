/**
 * What programs at interfaces read beside the maps of the socket programs, of which they have a set of their own: the same layout,
 * other flags, and clients by their address.
 */
import type { IpFamily } from "../../../net/ip.ts";
import { bytes, layout, u32 } from "../layout.ts";
import type { MapDefinition } from "../map-definition.ts";
import { BACKEND_VALUE, type BalancerMaps, CHOICE_VALUE } from "../socket-balancer/maps.ts";

/** A flag of a frontend: its endpoints see the node's address. Socket programs do not know it, and leave such a frontend alone. */
export const MASQUERADED = 1 << 16;

/** A client with session affinity, and the id of the service port. The value is {@link CHOICE_VALUE}. */
export const CLIENT_KEY = {
  IPv4: layout("client", 8, { address: bytes(0, 4), id: u32(4) }),
  IPv6: layout("client", 24, { address: bytes(0, 16), id: u32(16) }),
} as const;

/** Maps that lead packets. */
export interface PacketMapDefinitions extends Pick<BalancerMaps, "frontends" | "slots" | "backends" | "nodeAddresses"> {
  /** All addresses of the node: what is led to them stays in it. */
  readonly ownAddresses: MapDefinition;
  /** By {@link CLIENT_KEY}. */
  readonly packetClients: MapDefinition;
}

/** Clients that are remembered; the one that came longest ago is forgotten first. The rules remember up to 262,144. */
const CLIENTS = 65_536;

const OWN_ADDRESSES = 4096;

export function ownAddressesMap(family: IpFamily): MapDefinition {
  return {
    name: `own_addrs${family === "IPv4" ? 4 : 6}`,
    type: "hash",
    keySize: BACKEND_VALUE[family].fields.address.bytes,
    valueSize: 4,
    maxEntries: OWN_ADDRESSES,
    isAllocatedOnWrite: true,
  };
}

export function packetClientsMap(family: IpFamily): MapDefinition {
  return {
    name: `pkt_clients${family === "IPv4" ? 4 : 6}`,
    type: "lru-hash",
    keySize: CLIENT_KEY[family].size,
    valueSize: CHOICE_VALUE.size,
    maxEntries: CLIENTS,
  };
}
