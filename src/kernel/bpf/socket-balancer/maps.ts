/**
 * Maps of one family that lead from a frontend to one of its backends (reference ebpf-operation.md §5.3). A reader may see an old
 * list or a new one, and knows: the backend that it arrives at must carry the id that it came with.
 */
import { type IpAddress, type IpFamily, ipBytes, ipv4Word } from "../../../net/ip.ts";
import { be16, bytes, layout, takeNumber, u8, u32, u64 } from "../layout.ts";
import type { MapDefinition } from "../map-definition.ts";

/**
 * What keys and values of the maps mean. Programs over maps of another version would misread them: another number for each change
 * that the sizes of the maps do not show.
 */
export const MAPS_VERSION = 3;

/** What is dialled. The protocol is an IP protocol's number. */
export const FRONTEND_KEY = {
  IPv4: layout("frontend", 8, { address: bytes(0, 4), port: be16(4), protocol: u8(6) }),
  IPv6: layout("frontend", 20, { address: bytes(0, 16), port: be16(16), protocol: u8(18) }),
} as const;

/** A run of slots. Base and count are read as one word, and so are id and flags. */
export const FRONTEND_VALUE = layout("frontend value", 24, {
  base: u32(0),
  count: u32(4),
  /** Of the service port: its backends carry it. */
  id: u32(8),
  flags: u32(12),
  affinitySeconds: u32(16),
  /** Of endpoints behind the others, for which no program looks. */
  held: u32(20),
});
/** Base in the lower half, count in the upper. */
export const EXTENT_WORD = u64(FRONTEND_VALUE.fields.base.at);
/** Id in the lower half, flags in the upper. */
export const IDENTITY_WORD = u64(FRONTEND_VALUE.fields.id.at);

/** Flags of a frontend. Those that a program does not know leave all to the packet path. */
/** There is no endpoint: TCP is refused, and UDP left to the packet path. */
export const NO_ENDPOINTS = 1;
/** Only clients in the host's network namespace are led; others are left to the packet path. */
export const HOST_ONLY = 2;

/** A backend's index. */
export const SLOT_VALUE = layout("slot", 8, { backend: u32(0) });

export const BACKEND_VALUE = {
  IPv4: layout("backend", 16, { address: bytes(0, 4), port: be16(4), id: u32(8), generation: u32(12) }),
  IPv6: layout("backend", 32, { address: bytes(0, 16), port: be16(16), id: u32(24), generation: u32(28) }),
} as const;
/**
 * Id in the lower half, and the number of times the backend was written in the upper: a reader looks at it before and after. With
 * {@link HELD} it is for flows alone that it has already.
 */
export const BACKEND_IDENTITY_WORD = {
  IPv4: u64(BACKEND_VALUE.IPv4.fields.id.at),
  IPv6: u64(BACKEND_VALUE.IPv6.fields.id.at),
} as const;

/** Of a backend that is not offered any more. */
export const HELD = 1n << 31n;

/** Which backend a client with session affinity had last: by the cookie of its network namespace and the id of the list. */
export const CHOICE_KEY = layout("choice", 16, { cookie: u64(0), id: u32(8) });
export const CHOICE_VALUE = layout("choice value", 16, { backend: u32(0), lastUsedNs: u64(8) });

/** A socket and a backend. */
export const PEER_KEY = {
  IPv4: layout("peer", 16, { cookie: u64(0), address: bytes(8, 4), port: be16(12) }),
  IPv6: layout("peer", 32, { cookie: u64(0), address: bytes(8, 16), port: be16(24) }),
} as const;

/**
 * A UDP socket has a few of these, numbered from 0: to which backend what it sends to a frontend goes, and so under which address it
 * knows that one. They go when it is closed; where there is no room, the rules lead.
 */
export const FLOW_KEY = layout("flow", 16, { cookie: u64(0), number: u32(8) });
export const FLOW_VALUE = {
  IPv4: layout("flow value", 32, {
    backend: u32(0),
    lastUsedNs: u64(8),
    address: bytes(16, 4),
    port: be16(20),
    dialledPort: be16(22),
    dialled: bytes(24, 4),
  }),
  IPv6: layout("flow value", 56, {
    backend: u32(0),
    lastUsedNs: u64(8),
    address: bytes(16, 16),
    port: be16(32),
    dialledPort: be16(34),
    dialled: bytes(36, 16),
  }),
} as const;
/** How many frontends one socket asks at the same time. */
export const FLOWS_OF_SOCKET = 4;

