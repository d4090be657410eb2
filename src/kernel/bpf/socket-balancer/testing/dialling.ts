/** What a connect or a datagram should meet, said without maps or instructions; and the maps that should make it so. */
import { familyOf, type IpAddress, type IpFamily, ipBytes } from "../../../../net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../../../net/protocol.ts";
import type { Bpf, BpfMap } from "../../bpf.ts";
import { encode, putNumber, takeNumber } from "../../layout.ts";
import {
  BACKEND_VALUE,
  type BalancerMaps,
  countingMaps,
  FRONTEND_KEY,
  frontendValue,
  HOST_ONLY,
  leadingMaps,
  memoryMaps,
  NO_ENDPOINTS,
} from "../maps.ts";
import type { SocketProgramOptions } from "../programs.ts";
import {
  SOCK_ADDR,
  type SocketKind,
  TEST_CONTEXT_BYTES,
  TEST_IS_BOUND,
  TEST_NETNS_COOKIE,
  TEST_SOCKET_COOKIE,
  USER_PORT_WORD,
} from "./test-programs.ts";

/** How many frontends one UDP socket asks at the same time: as in socket.bpf.c. */
const FLOWS_OF_SOCKET = 4;

export interface Place {
  readonly address: IpAddress;
  readonly port: number;
}

export interface Frontend {
  /** Undefined: a node port. */
  readonly address: IpAddress | undefined;
  readonly port: number;
  readonly protocol: number;
  readonly endpoints: readonly Place[];
  /** Something else of it that a socket program leaves alone. */
  readonly isPassed?: boolean;
  /** Its slots name backends of another service port: the state between two writes. */
  readonly isReused?: boolean;
  readonly isHostOnly?: boolean;
  /** 0: none. */
  readonly affinitySeconds?: number;
}

/** A socket connects, or sends. */
export interface Dial {
  readonly to: Place;
  readonly protocol: number;
  readonly socket: number;
  readonly netns: number;
  /** To a loopback address, or to a device. @default false */
  readonly isBound?: boolean;
}

export const HOST_NETNS = 1;

const LOCALHOSTS: readonly IpAddress[] = ["127.0.0.1", "::1"] as IpAddress[]; // canonical literals

type AtLocalhost = NonNullable<SocketProgramOptions["atLocalhost"]>;

export type Expected =
  | { readonly kind: "pass" }
  | { readonly kind: "refuse" }
  /**
   * All endpoints, in the order of the slots, or the one that the client has had. A dial that draws one that is taken passes: its
   * answers would be those of something else that the socket asks.
   */
  | { readonly kind: "to"; readonly places: readonly Place[]; readonly taken: readonly Place[] };

/** Says what each of a series of dials meets. */
export class DialOracle {
  readonly #frontends: readonly Frontend[];
  readonly #nodeAddresses: readonly IpAddress[];
  readonly #atLocalhost: AtLocalhost;
  readonly #choices = new Map<string, Place>();
  /** What each UDP socket has asked, and where it was led. */
  readonly #asked = new Map<number, Map<Frontend, Place>>();

  constructor(frontends: readonly Frontend[], nodeAddresses: readonly IpAddress[], atLocalhost: AtLocalhost = "none") {
    this.#frontends = frontends;
    this.#nodeAddresses = nodeAddresses;
    this.#atLocalhost = atLocalhost;
  }

