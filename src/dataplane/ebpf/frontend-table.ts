/**
 * The map of frontends of one family, as service ports fill it. Elements of service ports that it has nothing of go to the kernel many
 * at a time: a system call for each is most of what the first fill of a large cluster costs.
 */
import type { BpfMap } from "../../kernel/bpf/bpf.ts";
import {
  FRONTEND_KEY,
  FRONTEND_VALUE,
  type FrontendWords,
  putFrontendKey,
  putFrontendValue,
} from "../../kernel/bpf/socket-balancer/maps.ts";
import type { FrontendAddress } from "../../model/frontend.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { IpFamily } from "../../net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../net/protocol.ts";
import { nameOfKey } from "./adopted-frontends.ts";

/** Elements that go to the kernel together; more of the last service port. */
const TOGETHER = 1024;

export class FrontendTable {
  readonly #family: IpFamily;
  readonly #keySize: number;
  #map: BpfMap;
  /** What {@link update} and the like ask with: the map copies it. */
  readonly #key: Uint8Array;
  readonly #value = new Uint8Array(FRONTEND_VALUE.size);
  /** Elements that wait, one after the other; made when there are any. */
  #keys = NOTHING;
  #values = NOTHING;
  #waiting = 0;
  /** Whose they are. */
  #owners = new Set<string>();

  constructor(family: IpFamily, map: BpfMap) {
    this.#family = family;
    this.#map = map;
    this.#keySize = FRONTEND_KEY[family].size;
    this.#key = new Uint8Array(this.#keySize);
  }

  /** {@link nameOfKey} of a frontend. A node port is in the map without an address. */
  nameOf(port: ServicePort, frontend: FrontendAddress): string {
    return nameOfKey(this.#keyFor(port, frontend));
  }

  has(port: ServicePort, frontend: FrontendAddress): boolean {
    return this.#map.lookup(this.#keyFor(port, frontend)) !== undefined;
  }

  /** @throws BpfError */
  update(port: ServicePort, frontend: FrontendAddress, words: FrontendWords): void {
    putFrontendValue(this.#value, 0, words);
    this.#map.update(this.#keyFor(port, frontend), this.#value);
  }

  /** As {@link update}, with the next {@link flush}. @param owner is named then. */
  updateLater(owner: string, port: ServicePort, frontend: FrontendAddress, words: FrontendWords): void {
    if (this.#waiting * this.#keySize === this.#keys.length) {
      const room = Math.max(TOGETHER, 2 * this.#waiting);
      this.#keys = withRoom(this.#keys, room * this.#keySize);
      this.#values = withRoom(this.#values, room * FRONTEND_VALUE.size);
    }
    this.#put(this.#keys, this.#waiting, port, frontend);
    putFrontendValue(this.#values, this.#waiting, words);
    this.#owners.add(owner);
    this.#waiting++;
  }

  /** Nothing that waits may be of this frontend. @throws BpfError */
  delete(port: ServicePort, frontend: FrontendAddress): void {
    this.#map.delete(this.#keyFor(port, frontend));
  }

  get hasWaiting(): boolean {
    return this.#waiting > 0;
  }

  /** Whether anything waits of this owner. */
  isWaiting(owner: string): boolean {
    return this.#waiting > 0 && this.#owners.has(owner);
  }

  /** Whether {@link flush} is due. */
  get isFull(): boolean {
    return this.#waiting >= TOGETHER;
  }

  /** Writes what waits. @returns undefined, or the owners of all of it when it was not all written: some of it may be. */
  flush(): ReadonlySet<string> | undefined {
    const [keys, values, count, owners] = [this.#keys, this.#values, this.#waiting, this.#owners];
    if (count === 0) return undefined;
    this.#waiting = 0;
    this.#owners = new Set();
    try {
      this.#map.updateAll(keys.subarray(0, count * this.#keySize), values.subarray(0, count * FRONTEND_VALUE.size));
      return undefined;
    } catch {
      // Which of them it was, and why, is found out one by one.
      return owners;
    }
  }

  /** Gives back the room for what waits: there will be little. */
  shrink(): void {
    if (this.#waiting > 0) return;
    this.#keys = NOTHING;
    this.#values = NOTHING;
  }

  /** Goes on in another map, which gets what is in this one. What waits goes there. @throws BpfError */
  moveTo(map: BpfMap): void {
    const elements = this.#map.entries();
    const bytes = (part: 0 | 1): Uint8Array => Buffer.concat(elements.map((element) => element[part]));
    map.updateAll(bytes(0), bytes(1));
    this.#map = map;
  }

  #keyFor(port: ServicePort, frontend: FrontendAddress): Uint8Array {
    this.#put(this.#key, 0, port, frontend);
    return this.#key;
  }

  #put(keys: Uint8Array, index: number, { protocol }: ServicePort, { address, port }: FrontendAddress): void {
    putFrontendKey(keys, index * this.#keySize, this.#family, address, port, PROTOCOL_NUMBERS[protocol]);
  }
}

const NOTHING = new Uint8Array();

function withRoom(bytes: Uint8Array, length: number): Uint8Array<ArrayBuffer> {
  const longer = new Uint8Array(length);
  longer.set(bytes);
  return longer;
}
