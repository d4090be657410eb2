/** The programs' records of connected UDP sockets that they redirected (reference ebpf-operation.md §5.6). */
import type { BpfMap } from "../../kernel/bpf/bpf.ts";
import { takeNumber, takeWide } from "../../kernel/bpf/layout.ts";
import type { StaleSocket } from "../../kernel/sock-diag/disconnect-udp.ts";
import { type IpFamily, ipFromBytes } from "../../net/ip.ts";
import { BACKEND_IDENTITY_WORD, BACKEND_VALUE, CONNECTED_KEY, CONNECTED_VALUE, HELD } from "./socket-balancer/maps.ts";

/** A socket whose endpoint no longer serves. */
export interface LostConnection extends StaleSocket {
  /** The map element that records it. */
  readonly element: readonly [key: Uint8Array, value: Uint8Array];
}

interface ConnectionMaps {
  readonly connected: BpfMap;
  readonly backends?: BpfMap;
}

export class Connections {
  readonly #family: IpFamily;
  readonly #maps: () => ConnectionMaps;
  /**
   * By cookie: the record about which nothing more can be done. Only programs delete records: between a look-up and a
   * deletion here, the disconnected client may write its next one, and would never be told again.
   */
  #told = new Map<bigint, Uint8Array>();

  /** @param maps returns the current maps, because growing replaces arrays. {@link lost} is empty without `backends`. */
  constructor(family: IpFamily, maps: () => ConnectionMaps) {
    this.#family = family;
    this.#maps = maps;
  }

  /** Number of redirected sockets, without those that were disconnected. */
  get count(): number {
    return this.#untold().length;
  }

  /** Sockets whose backend no longer has the identity with which it was chosen. */
  lost(): readonly LostConnection[] {
    const { connected, backends } = this.#maps();
    const all = connected.entries();
    const told = all.filter((element) => this.#isTold(element));
    this.#told = new Map(told.map(([key, value]) => [cookieOf(key), value]));
    const elements = told.length === 0 ? all : all.filter((element) => !this.#isTold(element));
    if (elements.length === 0 || backends === undefined) return [];
    const words = backends.words();
    const perBackend = BACKEND_VALUE[this.#family].size / 8;
    const identityAt = BACKEND_IDENTITY_WORD[this.#family].at / 8;
    const { backend, identity } = CONNECTED_VALUE[this.#family].fields;
    return elements
      .filter(([, value]) => {
        const now = words[takeNumber(value, backend) * perBackend + identityAt] ?? 0n;
        return (now & ~HELD) !== takeWide(value, identity);
      })
      .map((element) => this.#read(element));
  }

  /** Redirected sockets, without those that were disconnected. */
  all(): readonly LostConnection[] {
    return this.#untold().map((element) => this.#read(element));
  }

  /** {@link lost} leaves out this record from now on. The socket's next record differs: it has a serving backend's identity. */
  setTold({ cookie, element: [, value] }: LostConnection): void {
    this.#told.set(cookie, value);
  }

  /** The highest id of a list from which a socket got its endpoint; 0 if there are no sockets. */
  get highestId(): number {
    const { identity } = CONNECTED_VALUE[this.#family].fields;
    const ids = this.#maps()
      .connected.entries()
      .map(([, value]) => Number(BigInt.asUintN(32, takeWide(value, identity))));
    return ids.reduce((highest, id) => Math.max(highest, id), 0);
  }

  #untold(): readonly (readonly [Uint8Array, Uint8Array])[] {
    const all = this.#maps().connected.entries();
    return all.filter((element) => !this.#isTold(element));
  }

  #isTold([key, value]: readonly [Uint8Array, Uint8Array]): boolean {
    const told = this.#told.size === 0 ? undefined : this.#told.get(cookieOf(key));
    return told !== undefined && Buffer.compare(told, value) === 0;
  }

  #read(element: readonly [Uint8Array, Uint8Array]): LostConnection {
    const [key, value] = element;
    const { netns, address, port } = CONNECTED_VALUE[this.#family].fields;
    return {
      cookie: cookieOf(key),
      netns: takeWide(value, netns),
      remote: ipFromBytes(value.slice(address.at, address.at + address.bytes)),
      remotePort: takeNumber(value, port),
      element,
    };
  }
}

const cookieOf = (key: Uint8Array): bigint => takeWide(key, CONNECTED_KEY.fields.cookie);
