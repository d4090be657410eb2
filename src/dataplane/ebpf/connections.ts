/** What programs have noted of connected UDP sockets that were led (reference ebpf-operation.md §5.6). */
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

/** A socket whose endpoint serves no more. */
export interface LostConnection extends StaleSocket {
  /** The element that says so. */
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

  /** @param maps those of the moment: arrays are replaced by longer ones. Without backends nothing can be {@link lost}. */
  constructor(family: IpFamily, maps: () => ConnectionMaps) {
    this.#family = family;
    this.#maps = maps;
  }

  /** Number of sockets that are led. */
  get count(): number {
    return this.#maps().connected.entries().length;
  }

  /** Those whose backend does not carry the identity any more with which they were led to it. */
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

  /** All of them. */
  all(): readonly LostConnection[] {
    return this.#maps()
      .connected.entries()
      .map((element) => this.#read(element));
  }

  /** A socket that has connected again meanwhile has another record, which stays. */
  forget({ element: [key, value] }: LostConnection): void {
    const { connected } = this.#maps();
    const now = connected.lookup(key);
    if (now !== undefined && Buffer.compare(now, value) === 0) connected.delete(key);
  }

  /** The highest id of a list that a socket was led by; 0 without any. */
  get highestId(): number {
    const { identity } = CONNECTED_VALUE[this.#family].fields;
    const ids = this.#maps()
      .connected.entries()
      .map(([, value]) => Number(BigInt.asUintN(32, takeWide(value, identity))));
    return ids.reduce((highest, id) => Math.max(highest, id), 0);
  }

  /** From now on connected UDP of this network namespace is not led. */
  bar(netns: bigint): void {
    try {
      this.#maps().barred.update(new Uint8Array(BigUint64Array.of(netns).buffer), PRESENT);
    } catch (error) {
      // There are too many; what is said of it stays true of the others.
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
