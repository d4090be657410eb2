/**
 * Maps of one family that lead from a frontend to one of its backends (reference ebpf-operation.md §5.3). A reader may see an old
 * list or a new one, and knows: the backend that it arrives at must carry the id that it came with. What the programs alone read and write
 * is described in socket.bpf.c.
 */
import { type IpAddress, type IpFamily, putIpBytes } from "../../../net/ip.ts";
import { be16, bytes, layout, u8, u32, u64 } from "../layout.ts";
import type { MapDefinition } from "../map-definition.ts";

/**
 * What keys and values of the maps mean. Programs over maps of another version would misread them: another number for each change
 * that the sizes of the maps do not show.
 */
export const MAPS_VERSION = 4;

/** A layout for each family, by the length of an address and by that of `struct place`: an address and its port, in whole words. */
const forFamilies = <T>(layoutOf: (address: number, place: number) => T): Readonly<Record<IpFamily, T>> => ({
  IPv4: layoutOf(4, 8),
  IPv6: layoutOf(16, 24),
});

/** What is dialled; without an address, a node port. The protocol is an IP protocol's number. */
export const FRONTEND_KEY = forFamilies((address) =>
  layout("frontend", address + 4, { address: bytes(0, address), port: be16(address), protocol: u8(address + 2) }),
);

/** A run of slots. Base and count are read as one word, and so are id and flags. */
const FRONTEND_VALUE = layout("frontend value", 24, {
  base: u32(0),
  count: u32(4),
  /** Of the service port: its backends carry it. */
  id: u32(8),
  flags: u32(12),
  affinitySeconds: u32(16),
  /** Of endpoints behind the others, for which no program looks. */
  held: u32(20),
});

/** Flags of a frontend. Those that a program does not know leave all to the packet path. */
/** There is no endpoint: TCP is refused, and UDP left to the packet path. */
export const NO_ENDPOINTS = 1;
/** Only clients in the host's network namespace are led; others are left to the packet path. */
export const HOST_ONLY = 2;
/** The packet path decides, and no node port of that number is looked for. Programs do not know it, and need not. */
export const LEFT_ALONE = 4;

/** The index of a backend, and nothing behind it. */
const SLOT_BYTES = 8;

export const BACKEND_VALUE = forFamilies((address, place) =>
  layout("backend", place + 8, {
    ...{ address: bytes(0, address), port: be16(address), id: u32(place), generation: u32(place + 4) },
  }),
);
/**
 * Id in the lower half, and the number of times the backend was written in the upper: a reader looks at it before and after. With
 * {@link HELD} it is for flows alone that it has already.
 */
export const BACKEND_IDENTITY_WORD = forFamilies((_address, place) => u64(place));

/** Of a backend that is not offered any more. */
export const HELD = 1n << 31n;

/**
 * A connected UDP socket that was led, by its cookie: no program sees what it sends, so it must be told when its backend goes. The
 * identity is that of {@link BACKEND_IDENTITY_WORD}: while the backend carries it, the socket's endpoint serves (reference
 * ebpf-operation.md §5.6).
 */
export const CONNECTED_KEY = layout("connected", 8, { cookie: u64(0) });
export const CONNECTED_VALUE = forFamilies((address) =>
  layout("connected value", address === 4 ? 32 : 40, {
    ...{ netns: u64(0), identity: u64(8) },
    ...{ address: bytes(16, address), port: be16(16 + address), backend: u32(20 + address) },
  }),
);

/** Under which address a TCP socket knows its backend, and what it dialled, by its cookie. */
const TCP_PEER_KEY = layout("tcp peer", 8, { cookie: u64(0) });
export const TCP_PEER = forFamilies((address, place) =>
  layout("tcp peer value", place + address + 4, {
    ...{ address: bytes(0, address), port: be16(address) },
    ...{ dialled: bytes(place, address), dialledPort: be16(place + address) },
  }),
);

/** The same of UDP: a flow of a socket to what it dialled. */
export const UDP_FLOW_KEY = layout("flow", 16, { cookie: u64(0) });
export const UDP_FLOW = forFamilies((address) =>
  layout("flow value", 24 + 2 * address, {
    ...{ address: bytes(16, address), port: be16(16 + address), dialledPort: be16(18 + address) },
    dialled: bytes(20 + address, address),
  }),
);

/** Connections: what was dialled, and who got them, without an endpoint where only the former is counted. The value is a number. */
export const COUNT_KEY = forFamilies((address, place) =>
  layout("count", address + 4 + place, {
    ...{ address: bytes(0, address), port: be16(address), protocol: u8(address + 2), isRefused: u8(address + 3) },
    ...{ endpoint: bytes(address + 4, address), endpointPort: be16(2 * address + 4) },
  }),
);

/** Maps that lead from frontends to backends. */
export interface LeadingMaps {
  readonly frontends: MapDefinition;
  readonly slots: MapDefinition;
  readonly backends: MapDefinition;
}

