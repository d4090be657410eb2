/** The expected result of a connect or datagram, computed without maps or programs; and maps that should produce it. */

import type { Bpf, BpfMap } from "../../../../kernel/bpf/bpf.ts";
import { encode, putNumber, takeNumber } from "../../../../kernel/bpf/layout.ts";
import { familyOf, type IpAddress, type IpFamily, ipBytes } from "../../../../net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../../../net/protocol.ts";
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
import {
  SOCK_ADDR,
  type SocketKind,
  TEST_CONTEXT_BYTES,
  TEST_IS_BOUND,
  TEST_NETNS_COOKIE,
  TEST_SOCKET_COOKIE,
  USER_PORT_WORD,
} from "./test-programs.ts";

/** The number of frontends that one UDP socket can use at the same time, as in socket.bpf.c. */
const FLOWS_OF_SOCKET = 4;

export interface Place {
  readonly address: IpAddress;
  readonly port: number;
}

export interface Frontend {
  /** Undefined for a node port. */
  readonly address: IpAddress | undefined;
  readonly port: number;
  readonly protocol: number;
  readonly endpoints: readonly Place[];
  /** Another reason for which a socket program passes it. */
  readonly isPassed?: boolean;
  /** Its slots refer to another service port's backends, as between two writes. */
  readonly isReused?: boolean;
  readonly isHostOnly?: boolean;
  /** 0 for none. */
  readonly affinitySeconds?: number;
}

/** A connect or a send. */
export interface Dial {
  readonly to: Place;
  readonly protocol: number;
  readonly socket: number;
  readonly netns: number;
  /** Whether the socket is bound to a loopback address or a device. @default false */
  readonly isBound?: boolean;
}

export const HOST_NETNS = 1;
export const POD_NETNS = 2;

const LOCALHOSTS: readonly IpAddress[] = ["127.0.0.1", "::1"] as IpAddress[]; // literals in canonical form

export type Expected =
  | { readonly kind: "pass" }
  | { readonly kind: "refuse" }
  /**
   * All endpoints in slot order, or the client's previous one. A dial that draws a taken endpoint passes: the socket
   * could not tell its answers from those of another destination.
   */
  | { readonly kind: "to"; readonly places: readonly Place[]; readonly taken: readonly Place[] };

/** Predicts the results of a series of dials. */
export class DialOracle {
  readonly #frontends: readonly Frontend[];
  readonly #nodeAddresses: readonly IpAddress[];
  readonly #leadsLocalhost: boolean;
  readonly #choices = new Map<string, Place>();
  /** By UDP socket: the frontends that it has used, and its endpoints. */
  readonly #asked = new Map<number, Map<Frontend, Place>>();

  constructor(frontends: readonly Frontend[], nodeAddresses: readonly IpAddress[], leadsLocalhost = false) {
    this.#frontends = frontends;
    this.#nodeAddresses = nodeAddresses;
    this.#leadsLocalhost = leadsLocalhost;
  }

