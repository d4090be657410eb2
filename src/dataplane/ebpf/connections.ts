/** The programs' records of connected UDP sockets that they redirected (reference ebpf-operation.md §5.6). */
import type { BpfMap } from "../../kernel/bpf/bpf.ts";
import { hasBpfCode } from "../../kernel/bpf/bpf-error.ts";
import { takeNumber, takeWide } from "../../kernel/bpf/layout.ts";
import {
  BACKEND_IDENTITY_WORD,
  BACKEND_VALUE,
  CONNECTED_KEY,
  CONNECTED_VALUE,
  HELD,
} from "../../kernel/bpf/socket-balancer/maps.ts";
import type { StaleSocket } from "../../kernel/sock-diag/disconnect-udp.ts";
import { type IpFamily, ipFromBytes } from "../../net/ip.ts";

/** A socket whose endpoint no longer serves. */
export interface LostConnection extends StaleSocket {
  /** The map element that records it. */
  readonly element: readonly [key: Uint8Array, value: Uint8Array];
}

interface ConnectionMaps {
  readonly connected: BpfMap;
  readonly barred: BpfMap;
  readonly backends?: BpfMap;
}

const PRESENT = new Uint8Array(4);

export class Connections {
  readonly #family: IpFamily;
  readonly #maps: () => ConnectionMaps;

  /** @param maps returns the current maps, because growing replaces arrays. {@link lost} is empty without `backends`. */
  constructor(family: IpFamily, maps: () => ConnectionMaps) {
    this.#family = family;
    this.#maps = maps;
  }

  /** Number of redirected sockets. */
  get count(): number {
    return this.#maps().connected.entries().length;
  }

  /** Sockets whose backend no longer has the identity with which it was chosen. */
  lost(): readonly LostConnection[] {
    const { connected, backends } = this.#maps();
    const elements = connected.entries();
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

  all(): readonly LostConnection[] {
    return this.#maps()
      .connected.entries()
      .map((element) => this.#read(element));
  }

  /** Deletes the socket's record, unless the socket has connected again and so has a new one. */
  forget({ element: [key, value] }: LostConnection): void {
    const { connected } = this.#maps();
    const now = connected.lookup(key);
    if (now !== undefined && Buffer.compare(now, value) === 0) connected.delete(key);
  }

  /** The highest id of a list from which a socket got its endpoint; 0 if there are no sockets. */
  get highestId(): number {
    const { identity } = CONNECTED_VALUE[this.#family].fields;
    const ids = this.#maps()
      .connected.entries()
      .map(([, value]) => Number(BigInt.asUintN(32, takeWide(value, identity))));
    return ids.reduce((highest, id) => Math.max(highest, id), 0);
  }

  /** From now on, programs do not redirect connected UDP of this network namespace. */
  bar(netns: bigint): void {
    try {
      this.#maps().barred.update(new Uint8Array(BigUint64Array.of(netns).buffer), PRESENT);
    } catch (error) {
      // The map is full of other namespaces; what was logged remains true for those.
      if (!hasBpfCode(error, "E2BIG")) throw error;
    }
  }

  #read(element: readonly [Uint8Array, Uint8Array]): LostConnection {
    const [key, value] = element;
    const { netns, address, port } = CONNECTED_VALUE[this.#family].fields;
    return {
      cookie: takeWide(key, CONNECTED_KEY.fields.cookie),
      netns: takeWide(value, netns),
      remote: ipFromBytes(value.slice(address.at, address.at + address.bytes)),
      remotePort: takeNumber(value, port),
      element,
    };
  }
}