/** Maps whose size does not depend on the cluster. */
export interface MemoryMaps {
  /** The addresses at which node ports answer. */
  readonly nodeAddresses: MapDefinition;
  /**
   * One element: until when programs decide, in ns of CLOCK_MONOTONIC. Who writes it later than that is dead or hangs, and what they know
   * is old.
   */
  readonly validUntil: MapDefinition;
  /** Which backend a client with session affinity had last: by the cookie of its network namespace and the id of the list. */
  readonly clients: MapDefinition;
  /**
   * To which backend what a UDP socket sends to a frontend goes, and so under which address it knows that one: by its cookie and a number
   * from 0. They go when it is closed. Nothing is forgotten for others: a datagram that finds no room is not led.
   */
  readonly flows: MapDefinition;
  /** How many of them network namespaces have that are not the host's, so that none fills the map: {@link SHARES}. */
  readonly flowCounts: MapDefinition;
  /**
   * {@link TCP_PEER_KEY}: they go when the socket is closed. Sockets of the kernel and streams of several paths are closed without a word,
   * so that what was used longest ago goes where there is no room.
   */
  readonly tcpPeers: MapDefinition;
  /** {@link CONNECTED_KEY} of connected UDP. Nothing is forgotten for others: a socket that finds no room is not led. */
  readonly connected: MapDefinition;
  /** Cookies of network namespaces in which no socket could be told of anything: their connected UDP is not led. */
  readonly barred: MapDefinition;
}

/** What is for people: programs never read it. */
export interface CountingMaps {
  /** {@link COUNT_KEY}: where there is no room, what was counted longest ago goes. */
  readonly counts: MapDefinition;
}

export type BalancerMaps = LeadingMaps & MemoryMaps & CountingMaps;

/** How many there may be. */
export interface BalancerCapacity {
  readonly frontends: number;
  readonly slots: number;
  readonly backends: number;
}

/** Clients, flows and sockets that are remembered of each kind; a power of two. */
export const REMEMBERED = 32_768;
const NODE_ADDRESSES = 1024;
const BARRED_NAMESPACES = 1024;
/** `COUNT_BITS` of the programs. Network namespaces are spread over them; two that meet in one share what one may have. */
const FLOW_COUNTS = 4096;
/**
 * One network namespace has at most one of so many parts of the room for flows: more than pods have open, and 256 of the least room. It
 * takes as many greedy ones to fill it.
 */
export const SHARES = 4;

/** Elements are allocated when they are written. */
const hash = (name: string, keySize: number, valueSize: number, maxEntries: number): MapDefinition => ({
  ...{ name, type: "hash", keySize, valueSize, maxEntries },
  isAllocatedOnWrite: true,
});

/** When it is full, what was used longest ago is forgotten. */
const lruHash = (name: string, keySize: number, valueSize: number, maxEntries: number): MapDefinition => ({
  ...{ name, type: "lru-hash", keySize, valueSize, maxEntries },
});

const array = (name: string, valueSize: number, maxEntries: number): MapDefinition => ({
  ...{ name, type: "array", keySize: 4, valueSize, maxEntries, isMappable: true },
});

const suffixOf = (family: IpFamily): string => (family === "IPv4" ? "4" : "6");

/** @param remembered how many of each kind. @default 32768 */
export function memoryMaps(family: IpFamily, remembered = REMEMBERED): MemoryMaps {
  const suffix = suffixOf(family);
  return {
    nodeAddresses: hash(`node_addrs${suffix}`, FRONTEND_KEY[family].fields.address.bytes, 4, NODE_ADDRESSES),
    validUntil: array(`valid_until${suffix}`, 8, 1),
    clients: lruHash(`clients${suffix}`, 16, 16, remembered),
    flows: hash(`flows${suffix}`, UDP_FLOW_KEY.size, UDP_FLOW[family].size, remembered),
    flowCounts: array(`flow_counts${suffix}`, 8, FLOW_COUNTS),
    tcpPeers: lruHash(`tcp_peers${suffix}`, TCP_PEER_KEY.size, TCP_PEER[family].size, remembered),
    connected: hash(`connected${suffix}`, CONNECTED_KEY.size, CONNECTED_VALUE[family].size, remembered),
    barred: hash(`barred${suffix}`, 8, 4, BARRED_NAMESPACES),
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

/** The key of a frontend. @param address undefined for a node port. @param protocol an IP protocol's number. Pure. */
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
  // In the order of its fields, each a word. A view of another kind would cost more than the rest.
  for (const [at, word] of [base, count, id, flags, affinitySeconds, held].entries()) putWord(value, 4 * at, word);
  return value;
}

export function frontendWords(value: Uint8Array): FrontendWords {
  const words = new Uint32Array(Uint8Array.from(value).buffer);
  const [base = 0, count = 0, id = 0, flags = 0, affinitySeconds = 0, held = 0] = words;
  return { base, count, id, flags, affinitySeconds, held };
}
