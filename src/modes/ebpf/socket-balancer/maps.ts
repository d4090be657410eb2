/**
 * One family's maps, which lead from a frontend to one of its backends (reference ebpf-operation.md §5.3). During a
 * change, a reader may see the old list or the new one; it can tell that a backend is valid, because the backend must
 * carry the list's id. socket.bpf.c describes what only the programs read and write.
 */

import { be16, bytes, layout, u8, u32, u64 } from "../../../kernel/bpf/layout.ts";
import type { MapDefinition } from "../../../kernel/bpf/map-definition.ts";
import { type IpAddress, type IpFamily, putIpBytes } from "../../../net/ip.ts";

/**
 * Version of the maps' keys and values. Programs would misread maps of another version: increment it for every change
 * that does not show in the maps' sizes.
 */
export const MAPS_VERSION = 6;

/** A layout per family, from the length of an address and of `struct place`, an address and its port in whole words. */
const forFamilies = <T>(layoutOf: (address: number, place: number) => T): Readonly<Record<IpFamily, T>> => ({
  IPv4: layoutOf(4, 8),
  IPv6: layoutOf(16, 24),
});

/** The destination that a client uses; without an address, a node port. The protocol is an IP protocol number. */
export const FRONTEND_KEY = forFamilies((address) =>
  layout("frontend", address + 4, { address: bytes(0, address), port: be16(address), protocol: u8(address + 2) }),
);

/** A run of slots. Programs read base and count as one word, and id and flags as another. */
const FRONTEND_VALUE = layout("frontend value", 24, {
  base: u32(0),
  count: u32(4),
  /** The id that the list's backends carry. */
  id: u32(8),
  flags: u32(12),
  affinitySeconds: u32(16),
  /** Number of held endpoints behind the others; programs do not look for them. */
  held: u32(20),
});

/** Flags of a frontend. A program that finds an unknown flag leaves the connection to the packet path. */
/** There is no endpoint: TCP is rejected, UDP left to the packet path. */
export const NO_ENDPOINTS = 1;
/** Redirects only clients in the host's network namespace; others use the packet path. */
export const HOST_ONLY = 2;
/** The packet path decides, and no node port with this number applies. Programs need not know this flag. */
export const LEFT_ALONE = 4;

/** A backend's index, plus padding. */
const SLOT_BYTES = 8;

export const BACKEND_VALUE = forFamilies((address, place) =>
  layout("backend", place + 8, {
    ...{ address: bytes(0, address), port: be16(address), id: u32(place), generation: u32(place + 4) },
  }),
);
/**
 * Id in the lower half, number of writes to the backend in the upper: a reader compares it before and after. With
 * {@link HELD}, the backend only serves existing flows.
 */
export const BACKEND_IDENTITY_WORD = forFamilies((_address, place) => u64(place));

/** Flag of a backend that is no longer offered. */
export const HELD = 1n << 31n;

/**
 * A redirected connected UDP socket, by its cookie: no program sees what it sends, so it must be told when its backend
 * goes. `identity` is the {@link BACKEND_IDENTITY_WORD} when it was chosen: the endpoint serves as long as the backend
 * carries it (reference ebpf-operation.md §5.6).
 */
export const CONNECTED_KEY = layout("connected", 8, { cookie: u64(0) });
export const CONNECTED_VALUE = forFamilies((address) =>
  layout("connected value", address === 4 ? 32 : 40, {
    ...{ netns: u64(0), identity: u64(8) },
    ...{ address: bytes(16, address), port: be16(16 + address), backend: u32(20 + address) },
  }),
);

/** By a TCP socket's cookie: its backend and the destination that it used. */
const TCP_PEER_KEY = layout("tcp peer", 8, { cookie: u64(0) });
export const TCP_PEER = forFamilies((address, place) =>
  layout("tcp peer value", place + address + 4, {
    ...{ address: bytes(0, address), port: be16(address) },
    ...{ dialled: bytes(place, address), dialledPort: be16(place + address) },
  }),
);

