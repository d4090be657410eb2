/**
 * The map of frontends of one family, as service ports fill it. Elements of service ports that it has nothing of go to the kernel many
 * at a time: a system call for each is most of what the first fill of a large cluster costs.
 */
import type { BpfMap } from "../../kernel/bpf/bpf.ts";
import { type FrontendWords, frontendKey, frontendValue } from "../../kernel/bpf/socket-balancer/maps.ts";
import type { FrontendAddress } from "../../model/frontend.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { IpFamily } from "../../net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../net/protocol.ts";

/** Elements that go to the kernel together; more of the last service port. */
const TOGETHER = 1024;

export class FrontendTable {
  readonly #family: IpFamily;
  #map: BpfMap;
  /** Elements that wait. */
  #keys: Uint8Array[] = [];
  #values: Uint8Array[] = [];
  /** Whose they are. */
  #owners = new Set<string>();

  constructor(family: IpFamily, map: BpfMap) {
    this.#family = family;
    this.#map = map;
  }

  /** What the map knows a frontend by. */
  keyOf({ protocol }: ServicePort, { address, port }: FrontendAddress): Uint8Array {
    return frontendKey(this.#family, address, port, PROTOCOL_NUMBERS[protocol]);
  }

  has(port: ServicePort, frontend: FrontendAddress): boolean {
    return this.#map.lookup(this.keyOf(port, frontend)) !== undefined;
  }

  /** @throws BpfError */
  update(port: ServicePort, frontend: FrontendAddress, words: FrontendWords): void {
    this.#map.update(this.keyOf(port, frontend), frontendValue(words));
  }

  /** As {@link update}, with the next {@link flush}. @param owner is named then. */
  updateLater(owner: string, port: ServicePort, frontend: FrontendAddress, words: FrontendWords): void {
    this.#keys.push(this.keyOf(port, frontend));
    this.#values.push(frontendValue(words));
    this.#owners.add(owner);
  }

  /** Nothing that waits may be of this frontend. @throws BpfError */
  delete(port: ServicePort, frontend: FrontendAddress): void {
    this.#map.delete(this.keyOf(port, frontend));
  }

  /** Whether anything waits. @param owner of it. @default anyone's */
  isWaiting(owner?: string): boolean {
    return owner === undefined ? this.#keys.length > 0 : this.#owners.has(owner);
  }

  /** Whether {@link flush} is due. */
  get isFull(): boolean {
    return this.#keys.length >= TOGETHER;
  }

  /** Writes what waits. @returns undefined, or the owners of all of it when it was not all written: some of it may be. */
  flush(): ReadonlySet<string> | undefined {
    const [keys, values, owners] = [this.#keys, this.#values, this.#owners];
    if (keys.length === 0) return undefined;
    [this.#keys, this.#values, this.#owners] = [[], [], new Set()];
    try {
      this.#map.updateAll(Buffer.concat(keys), Buffer.concat(values));
      return undefined;
    } catch {
      // Which of them it was, and why, is found out one by one.
      return owners;
    }
  }

  /** Goes on in another map, which gets what is in this one. What waits goes there. @throws BpfError */
  moveTo(map: BpfMap): void {
    const elements = this.#map.entries();
    const bytes = (part: 0 | 1): Uint8Array => Buffer.concat(elements.map((element) => element[part]));
    map.updateAll(bytes(0), bytes(1));
    this.#map = map;
  }
}
