/**
 * The map of frontends of one family, as service ports fill it. Elements of service ports that it has nothing of go to the kernel many
 * at a time: a system call for each is most of what the first fill of a large cluster costs.
 */
import type { BpfMap } from "../../kernel/bpf/bpf.ts";
import { frontendKey } from "../../kernel/bpf/socket-balancer/maps.ts";
import type { FrontendAddress } from "../../model/frontend.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../net/protocol.ts";
import { nameOfKey } from "./adopted-frontends.ts";
import { destinationsOf, frontendValueFor, type Installed, isSame } from "./installed.ts";
import { type SocketPlan, type Treatment, treatmentOf } from "./socket-plan.ts";

/** Elements that go to the kernel together; more of the last service port. */
const TOGETHER = 1024;

export class FrontendTable {
  readonly #family: IpFamily;
  #map: BpfMap;
  /** The packet path decides at them. */
  #hostAddresses: ReadonlySet<IpAddress> = new Set();
  /** Elements that wait. */
  #keys: Uint8Array[] = [];
  #values: Uint8Array[] = [];
  /** Whose they are. */
  #owners = new Set<string>();

  constructor(family: IpFamily, map: BpfMap) {
    this.#family = family;
    this.#map = map;
  }

  /** The rules decide at service addresses that are the host's own. @returns those that it has got or lost. */
  setHostAddresses(addresses: ReadonlySet<IpAddress>): ReadonlySet<IpAddress> {
    const changed = addresses.symmetricDifference(this.#hostAddresses);
    this.#hostAddresses = addresses;
    return changed;
  }

  treatmentOf(treatments: SocketPlan["treatments"], frontend: FrontendAddress): Treatment {
    return treatmentOf(treatments, frontend, this.#hostAddresses);
  }

  /** What the map knows a frontend by. */
  keyOf({ protocol }: ServicePort, { address, port }: FrontendAddress): Uint8Array {
    return frontendKey(this.#family, address, port, PROTOCOL_NUMBERS[protocol]);
  }

  /** Whether there is an element. @throws BpfError */
  has(key: Uint8Array): boolean {
    return this.#map.lookup(key) !== undefined;
  }

  /** What the kernel has now, by {@link nameOfKey}. @throws BpfError */
  read(): ReadonlyMap<string, Uint8Array> {
    return new Map(this.#map.entries().map(([key, value]) => [nameOfKey(key), value]));
  }

  /** Whether the elements of a service port are what they should be, and no more. */
  isWhole(installed: Installed, elementOf: (frontend: FrontendAddress, at: number) => Uint8Array | undefined): boolean {
    return destinationsOf(installed.port).every((frontend, at) =>
      isSameValue(elementOf(frontend, at), this.#valueOf(installed, frontend)),
    );
  }

  /** Writes what a service port's frontends say otherwise than before. @throws BpfError */
  write(before: Installed, after: Installed): void {
    if (isSame(before, after)) return;
    for (const frontend of destinationsOf(after.port)) {
      const value = this.#valueOf(after, frontend);
      if (!before.isUncertain && isSameValue(this.#valueOf(before, frontend), value)) continue;
      if (value === undefined) this.#map.delete(this.keyOf(after.port, frontend));
      else this.#map.update(this.keyOf(after.port, frontend), value);
    }
  }

  /** With the next {@link flush}, all of a service port that nothing is there of: no client is led yet. @param owner is named then. */
  writeLater(owner: string, installed: Installed): void {
    for (const frontend of destinationsOf(installed.port)) {
      const value = this.#valueOf(installed, frontend);
      if (value === undefined) continue;
      this.#keys.push(this.keyOf(installed.port, frontend));
      this.#values.push(value);
      this.#owners.add(owner);
    }
  }

  /** What a frontend says; undefined where there is none, and the packet path decides. */
  #valueOf(installed: Installed, frontend: FrontendAddress): Uint8Array | undefined {
    const treatment = this.treatmentOf(installed.treatments, frontend);
    return treatment === "pass" ? undefined : frontendValueFor(treatment, installed);
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

const isSameValue = (one: Uint8Array | undefined, other: Uint8Array | undefined): boolean =>
  one === undefined || other === undefined ? one === other : Buffer.compare(one, other) === 0;