/** The same for UDP: a socket's flow to one destination. */
export const UDP_FLOW_KEY = layout("flow", 16, { cookie: u64(0) });
export const UDP_FLOW = forFamilies((address) =>
  layout("flow value", address === 4 ? 40 : 80, {
    ...{ netns: u64(16), address: bytes(24, address), port: be16(24 + address), dialledPort: be16(26 + address) },
    dialled: bytes(28 + address, address),
  }),
);

/** Connection counts by destination and endpoint, which is empty if only destinations are counted. The value is a number. */
export const COUNT_KEY = forFamilies((address, place) =>
  layout("count", address + 4 + place, {
    ...{ address: bytes(0, address), port: be16(address), protocol: u8(address + 2), isRefused: u8(address + 3) },
    ...{ endpoint: bytes(address + 4, address), endpointPort: be16(2 * address + 4) },
  }),
);

/**
 * Until when programs are in force (the only word that they read), and whose they are: the cookie of the process's network
 * namespace, its last sign of life, 0 once it has ended, and the number of its start. Times are in ns of CLOCK_MONOTONIC.
 */
export const VALIDITY = layout("validity", 32, { until: u64(0), owner: u64(8), beat: u64(16), start: u64(24) });

/** The beginning of the map's name. */
export const VALID_UNTIL = "valid_until";

/** Maps that lead from frontends to backends. */
export interface LeadingMaps {
  readonly frontends: MapDefinition;
  readonly slots: MapDefinition;
  readonly backends: MapDefinition;
}

/** Maps whose size does not depend on the cluster. */
export interface MemoryMaps {
  /** The addresses that serve node ports. */
  readonly nodeAddresses: MapDefinition;
  /** One element, a {@link VALIDITY}. A process that has not renewed it in time is dead or hangs, and the maps are outdated. */
  readonly validUntil: MapDefinition;
  /** The last backend of a client with session affinity, by the cookie of its network namespace and the list's id. */
  readonly clients: MapDefinition;
  /**
   * Backends of UDP sockets' flows to frontends, and the addresses that the sockets used: by cookie and a number from
   * 0. Deleted when the socket is closed. Evicts nothing: if there is no room, the datagram is not redirected.
   */
  readonly flows: MapDefinition;
  /**
   * {@link TCP_PEER_KEY}; deleted when the socket is closed. Kernel sockets and MPTCP subflows are closed without
   * notice, so a full map evicts the least recently used.
   */
  readonly tcpPeers: MapDefinition;
  /** {@link CONNECTED_KEY} of connected UDP. Evicts nothing: a socket that finds no room is not redirected. */
  readonly connected: MapDefinition;
  /** Cookies of pods' network namespaces, each with the number of its flows, so that none can fill that map: {@link SHARES}. */
  readonly ledNamespaces: MapDefinition;
  /** Cookies of other network namespaces that used a frontend, each with the cgroup of the first process that did. */
  readonly otherNamespaces: MapDefinition;
}

/** For people: programs write it and never make decisions by it. */
export interface CountingMaps {
  /** {@link COUNT_KEY}; a full map evicts the least recently used count. */
  readonly counts: MapDefinition;
}

export type BalancerMaps = LeadingMaps & MemoryMaps & CountingMaps;

/** Numbers of elements. */
export interface BalancerCapacity {
  readonly frontends: number;
  readonly slots: number;
  readonly backends: number;
}

/** Of each kind; a power of two. */
const REMEMBERED = 32_768;
const NODE_ADDRESSES = 1024;
const LED_NAMESPACES = 4096;
const OTHER_NAMESPACES = 1024;
/**
 * A network namespace gets at most this fraction of the flow map: more than pods have open, and 256 flows of the
 * smallest map. It takes that many greedy namespaces to fill it.
 */
export const SHARES = 4;

/** Allocates elements when they are written. */
const hash = (name: string, keySize: number, valueSize: number, maxEntries: number): MapDefinition => ({
  ...{ name, type: "hash", keySize, valueSize, maxEntries },
  isAllocatedOnWrite: true,
});