/**
 * Under which address a TCP socket knows its backend, in the element that its cookie's lowest bits name: cookies are given out one after the other, so that it
 * holds the last ones. Its writer takes the cookie away first and gives the new one last.
 */
export const TCP_PEER = {
  IPv4: layout("TCP peer", 24, {
    cookie: u64(0),
    address: bytes(8, 4),
    port: be16(12),
    dialled: bytes(16, 4),
    dialledPort: be16(20),
  }),
  IPv6: layout("TCP peer", 56, {
    cookie: u64(0),
    address: bytes(8, 16),
    port: be16(24),
    dialled: bytes(32, 16),
    dialledPort: be16(48),
  }),
} as const;

/**
 * A connected UDP socket that was led, by its cookie: no program sees what it sends, so it must be told when its backend goes. The
 * identity is that of {@link BACKEND_IDENTITY_WORD}: while the backend carries it, the socket's endpoint serves (reference
 * ebpf-operation.md §5.6).
 */
export const CONNECTED_KEY = layout("connected", 8, { cookie: u64(0) });
export const CONNECTED_VALUE = {
  IPv4: layout("connected value", 32, {
    netns: u64(0),
    identity: u64(8),
    address: bytes(16, 4),
    port: be16(20),
    backend: u32(24),
  }),
  IPv6: layout("connected value", 40, {
    netns: u64(0),
    identity: u64(8),
    address: bytes(16, 16),
    port: be16(32),
    backend: u32(36),
  }),
} as const;

/** Until when programs decide, in ns of CLOCK_MONOTONIC: who writes it later than that is dead or hangs, and what they know is old. */
export const VALID_UNTIL = u64(0);

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
  /** {@link VALID_UNTIL}, the only element. */
  readonly validUntil: MapDefinition;
  /** {@link CHOICE_KEY} of clients with session affinity. */
  readonly clients: MapDefinition;
  /** {@link FLOW_KEY}. Nothing is forgotten for others: a datagram that finds no room is not led. */
  readonly flows: MapDefinition;
  /** {@link TCP_PEER}. */
  readonly tcpPeers: MapDefinition;
  /** {@link CONNECTED_KEY} of connected UDP. Nothing is forgotten for others: a socket that finds no room is not led. */
  readonly connected: MapDefinition;
  /** Cookies of network namespaces in which no socket could be told of anything: their connected UDP is not led. */
  readonly barred: MapDefinition;
}

export type BalancerMaps = LeadingMaps & MemoryMaps;

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

/** @param remembered how many of each kind. @default 32768 */
export function memoryMaps(family: IpFamily, remembered = REMEMBERED): MemoryMaps {
  const suffix = family === "IPv4" ? "4" : "6";
  return {
    nodeAddresses: {
      name: `node_addrs${suffix}`,
      type: "hash",
      keySize: BACKEND_VALUE[family].fields.address.bytes,
      valueSize: 4,
      maxEntries: NODE_ADDRESSES,
      isAllocatedOnWrite: true,
    },
    validUntil: {
      name: `valid_until${suffix}`,
      type: "array",
      keySize: 4,
      valueSize: 8,
      maxEntries: 1,
      isMappable: true,
    },
    clients: {
      name: `clients${suffix}`,
      type: "lru-hash",
      keySize: CHOICE_KEY.size,
      valueSize: CHOICE_VALUE.size,
      maxEntries: remembered,
    },
    flows: {
      name: `flows${suffix}`,
      type: "hash",
      keySize: FLOW_KEY.size,
      valueSize: FLOW_VALUE[family].size,
      maxEntries: remembered,
      isAllocatedOnWrite: true,
    },
    tcpPeers: {
      name: `tcp_peers${suffix}`,
      type: "array",
      keySize: 4,
      valueSize: TCP_PEER[family].size,
      maxEntries: remembered,
    },
    connected: {
      name: `connected${suffix}`,
      type: "hash",
      keySize: CONNECTED_KEY.size,
      valueSize: CONNECTED_VALUE[family].size,
      maxEntries: remembered,
      isAllocatedOnWrite: true,
    },
    barred: {
      name: `barred${suffix}`,
      type: "hash",
      keySize: 8,
      valueSize: 4,
      maxEntries: BARRED_NAMESPACES,
      isAllocatedOnWrite: true,
    },
  };
}

