/** What a connect should do, said without maps or instructions; and the maps that should make it so. */
import { familyOf, type IpAddress, type IpFamily, ipBytes } from "../../../../net/ip.ts";
import type { Bpf, BpfMap } from "../../bpf.ts";
import { SOCK_ADDR, USER_PORT_WORD } from "../../contexts.ts";
import { encode, putNumber, takeNumber } from "../../layout.ts";
import type { ConnectKind } from "../connect.ts";
import { BACKEND_VALUE, type BalancerMaps, FRONTEND_KEY, FRONTEND_VALUE, NO_ENDPOINTS, SLOT_VALUE } from "../maps.ts";

export interface Place {
  readonly address: IpAddress;
  readonly port: number;
}

export interface Frontend extends Place {
  readonly protocol: number;
  readonly endpoints: readonly Place[];
  /** Something else of it that a socket program leaves alone. */
  readonly isPassed?: boolean;
  /** Its slots name backends of another service port: the state between two writes. */
  readonly isReused?: boolean;
}

export type Answer =
  | { readonly kind: "pass" }
  | { readonly kind: "refuse" }
  | { readonly kind: "to"; readonly place: Place };

/** @param random 32 bits. The first of several frontends with one address, port and protocol counts. */
export function expectedAnswer(frontends: readonly Frontend[], to: Place, protocol: number, random: number): Answer {
  const found = frontends.find(
    (one) => one.address === to.address && one.port === to.port && one.protocol === protocol,
  );
  if (found === undefined || found.isPassed === true) return { kind: "pass" };
  if (found.endpoints.length === 0) return { kind: protocol === 6 ? "refuse" : "pass" };
  if (found.isReused === true) return { kind: "pass" };
  const place = found.endpoints[Math.floor((random / 2 ** 32) * found.endpoints.length)];
  return place === undefined ? { kind: "pass" } : { kind: "to", place };
}

export interface OpenMaps {
  readonly frontends: BpfMap;
  readonly slots: BpfMap;
  readonly backends: BpfMap;
}

export function openMaps(bpf: Bpf, { frontends, slots, backends }: BalancerMaps): OpenMaps {
  return { frontends: bpf.createMap(frontends), slots: bpf.createMap(slots), backends: bpf.createMap(backends) };
}

const index32 = (index: number): Uint8Array => new Uint8Array(Uint32Array.of(index).buffer);
const ANOTHER_FLAG = 8;

/** Writes frontends into empty maps, each with slots and backends of its own. */
export function fillMaps(maps: OpenMaps, frontends: readonly Frontend[], family: IpFamily): void {
  let next = 0;
  for (const [number, frontend] of [...frontends.entries()].toReversed()) {
    const id = number + 1;
    const base = next;
    for (const { address, port } of frontend.endpoints) {
      const backend = { address: ipBytes(address), port, id: frontend.isReused === true ? id + 1000 : id };
      // Backends in another order than slots: nothing may rest on them being the same.
      const at = maps.backends.definition.maxEntries - 1 - next;
      maps.backends.update(index32(at), encode(BACKEND_VALUE[family], backend));
      maps.slots.update(index32(next), encode(SLOT_VALUE, { backend: at }));
      next++;
    }
    const { address, port, protocol, endpoints } = frontend;
    const flags = frontend.isPassed === true ? ANOTHER_FLAG : endpoints.length === 0 ? NO_ENDPOINTS : 0;
    maps.frontends.update(
      encode(FRONTEND_KEY[family], { address: ipBytes(address), port, protocol }),
      encode(FRONTEND_VALUE, { base, count: endpoints.length, id, flags }),
    );
  }
}

/** The context of a socket that connects. @param size bytes; what is beyond {@link SOCK_ADDR} is 0. */
export function contextOf(kind: ConnectKind, to: Place, protocol: number, size = SOCK_ADDR.size): Uint8Array {
  const context = new Uint8Array(size);
  const { userIp4, userIp6, userPort } = SOCK_ADDR.fields;
  context.set(ipBytes(to.address), kind === "IPv4" ? userIp4.at : kind === "IPv6" ? userIp6.at : userIp6.at + 12);
  if (kind === "mapped") context.set([0xff, 0xff], userIp6.at + 10);
  putNumber(context, userPort, to.port);
  putNumber(context, SOCK_ADDR.fields.protocol, protocol);
  return context;
}

/** What a program made of a context. */
export function answerOf(kind: ConnectKind, before: Uint8Array, after: Uint8Array, places: readonly Place[]): Answer {
  if (Buffer.compare(before, after) === 0) return { kind: "pass" };
  const found = places.find((place) => {
    const family = kind === "IPv6" ? "IPv6" : "IPv4";
    if (familyOf(place.address) !== family) return false;
    const wanted = contextOf(kind, place, takeNumber(before, SOCK_ADDR.fields.protocol), before.length);
    return Buffer.compare(wanted, after) === 0;
  });
  if (found === undefined) {
    const port = takeNumber(after, USER_PORT_WORD);
    throw new Error(
      `the context became ${Buffer.from(after).toString("hex")}, port word ${port}: none of the backends`,
    );
  }
  return { kind: "to", place: found };
}