  expected(call: "connect" | "sendmsg", dial: Dial): Expected {
    const found = this.#find(call, dial);
    if (found === undefined || found.isPassed === true) return { kind: "pass" };
    if (LOCALHOSTS.includes(dial.to.address)) {
      // A relay listens there, which knows policies and refuses by not listening.
      const isLed = dial.netns === HOST_NETNS && dial.isBound !== true && found.endpoints.length > 0;
      const isAsked = this.#atLocalhost === "all" || (this.#atLocalhost === "cluster" && found.isHostOnly !== true);
      if (!isLed || !isAsked) return { kind: "pass" };
    }
    if (found.endpoints.length === 0) {
      return { kind: dial.protocol === PROTOCOL_NUMBERS.TCP ? "refuse" : "pass" };
    }
    if (found.isHostOnly === true && dial.netns !== HOST_NETNS) return { kind: "pass" };
    if (found.isReused === true) return { kind: "pass" };
    const asked = this.#asked.get(dial.socket);
    const isOneTooMany = asked !== undefined && asked.size === FLOWS_OF_SOCKET && !asked.has(found);
    if (hasFlow(call, dial) && isOneTooMany) return { kind: "pass" };
    const chosen = keysOf(call, dial, found)
      .map((key) => this.#choices.get(key))
      .find((place) => place !== undefined);
    const places = chosen === undefined ? found.endpoints : [chosen];
    const hasFlowThere = call === "sendmsg" && asked?.has(found) === true;
    const others = hasFlowThere ? [] : [...(asked ?? [])].filter(([one]) => one !== found).map(([, place]) => place);
    return { kind: "to", places, taken: places.filter((one) => others.some((other) => isSamePlace(one, other))) };
  }

  /** What the dial met. */
  note(call: "connect" | "sendmsg", dial: Dial, place: Place): void {
    const found = this.#find(call, dial);
    if (found !== undefined && hasFlow(call, dial)) {
      this.#asked.set(dial.socket, (this.#asked.get(dial.socket) ?? new Map()).set(found, place));
    }
    const [first, ...others] = found === undefined ? [] : keysOf(call, dial, found);
    if (first === undefined) return;
    // A flow that goes on says nothing of the client.
    const isFlow = call === "sendmsg" && this.#choices.has(first);
    for (const key of isFlow ? [first] : [first, ...others]) this.#choices.set(key, place);
  }

  #find(call: "connect" | "sendmsg", { to, protocol }: Dial): Frontend | undefined {
    if (protocol !== PROTOCOL_NUMBERS.TCP && protocol !== PROTOCOL_NUMBERS.UDP) return undefined;
    const candidates = this.#frontends.filter((one) => one.port === to.port && one.protocol === protocol);
    // Who sends a datagram to a node port may be answering a client with that source port.
    const isStream = call === "connect" && protocol === PROTOCOL_NUMBERS.TCP;
    const isNodePort = isStream && [...this.#nodeAddresses, ...LOCALHOSTS].includes(to.address);
    return (
      candidates.find((one) => one.address === to.address) ??
      (isNodePort ? candidates.find((one) => one.address === undefined) : undefined)
    );
  }
}

const isSamePlace = (one: Place, other: Place): boolean => one.address === other.address && one.port === other.port;

/** Only UDP sends to an address; of the program that runs then nothing else is known. */
const hasFlow = (call: "connect" | "sendmsg", { protocol }: Dial): boolean =>
  call === "sendmsg" || protocol === PROTOCOL_NUMBERS.UDP;

/** Under which a choice is remembered, the one that counts most first. */
function keysOf(call: "connect" | "sendmsg", dial: Dial, frontend: Frontend): readonly string[] {
  const place = `${frontend.address} ${frontend.port} ${frontend.protocol}`;
  return [
    ...(call === "sendmsg" ? [`socket ${dial.socket} ${place}`] : []),
    ...((frontend.affinitySeconds ?? 0) > 0 ? [`netns ${dial.netns} ${place}`] : []),
  ];
}

export type OpenMaps = Readonly<Record<keyof BalancerMaps, BpfMap>>;

/** Small maps. */
export function testMaps(family: IpFamily): BalancerMaps {
  const leading = leadingMaps(family, { frontends: 64, slots: 64, backends: 64 });
  return { ...leading, ...memoryMaps(family, 1024), ...countingMaps(family, 1024) };
}

export function openMaps(bpf: Bpf, definitions: BalancerMaps): OpenMaps {
  const names = Object.keys(definitions) as (keyof BalancerMaps)[]; // exactly the keys of its own type
  return Object.fromEntries(names.map((name) => [name, bpf.createMap(definitions[name])])) as OpenMaps;
}

const index32 = (index: number): Uint8Array => new Uint8Array(Uint32Array.of(index).buffer);
const ANOTHER_FLAG = 8;

/** Writes frontends into empty maps, each with slots and backends of its own. The first of several for one place counts. */
export function fillMaps(
  maps: OpenMaps,
  frontends: readonly Frontend[],
  family: IpFamily,
  nodeAddresses: readonly IpAddress[] = [],
): void {
  maps.validUntil.update(index32(0), new Uint8Array(8).fill(0xff));
  for (const address of nodeAddresses) maps.nodeAddresses.update(ipBytes(address), index32(0));
  let next = 0;
  for (const [number, frontend] of [...frontends.entries()].toReversed()) {
    const id = 2 * (number + 1);
    const base = next;
    for (const { address, port } of frontend.endpoints) {
      const backend = { address: ipBytes(address), port, id: frontend.isReused === true ? id + 1000 : id };
      // Backends in another order than slots: nothing may rest on them being the same.
      const at = maps.backends.definition.maxEntries - 1 - next;
      maps.backends.update(index32(at), encode(BACKEND_VALUE[family], backend));
      maps.slots.update(index32(next), new Uint8Array(BigUint64Array.of(BigInt(at)).buffer));
      next++;
    }
    const { address, port, protocol, endpoints, affinitySeconds = 0 } = frontend;
    const count = endpoints.length;
    const ofServed = frontend.isHostOnly === true ? HOST_ONLY : 0;
    const flags = frontend.isPassed === true ? ANOTHER_FLAG : count === 0 ? NO_ENDPOINTS : ofServed;
    maps.frontends.update(
      encode(FRONTEND_KEY[family], { ...(address !== undefined && { address: ipBytes(address) }), port, protocol }),
      frontendValue({ base, count, id, flags, affinitySeconds, held: 0 }),
    );
  }
}

/** The context of a socket, in the form of tests. */
export function contextOf(kind: SocketKind, { to, protocol, socket, netns, isBound = false }: Dial): Uint8Array {
  const context = new Uint8Array(TEST_CONTEXT_BYTES);
  const { userIp4, userIp6, userPort } = SOCK_ADDR.fields;
  context.set(ipBytes(to.address), kind === "IPv4" ? userIp4.at : kind === "IPv6" ? userIp6.at : userIp6.at + 12);
  if (kind === "mapped") context.set([0xff, 0xff], userIp6.at + 10);
  putNumber(context, userPort, to.port);
  putNumber(context, SOCK_ADDR.fields.protocol, protocol);
  putNumber(context, TEST_SOCKET_COOKIE, socket);
  putNumber(context, TEST_NETNS_COOKIE, netns);
  putNumber(context, TEST_IS_BOUND, isBound ? 1 : 0);
  return context;
}

/** Where a program has led a socket to; undefined: it changed nothing. @throws Error when that is none of the places. */
export function placeOf(kind: SocketKind, dial: Dial, after: Uint8Array, places: readonly Place[]): Place | undefined {
  const candidates = [dial.to, ...places].filter(({ address }) => familyOf(address) === familyOf(dial.to.address));
  const found = candidates.find((to) => Buffer.compare(contextOf(kind, { ...dial, to }), after) === 0);
  if (found !== undefined) return found === dial.to ? undefined : found;
  const port = takeNumber(after, USER_PORT_WORD);
  throw new Error(`the context became ${Buffer.from(after).toString("hex")}, port word ${port}: none of the backends`);
}
