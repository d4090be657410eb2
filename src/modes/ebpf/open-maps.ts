/** One family's maps, created or found, and their capacity. */
import type { Bpf, BpfMap } from "../../kernel/bpf/bpf.ts";
import { hasBpfCode } from "../../kernel/bpf/bpf-error.ts";
import { type IpAddress, type IpFamily, ipBytes, ipFromBytes } from "../../net/ip.ts";
import { powerOfTwo } from "./socket-balancer/free-list.ts";
import {
  type BalancerCapacity,
  type BalancerMaps,
  type CountingMaps,
  countingMaps,
  type LeadingMaps,
  leadingMaps,
  type MemoryMaps,
  memoryMaps,
} from "./socket-balancer/maps.ts";

/** Approximate number of objects. */
export interface ExpectedSize {
  readonly services: number;
  readonly endpoints: number;
}

const LEAST: BalancerCapacity = { frontends: 1024, slots: 4096, backends: 4096 };
/** How many times the expected number fits before an array must grow. */
const HEADROOM = { frontends: 2, endpoints: 1.5 };

/** Open maps under the names of their definitions. */
export type Opened<Definitions> = { readonly [Name in keyof Definitions]: BpfMap };

/** Open maps of an earlier process. */
export interface FoundMaps {
  readonly leading?: Opened<LeadingMaps> | undefined;
  readonly memory?: Opened<MemoryMaps> | undefined;
  readonly counting?: Opened<CountingMaps> | undefined;
}

/** Capacity for these, with headroom. */
export function capacityFor({ services, endpoints }: ExpectedSize, least = LEAST): BalancerCapacity {
  const forEndpoints = Math.max(least.slots, powerOfTwo(endpoints * HEADROOM.endpoints));
  return {
    frontends: Math.max(least.frontends, powerOfTwo(services * HEADROOM.frontends)),
    slots: forEndpoints,
    backends: forEndpoints,
  };
}

/** Creates all or none. */
function createMaps<Definitions extends object>(bpf: Bpf, definitions: Definitions): Opened<Definitions> {
  const made: [string, BpfMap][] = [];
  try {
    for (const [name, definition] of Object.entries(definitions)) made.push([name, bpf.createMap(definition)]);
  } catch (error) {
    for (const [, map] of made) map.close();
    throw error;
  }
  return Object.fromEntries(made) as Opened<Definitions>; // one map per name
}

export function closeAll(opened: object): void {
  for (const one of Object.values<{ close(): void }>({ ...opened })) one.close();
}

/** Capacities of maps that do not grow. */
export interface LastingRoom {
  /** Clients, sockets and peers that programs remember, of each kind. @default the default of socket programs */
  readonly remembered?: number;
  /** Connection counts, if enabled. @default 1 */
  readonly counts?: number;
}

/**
 * Combines found and new maps: frontends and slots are always new, and counts if found ones have another capacity.
 * @throws BpfError, after closing all maps, including the found ones.
 */
export function allMaps(
  bpf: Bpf,
  family: IpFamily,
  capacity: BalancerCapacity,
  { remembered, counts = 1 }: LastingRoom,
  { leading, memory, counting }: FoundMaps,
): Opened<BalancerMaps> {
  const ofRoom = counting?.counts.definition.maxEntries === counts ? counting : undefined;
  const { backends: definition, ...replaced } = leadingMaps(family, capacity);
  try {
    const made = createMaps(bpf, {
      ...replaced,
      ...(leading === undefined && { backends: definition }),
      ...(memory === undefined && memoryMaps(family, remembered)),
      ...(ofRoom === undefined && countingMaps(family, counts)),
    });
    if (ofRoom === undefined) closeAll(counting ?? {});
    return { ...leading, ...memory, ...ofRoom, ...made } as Opened<BalancerMaps>; // each one is found or created
  } catch (error) {
    for (const found of [leading, memory, counting]) closeAll(found ?? {});
    throw error;
  }
}

/** The arrays' memory. */
export const memoryOf = ({ slots, backends }: Opened<LeadingMaps>) => ({
  slots: slots.words(),
  backends: backends.words(),
});

/** Maps with twice the capacity, whose arrays have the same content. */
export function grown(bpf: Bpf, family: IpFamily, old: Opened<LeadingMaps>): Opened<LeadingMaps> {
  const doubled = (map: BpfMap): number => map.definition.maxEntries * 2;
  const { frontends, slots, backends } = old;
  const capacity = { frontends: doubled(frontends), slots: doubled(slots), backends: doubled(backends) };
  const maps = createMaps(bpf, leadingMaps(family, capacity));
  const [from, to] = [memoryOf(old), memoryOf(maps)];
  to.slots.set(from.slots);
  to.backends.set(from.backends);
  return maps;
}

/** An arbitrary value: only the key counts. */
const PRESENT = new Uint8Array(4);

/**
 * Makes a map hold exactly these addresses, as far as they fit; the next call retries those that do not.
 * @throws BpfError
 */
export function setAddresses(map: BpfMap, addresses: ReadonlySet<IpAddress>): void {
  const there = new Set(map.entries().map(([key]) => ipFromBytes(key)));
  for (const gone of there.difference(addresses)) map.delete(ipBytes(gone));
  try {
    for (const added of addresses.difference(there)) map.update(ipBytes(added), PRESENT);
  } catch (error) {
    if (!hasBpfCode(error, "E2BIG")) throw error;
  }
}