  expected(call: "connect" | "sendmsg", dial: Dial): Expected {
    const found = this.#find(call, dial);
    if (found === undefined || found.isPassed === true) return { kind: "pass" };
    if (dial.netns !== HOST_NETNS && dial.netns !== POD_NETNS) return { kind: "pass" };
    if (LOCALHOSTS.includes(dial.to.address)) {
      // A relay listens there that applies policies, and rejects connections by not listening.
      const isLed = dial.netns === HOST_NETNS && dial.isBound !== true && found.endpoints.length > 0;
      const isAsked = this.#leadsLocalhost && found.isHostOnly !== true;
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

  /** Records the result of a dial. */
  note(call: "connect" | "sendmsg", dial: Dial, place: Place): void {
    const found = this.#find(call, dial);
    if (found !== undefined && hasFlow(call, dial)) {
      this.#asked.set(dial.socket, (this.#asked.get(dial.socket) ?? new Map()).set(found, place));
    }
    const [first, ...others] = found === undefined ? [] : keysOf(call, dial, found);
    if (first === undefined) return;
    // An existing flow does not update session affinity.
    const isFlow = call === "sendmsg" && this.#choices.has(first);
    for (const key of isFlow ? [first] : [first, ...others]) this.#choices.set(key, place);
  }

  #find(call: "connect" | "sendmsg", { to, protocol }: Dial): Frontend | undefined {
    if (protocol !== PROTOCOL_NUMBERS.TCP && protocol !== PROTOCOL_NUMBERS.UDP) return undefined;
    const candidates = this.#frontends.filter((one) => one.port === to.port && one.protocol === protocol);
    // A datagram to a node port may be an answer to a client with that source port.
    const isStream = call === "connect" && protocol === PROTOCOL_NUMBERS.TCP;
    const isNodePort = isStream && [...this.#nodeAddresses, ...LOCALHOSTS].includes(to.address);
    return (
      candidates.find((one) => one.address === to.address) ??
      (isNodePort ? candidates.find((one) => one.address === undefined) : undefined)
    );
  }
}

const isSamePlace = (one: Place, other: Place): boolean => one.address === other.address && one.port === other.port;

/** Only UDP sends to an address; the program at that hook knows nothing else. */
const hasFlow = (call: "connect" | "sendmsg", { protocol }: Dial): boolean =>
  call === "sendmsg" || protocol === PROTOCOL_NUMBERS.UDP;

/** Keys under which a choice is remembered, most important first. */
function keysOf(call: "connect" | "sendmsg", dial: Dial, frontend: Frontend): readonly string[] {
  const place = `${frontend.address} ${frontend.port} ${frontend.protocol}`;
  return [
    ...(call === "sendmsg" ? [`socket ${dial.socket} ${place}`] : []),
    ...((frontend.affinitySeconds ?? 0) > 0 ? [`netns ${dial.netns} ${place}`] : []),
  ];
}

export type OpenMaps = Readonly<Record<keyof BalancerMaps, BpfMap>>;

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

/** Redirects sockets of these network namespaces, beside the host's. */
export function leadNamespaces(
  { ledNamespaces }: Pick<OpenMaps, "ledNamespaces">,
  ...cookies: readonly bigint[]
): void {
  for (const cookie of cookies) ledNamespaces.update(bytesOf(cookie), bytesOf(0n));
}

const bytesOf = (word: bigint): Uint8Array => new Uint8Array(BigUint64Array.of(word).buffer);

/** Writes frontends into empty maps and leads {@link POD_NETNS}; each frontend with its own slots and backends. Of several with one place, the first counts. */
export function fillMaps(
  maps: OpenMaps,
  frontends: readonly Frontend[],
  family: IpFamily,
  nodeAddresses: readonly IpAddress[] = [],
): void {
  maps.validUntil.update(index32(0), new Uint8Array(maps.validUntil.definition.valueSize).fill(0xff));
  leadNamespaces(maps, BigInt(POD_NETNS));
  for (const address of nodeAddresses) maps.nodeAddresses.update(ipBytes(address), index32(0));
  let next = 0;
  for (const [number, frontend] of [...frontends.entries()].toReversed()) {
    const id = 2 * (number + 1);
    const base = next;
    for (const { address, port } of frontend.endpoints) {
      const backend = { address: ipBytes(address), port, id: frontend.isReused === true ? id + 1000 : id };
      // Numbers backends in reverse: nothing may depend on equal indexes of slots and backends.
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

/** A socket's context in the form used by tests. */
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

/** Where a program redirected a socket; undefined if unchanged. @throws Error if that is none of the places. */
export function placeOf(kind: SocketKind, dial: Dial, after: Uint8Array, places: readonly Place[]): Place | undefined {
  const candidates = [dial.to, ...places].filter(({ address }) => familyOf(address) === familyOf(dial.to.address));
  const found = candidates.find((to) => Buffer.compare(contextOf(kind, { ...dial, to }), after) === 0);
  if (found !== undefined) return found === dial.to ? undefined : found;
  const port = takeNumber(after, USER_PORT_WORD);
  throw new Error(`the context became ${Buffer.from(after).toString("hex")}, port word ${port}: none of the backends`);
}
