/** Packets that meet a program at an interface: what should become of them, said without maps or instructions; and the maps for it. */
import fc from "../../../../../testkit/support/fast-check.ts";
import { type IpAddress, type IpFamily, ipBytes, ipFromBytes } from "../../../../net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../../../net/protocol.ts";
import type { Bpf, BpfMap } from "../../bpf.ts";
import { encode } from "../../layout.ts";
import {
  BACKEND_VALUE,
  FRONTEND_KEY,
  frontendValueBytes,
  leadingMaps,
  memoryMaps,
  SLOT_VALUE,
} from "../../socket-balancer/maps.ts";
import { MASQUERADED, ownAddressesMap, type PacketMapDefinitions, packetClientsMap } from "../maps.ts";

export interface Place {
  readonly address: IpAddress;
  readonly port: number;
}

export interface PacketFrontend {
  /** Undefined: a node port. */
  readonly address: IpAddress | undefined;
  readonly port: number;
  readonly protocol: number;
  readonly endpoints: readonly Place[];
  readonly isMasqueraded: boolean;
  /** It takes the rules. */
  readonly isPassed: boolean;
  readonly affinitySeconds: number;
}

export interface TestPacket {
  readonly from: Place;
  readonly to: Place;
  readonly protocol: number;
  /** Of TCP. */
  readonly flags: number;
  /** A part of a datagram. */
  readonly isFragment: boolean;
}

export interface Scene {
  readonly frontends: readonly PacketFrontend[];
  readonly nodeAddresses: readonly IpAddress[];
  readonly packets: readonly TestPacket[];
}

/** The network of all scenes. Addresses end in these bytes; what comes before says of which kind they are. */
interface Kinds {
  readonly service: readonly number[];
  /** Over the node's interface. */
  readonly pod: readonly number[];
  /** Of the node itself. */
  readonly own: readonly number[];
  /** Where no route leads. */
  readonly nowhere: readonly number[];
  readonly client: readonly number[];
}

const v6 = (...bytes: number[]): readonly number[] => [
  0xfd,
  0,
  ...bytes,
  ...new Array<number>(13 - bytes.length).fill(0),
];
const KINDS: Readonly<Record<IpFamily, Kinds>> = {
  IPv4: { service: [10, 96, 0], pod: [10, 180, 0], own: [10, 99, 0], nowhere: [172, 31, 0], client: [192, 0, 2] },
  IPv6: { service: v6(0, 0x96), pod: v6(1, 0x80), own: v6(0, 0x99), nowhere: v6(0, 0x31), client: v6(0, 0xc1) },
};

const address = (family: IpFamily, kind: keyof Kinds, last: number): IpAddress =>
  ipFromBytes(Uint8Array.of(...KINDS[family][kind], last));

const isOf = (family: IpFamily, kind: keyof Kinds, it: IpAddress): boolean =>
  KINDS[family][kind].every((byte, at) => ipBytes(it)[at] === byte);

/** What the node sends from to pods; its own address, which endpoints may have; pods' range and clients' range. */
export const NETWORK = {
  IPv4: { node: "10.200.0.2/24", own: "10.99.0.1/32", pods: "10.180.0.0/24" },
  IPv6: { node: "fd00:200::2/64", own: "fd00:99::1/128", pods: "fd00:180::/64" },
} as const;

const port = fc.constantFrom(80, 0x5000, 65535);
const PROTOCOLS = [PROTOCOL_NUMBERS.TCP, PROTOCOL_NUMBERS.UDP];
const often = fc.nat({ max: 9 }).map((drawn) => drawn > 0);

