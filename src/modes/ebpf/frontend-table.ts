/**
 * The map of frontends of one family, filled from service ports. New service ports' elements go to the kernel in
 * batches, because one system call per element would be most of the cost of the first fill in a large cluster.
 */
import type { BpfMap } from "../../kernel/bpf/bpf.ts";
import type { FrontendAddress } from "../../model/frontend.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../net/protocol.ts";
import { nameOfKey } from "./adopted-frontends.ts";
import { destinationsOf, frontendValueFor, type Installed, isSame } from "./installed.ts";
import { frontendKey } from "./socket-balancer/maps.ts";
import { type SocketPlan, type Treatment, treatmentOf } from "./socket-plan.ts";

/** Batch size; the last service port may exceed it. */
const TOGETHER = 1024;

export class FrontendTable {
  readonly #family: IpFamily;
  #map: BpfMap;
  /** At these, the packet path decides. */
  #hostAddresses: ReadonlySet<IpAddress> = new Set();
  /** Pending elements. */
  #keys: Uint8Array[] = [];
  #values: Uint8Array[] = [];
  /** Owners of the pending elements. */
  #owners = new Set<string>();

  constructor(family: IpFamily, map: BpfMap) {
    this.#family = family;
    this.#map = map;
  }

  /** At Service addresses that are also the host's own, the rules decide. @returns the added and removed addresses. */
  setHostAddresses(addresses: ReadonlySet<IpAddress>): ReadonlySet<IpAddress> {
    const changed = addresses.symmetricDifference(this.#hostAddresses);
    this.#hostAddresses = addresses;
    return changed;
  }

  treatmentOf(treatments: SocketPlan["treatments"], frontend: FrontendAddress): Treatment {
    return treatmentOf(treatments, frontend, this.#hostAddresses);
  }

  /** The frontend's key in the map. */
  keyOf({ protocol }: ServicePort, { address, port }: FrontendAddress): Uint8Array {
    return frontendKey(this.#family, address, port, PROTOCOL_NUMBERS[protocol]);
  }

  /** Whether the map has this key. @throws BpfError */
  has(key: Uint8Array): boolean {
    return this.#map.lookup(key) !== undefined;
  }

  /** The kernel's current elements, by {@link nameOfKey}. @throws BpfError */
  read(): ReadonlyMap<string, Uint8Array> {
    return new Map(this.#map.entries().map(([key, value]) => [nameOfKey(key), value]));
  }

  /** Whether a service port's elements are exactly what they should be. */
  isWhole(installed: Installed, elementOf: (frontend: FrontendAddress, at: number) => Uint8Array | undefined): boolean {
    return destinationsOf(installed.port).every((frontend, at) =>
      isSameValue(elementOf(frontend, at), this.#valueOf(installed, frontend)),
    );
  }

  /** Writes those of a service port's frontends that differ from before. @throws BpfError */
  write(before: Installed, after: Installed): void {
    if (isSame(before, after)) return;
    for (const frontend of destinationsOf(after.port)) {
      const value = this.#valueOf(after, frontend);
      if (!before.isUncertain && isSameValue(this.#valueOf(before, frontend), value)) continue;
      if (value === undefined) this.#map.delete(this.keyOf(after.port, frontend));
      else this.#map.update(this.keyOf(after.port, frontend), value);
    }
  }

  /** Queues a service port that the maps do not have yet, so no client uses it. @param owner returned by a failed {@link flush}. */
  writeLater(owner: string, installed: Installed): void {
    for (const frontend of destinationsOf(installed.port)) {
      const value = this.#valueOf(installed, frontend);
      if (value === undefined) continue;
      this.#keys.push(this.keyOf(installed.port, frontend));
      this.#values.push(value);
      this.#owners.add(owner);
    }
  }

  /** The value of a frontend; undefined if there is none and the packet path decides. */
  #valueOf(installed: Installed, frontend: FrontendAddress): Uint8Array | undefined {
    const treatment = this.treatmentOf(installed.treatments, frontend);
    return treatment === "pass" ? undefined : frontendValueFor(treatment, installed);
  }

  /** The frontend must not be pending. @throws BpfError */
  delete(port: ServicePort, frontend: FrontendAddress): void {
    this.#map.delete(this.keyOf(port, frontend));
  }

  /** Whether elements are pending. @param owner of the elements. @default any owner */
  isWaiting(owner?: string): boolean {
    return owner === undefined ? this.#keys.length > 0 : this.#owners.has(owner);
  }

  /** Whether {@link flush} is due. */
  get isFull(): boolean {
    return this.#keys.length >= TOGETHER;
  }

  /** Writes pending elements. @returns undefined; after a failure, their owners, because any of them may be unwritten. */
  flush(): ReadonlySet<string> | undefined {
    const [keys, values, owners] = [this.#keys, this.#values, this.#owners];
    if (keys.length === 0) return undefined;
    [this.#keys, this.#values, this.#owners] = [[], [], new Set()];
    try {
      this.#map.updateAll(Buffer.concat(keys), Buffer.concat(values));
      return undefined;
    } catch {
      // The caller writes them one by one to find out which failed, and why.
      return owners;
    }
  }

  /** Switches to another map and copies the elements there, where pending ones will follow. @throws BpfError */
  moveTo(map: BpfMap): void {
    const elements = this.#map.entries();
    const bytes = (part: 0 | 1): Uint8Array => Buffer.concat(elements.map((element) => element[part]));
    map.updateAll(bytes(0), bytes(1));
    this.#map = map;
  }
}

const isSameValue = (one: Uint8Array | undefined, other: Uint8Array | undefined): boolean =>
  one === undefined || other === undefined ? one === other : Buffer.compare(one, other) === 0;