export function leadingMaps(family: IpFamily, capacity: BalancerCapacity): LeadingMaps {
  const suffix = family === "IPv4" ? "4" : "6";
  return {
    frontends: {
      name: `frontends${suffix}`,
      type: "hash",
      keySize: FRONTEND_KEY[family].size,
      valueSize: FRONTEND_VALUE.size,
      maxEntries: capacity.frontends,
      isAllocatedOnWrite: true,
    },
    slots: {
      name: `slots${suffix}`,
      type: "array",
      keySize: 4,
      valueSize: SLOT_VALUE.size,
      maxEntries: capacity.slots,
      isMappable: true,
    },
    backends: {
      name: `backends${suffix}`,
      type: "array",
      keySize: 4,
      valueSize: BACKEND_VALUE[family].size,
      maxEntries: capacity.backends,
      isMappable: true,
    },
  };
}

/** Writes the key of a frontend into bytes. @param address undefined for a node port. @param protocol an IP protocol's number. */
export function putFrontendKey(
  bytes: Uint8Array,
  at: number,
  family: IpFamily,
  address: IpAddress | undefined,
  port: number,
  protocol: number,
): void {
  const { fields, size } = FRONTEND_KEY[family];
  bytes.fill(0, at, at + size);
  if (address !== undefined) putAddress(bytes, at, family, address);
  bytes[at + fields.port.at] = port >> 8;
  bytes[at + fields.port.at + 1] = port & 0xff;
  bytes[at + fields.protocol.at] = protocol;
}

/** Without an array for each: there may be hundreds of thousands. */
function putAddress(bytes: Uint8Array, at: number, family: IpFamily, address: IpAddress): void {
  if (family === "IPv6") {
    bytes.set(ipBytes(address), at);
    return;
  }
  const word = ipv4Word(address);
  for (let index = 0; index < 4; index++) bytes[at + index] = word >>> (8 * index);
}

/** What {@link FRONTEND_VALUE} holds. */
export interface FrontendWords {
  readonly base: number;
  readonly count: number;
  readonly id: number;
  readonly flags: number;
  readonly affinitySeconds: number;
  readonly held: number;
}

/** The value of a frontend. Pure. */
export function frontendValueBytes(words: FrontendWords): Uint8Array {
  const value = new Uint8Array(FRONTEND_VALUE.size);
  putFrontendValue(value, 0, words);
  return value;
}

/** Writes the value of a frontend into bytes. @param index of the value, counted from their beginning. */
export function putFrontendValue(bytes: Uint8Array, index: number, words: FrontendWords): void {
  const { base, count, id, flags, affinitySeconds, held } = FRONTEND_VALUE.fields;
  const at = index * FRONTEND_VALUE.size;
  putWord(bytes, at + base.at, words.base);
  putWord(bytes, at + count.at, words.count);
  putWord(bytes, at + id.at, words.id);
  putWord(bytes, at + flags.at, words.flags);
  putWord(bytes, at + affinitySeconds.at, words.affinitySeconds);
  putWord(bytes, at + held.at, words.held);
}

function putWord(bytes: Uint8Array, at: number, word: number): void {
  for (let index = 0; index < 4; index++) bytes[at + index] = word >>> (8 * index);
}

/** The words of a frontend's value. Pure. */
export function frontendWords(value: Uint8Array): FrontendWords {
  const { base, count, id, flags, affinitySeconds, held } = FRONTEND_VALUE.fields;
  return {
    base: takeNumber(value, base),
    count: takeNumber(value, count),
    id: takeNumber(value, id),
    flags: takeNumber(value, flags),
    affinitySeconds: takeNumber(value, affinitySeconds),
    held: takeNumber(value, held),
  };
}