export function sceneOf(family: IpFamily): fc.Arbitrary<Scene> {
  const service = fc.constantFrom(1, 2).map((last) => address(family, "service", last));
  const endpoint = fc
    .constantFrom<[keyof Kinds, number]>(["pod", 1], ["pod", 2], ["pod", 3], ["own", 1], ["nowhere", 1], ["client", 1])
    .map(([kind, last]) => address(family, kind, last));
  return fc.record({
    frontends: fc.array(
      fc.record({
        address: fc.option(service, { nil: undefined, freq: 3 }),
        port,
        protocol: fc.constantFrom(...PROTOCOLS),
        endpoints: fc.uniqueArray(fc.record({ address: endpoint, port }), {
          minLength: 1,
          maxLength: 4,
          selector: ({ address: at, port: number }) => `${at} ${number}`,
        }),
        isMasqueraded: fc.boolean(),
        isPassed: often.map((one) => !one),
        affinitySeconds: fc.constantFrom(0, 0, 3600),
      }),
      { minLength: 1, maxLength: 8 },
    ),
    nodeAddresses: fc.uniqueArray(service, { maxLength: 2 }),
    packets: fc.array(
      fc.record({
        from: fc.constantFrom<[keyof Kinds, number]>(["client", 1], ["client", 2], ["pod", 9]).map(([kind, last]) => ({
          address: address(family, kind, last),
          port: 0,
        })),
        to: fc.record({ address: service, port }),
        protocol: fc.constantFrom(...PROTOCOLS, ...PROTOCOLS, ...PROTOCOLS, PROTOCOL_NUMBERS.SCTP),
        flags: fc.oneof(
          { weight: 5, arbitrary: fc.constantFrom(0x02, 0x02, 0xc2, 0x12, 0x10, 0x03, 0x06) },
          fc.nat({ max: 255 }),
        ),
        isFragment: often.map((one) => !one),
      }),
      { maxLength: 30 },
    ),
  });
}

export type Expected =
  | { readonly kind: "pass" }
  /** `source`: what such a place sees; undefined: no packet can be sent to it, and the packet passes. */
  | { readonly kind: "to"; readonly places: readonly { place: Place; source: IpAddress | undefined }[] };

const PASS: Expected = { kind: "pass" };

/** Says what each of a series of packets meets. */
export class PacketOracle {
  readonly #scene: Scene;
  readonly #family: IpFamily;
  readonly #choices = new Map<string, Place>();

  constructor(family: IpFamily, scene: Scene) {
    this.#family = family;
    this.#scene = scene;
  }