/** A full map evicts the least recently used element. */
const lruHash = (name: string, keySize: number, valueSize: number, maxEntries: number): MapDefinition => ({
  ...{ name, type: "lru-hash", keySize, valueSize, maxEntries },
});

const array = (name: string, valueSize: number, maxEntries: number): MapDefinition => ({
  ...{ name, type: "array", keySize: 4, valueSize, maxEntries, isMappable: true },
});

const suffixOf = (family: IpFamily): string => (family === "IPv4" ? "4" : "6");

/** @param remembered elements of each kind. @default 32768 */
export function memoryMaps(family: IpFamily, remembered = REMEMBERED): MemoryMaps {
  const suffix = suffixOf(family);
  return {
    nodeAddresses: hash(`node_addrs${suffix}`, FRONTEND_KEY[family].fields.address.bytes, 4, NODE_ADDRESSES),
    validUntil: array(`${VALID_UNTIL}${suffix}`, VALIDITY.size, 1),
    clients: lruHash(`clients${suffix}`, 16, 16, remembered),
    flows: hash(`flows${suffix}`, UDP_FLOW_KEY.size, UDP_FLOW[family].size, remembered),
    tcpPeers: lruHash(`tcp_peers${suffix}`, TCP_PEER_KEY.size, TCP_PEER[family].size, remembered),
    connected: hash(`connected${suffix}`, CONNECTED_KEY.size, CONNECTED_VALUE[family].size, remembered),
    ledNamespaces: hash(`led_netns${suffix}`, 8, 8, LED_NAMESPACES),
    otherNamespaces: lruHash(`other_netns${suffix}`, 8, 8, OTHER_NAMESPACES),
  };
}

export function countingMaps(family: IpFamily, entries: number): CountingMaps {
  return { counts: lruHash(`counts${suffixOf(family)}`, COUNT_KEY[family].size, 8, entries) };
}

export function leadingMaps(family: IpFamily, { frontends, slots, backends }: BalancerCapacity): LeadingMaps {
  const suffix = suffixOf(family);
  return {
    frontends: hash(`frontends${suffix}`, FRONTEND_KEY[family].size, FRONTEND_VALUE.size, frontends),
    slots: array(`slots${suffix}`, SLOT_BYTES, slots),
    backends: array(`backends${suffix}`, BACKEND_VALUE[family].size, backends),
  };
}

/** The key of a frontend. @param address undefined for a node port. @param protocol an IP protocol number. */
export function frontendKey(
  family: IpFamily,
  address: IpAddress | undefined,
  port: number,
  protocol: number,
): Uint8Array {
  const { fields, size } = FRONTEND_KEY[family];
  const key = new Uint8Array(size);
  if (address !== undefined) putIpBytes(key, 0, address);
  key[fields.port.at] = port >> 8;
  key[fields.port.at + 1] = port & 0xff;
  key[fields.protocol.at] = protocol;
  return key;
}

function putWord(bytes: Uint8Array, at: number, word: number): void {
  for (let index = 0; index < 4; index++) bytes[at + index] = word >>> (8 * index);
}

export type FrontendWords = Readonly<Record<keyof typeof FRONTEND_VALUE.fields, number>>;

export function frontendValue({ base, count, id, flags, affinitySeconds, held }: FrontendWords): Uint8Array {
  const value = new Uint8Array(FRONTEND_VALUE.size);
  // Words in field order; another kind of view would cost more than the rest.
  for (const [at, word] of [base, count, id, flags, affinitySeconds, held].entries()) putWord(value, 4 * at, word);
  return value;
}

export function frontendWords(value: Uint8Array): FrontendWords {
  const words = new Uint32Array(Uint8Array.from(value).buffer);
  const [base = 0, count = 0, id = 0, flags = 0, affinitySeconds = 0, held = 0] = words;
  return { base, count, id, flags, affinitySeconds, held };
}