  expected(packet: TestPacket): Expected {
    const { protocol, flags, isFragment, from } = packet;
    const isFirst = protocol === PROTOCOL_NUMBERS.UDP || (protocol === PROTOCOL_NUMBERS.TCP && (flags & 0x17) === 0x02);
    const found = this.#find(packet);
    if (!isFirst || isFragment || found === undefined || found.isPassed) return PASS;
    if (isOf(this.#family, "pod", from.address)) return PASS;
    const chosen = this.#choices.get(memoryKey(packet, found) ?? "");
    const places = chosen === undefined ? found.endpoints : [chosen];
    return { kind: "to", places: places.map((place) => ({ place, source: this.#source(packet, found, place) })) };
  }

  /** Where the packet was led. */
  note(packet: TestPacket, place: Place): void {
    const found = this.#find(packet);
    const key = found && memoryKey(packet, found);
    if (key !== undefined) this.#choices.set(key, place);
  }

  #source({ from }: TestPacket, { isMasqueraded }: PacketFrontend, { address: to }: Place): IpAddress | undefined {
    if (!isMasqueraded && to !== from.address) return from.address;
    if (isOf(this.#family, "own", to)) return from.address;
    if (!isOf(this.#family, "pod", to)) return undefined;
    return NETWORK[this.#family].node.split("/")[0] as IpAddress; // it is one
  }

  #find({ to, protocol }: TestPacket): PacketFrontend | undefined {
    const { frontends, nodeAddresses } = this.#scene;
    const candidates = frontends.filter((one) => one.port === to.port && one.protocol === protocol);
    const exact = candidates.find((one) => one.address === to.address);
    if (exact !== undefined || !nodeAddresses.includes(to.address)) return exact;
    return candidates.find((one) => one.address === undefined);
  }
}

function memoryKey({ from }: TestPacket, frontend: PacketFrontend): string | undefined {
  if (frontend.affinitySeconds === 0) return undefined;
  return `${from.address} ${frontend.address} ${frontend.port} ${frontend.protocol}`;
}

export type OpenPacketMaps = Readonly<Record<keyof PacketMapDefinitions, BpfMap>>;

/** Small maps. */
export function testPacketMaps(family: IpFamily): PacketMapDefinitions {
  const { nodeAddresses } = memoryMaps(family);
  const leading = leadingMaps(family, { frontends: 64, slots: 64, backends: 64 });
  const [ownAddresses, packetClients] = [ownAddressesMap(family), packetClientsMap(family)];
  return { ...leading, nodeAddresses, ownAddresses, packetClients };
}

export function openPacketMaps(bpf: Bpf, definitions: PacketMapDefinitions): OpenPacketMaps {
  const names = Object.keys(definitions) as (keyof PacketMapDefinitions)[]; // exactly the keys of its own type
  return Object.fromEntries(names.map((name) => [name, bpf.createMap(definitions[name])])) as OpenPacketMaps;
}

const index32 = (index: number): Uint8Array => new Uint8Array(Uint32Array.of(index).buffer);
const ANOTHER_FLAG = 8;

/** Writes a scene into empty maps. The first of several frontends for one place counts. */
export function fillPacketMaps(maps: OpenPacketMaps, { frontends, nodeAddresses }: Scene, family: IpFamily): void {
  for (const it of nodeAddresses) maps.nodeAddresses.update(ipBytes(it), index32(0));
  maps.ownAddresses.update(ipBytes(NETWORK[family].own.split("/")[0] as IpAddress), index32(0)); // it is one
  let next = 0;
  for (const [number, frontend] of [...frontends.entries()].toReversed()) {
    const [id, base] = [number + 1, next];
    for (const place of frontend.endpoints) {
      const at = maps.backends.definition.maxEntries - 1 - next;
      const backend = { address: ipBytes(place.address), port: place.port, id };
      maps.backends.update(index32(at), encode(BACKEND_VALUE[family], backend));
      maps.slots.update(index32(next++), encode(SLOT_VALUE, { backend: at }));
    }
    const { address: place, port: number16, protocol, isMasqueraded, isPassed, affinitySeconds } = frontend;
    const flags = (isMasqueraded ? MASQUERADED : 0) | (isPassed ? ANOTHER_FLAG : 0);
    maps.frontends.update(
      encode(FRONTEND_KEY[family], {
        ...(place !== undefined && { address: ipBytes(place) }),
        port: number16,
        protocol,
      }),
      frontendValueBytes({ base, count: frontend.endpoints.length, id, flags, affinitySeconds }),
    );
  }
}

/** From the network's header on. */
export function packetBytes({ from, to, protocol, flags, isFragment }: TestPacket): Uint8Array {
  const [source, destination] = [ipBytes(from.address), ipBytes(to.address)];
  const transport = Buffer.alloc(20);
  transport.writeUInt16BE(from.port, 0);
  transport.writeUInt16BE(to.port, 2);
  if (protocol === PROTOCOL_NUMBERS.UDP) transport.writeUInt16BE(transport.length, 4);
  else transport.writeUInt8(flags, 13);
  if (source.length === 4) {
    const header = Buffer.alloc(20);
    header.writeUInt8(0x45, 0);
    header.writeUInt16BE(40, 2);
    header.writeUInt16BE(isFragment ? 0x2000 : 0x4000, 6);
    header.writeUInt8(64, 8);
    header.writeUInt8(protocol, 9);
    return Buffer.concat([header.subarray(0, 12), source, destination, transport]);
  }
  const header = Buffer.alloc(8);
  header.writeUInt8(0x60, 0);
  header.writeUInt16BE(20, 4);
  header.writeUInt8(isFragment ? 44 : protocol, 6);
  return Buffer.concat([header, source, destination, transport]);
}

/** As it comes in by the loopback interface. */
export function frameBytes(packet: TestPacket): Uint8Array {
  const bytes = packetBytes(packet);
  const type = bytes[0] === 0x45 ? [0x08, 0x00] : [0x86, 0xdd];
  return Buffer.concat([Buffer.alloc(12), Buffer.from(type), bytes]);
}
