/**
 * The maps of one family: what they hold of each service port, and the difference to what they should hold. A service port that the
 * kernel does not take is left out of them, and the packet path leads to it.
 */
import type { Bpf, BpfMap } from "../../kernel/bpf/bpf.ts";
import { hasBpfCode } from "../../kernel/bpf/bpf-error.ts";
import { type EndpointList, EndpointLists, NoRoom } from "../../kernel/bpf/socket-balancer/endpoint-lists.ts";
import { powerOfTwo } from "../../kernel/bpf/socket-balancer/free-list.ts";
import {
  type BalancerCapacity,
  type BalancerMaps,
  balancerMaps,
  frontendKeyBytes,
  frontendValueBytes,
  NO_ENDPOINTS,
} from "../../kernel/bpf/socket-balancer/maps.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import type { FrontendKind } from "../../model/frontend.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../net/protocol.ts";
import {
  type AddressedFrontend,
  addressedFrontends,
  planSocket,
  type SocketPlan,
  type SocketPlanFacts,
  type Treatment,
} from "./socket-plan.ts";

/** What the maps hold of a service port. */
interface Installed {
  readonly port: ServicePort;
  readonly treatments: SocketPlan["treatments"];
  readonly cluster: EndpointList | undefined;
  readonly local: EndpointList | undefined;
  /** Writing its frontends was broken off: they may lead to these lists, or to older ones. */
  readonly isUncertain?: boolean;
}

/** The maps that programs read. */
export interface OpenMaps {
  readonly definitions: BalancerMaps;
  readonly maps: readonly BpfMap[];
}

export interface SocketMapsOptions {
  readonly bpf: Bpf;
  readonly family: IpFamily;
  /** The maps are others now, with the same content and more room: programs must be made again. The old ones are closed next. */
  readonly onMoved: (maps: OpenMaps) => void;
  /** Monotonic. */
  readonly nowMs: () => number;
}

/** How many there will be about. */
export interface ExpectedSize {
  readonly services: number;
  readonly endpoints: number;
}

const LEAST: BalancerCapacity = { frontends: 1024, slots: 4096, backends: 4096 };
/** Before an array has to grow. */
const HEADROOM = { frontends: 2, endpoints: 1.5 };

interface MapSet {
  readonly definitions: BalancerMaps;
  readonly frontends: BpfMap;
  readonly slots: BpfMap;
  readonly backends: BpfMap;
}

export class SocketMaps {
  readonly #options: SocketMapsOptions;
  #set: MapSet;
  readonly #lists: EndpointLists;
  readonly #installed = new Map<string, Installed>();
  /** Service ports that the kernel would not take, with the reason. */
  readonly #refused = new Map<string, string>();
  #hostAddresses: ReadonlySet<IpAddress> = new Set();

  /** @throws BpfError when the kernel cannot hold them. */
  constructor(options: SocketMapsOptions, { services, endpoints }: ExpectedSize) {
    this.#options = options;
    const { bpf, family, nowMs } = options;
    const forEndpoints = Math.max(LEAST.slots, powerOfTwo(endpoints * HEADROOM.endpoints));
    this.#set = createMaps(bpf, family, {
      frontends: Math.max(LEAST.frontends, powerOfTwo(services * HEADROOM.frontends)),
      slots: forEndpoints,
      backends: forEndpoints,
    });
    this.#lists = new EndpointLists(family, memoryOf(this.#set), nowMs);
  }

  get open(): OpenMaps {
    const { definitions, frontends, slots, backends } = this.#set;
    return { definitions, maps: [frontends, slots, backends] };
  }

  /** Keys of service ports that have something here. */
  get keys(): readonly string[] {
    return [...this.#installed.keys()];
  }

  /** Keys of service ports that the kernel did not take, with the reason: they pass, until they are set again. */
  get refused(): ReadonlyMap<string, string> {
    return this.#refused;
  }

  /** Service addresses that are the host's own pass. @returns keys of the service ports concerned, which must be set again. */
  setHostAddresses(addresses: ReadonlySet<IpAddress>): readonly string[] {
    const before = this.#hostAddresses;
    const isChanged = ({ address }: AddressedFrontend) => addresses.has(address) !== before.has(address);
    const concerned: string[] = [];
    for (const [key, installed] of this.#installed) {
      const frontends = addressedFrontends(installed.port).filter(isChanged);
      if (frontends.length === 0) continue;
      this.#delete(installed.port, frontends);
      this.#installed.set(key, { ...installed, isUncertain: true });
      concerned.push(key);
    }
    this.#hostAddresses = addresses;
    return concerned;
  }

  /**
   * Takes out the frontends that a service port does not declare or own any more. For all that change together, this comes before
   * the first {@link set}: another of them may own such a frontend now. @param port undefined when it is gone.
   */
  release(key: string, port: ServicePort | undefined): void {
    const before = this.#installed.get(key);
    if (before === undefined || before.port === port) return;
    if (port === undefined) {
      this.remove(key);
      return;
    }
    const owned = new Set(addressedFrontends(port).map((frontend) => keyText(port, frontend)));
    const lost = addressedFrontends(before.port).filter((frontend) => !owned.has(keyText(before.port, frontend)));
    this.#delete(before.port, lost);
    // Of those that are left it is known that they are its own; what they say is written again.
    this.#installed.set(key, { ...before, port, isUncertain: true });
  }

  /** Brings the maps to what a service port and its endpoints ask for. */
  set(key: string, port: ServicePort, endpoints: readonly Endpoint[], facts: SocketPlanFacts): void {
    const plan = planSocket(port, endpoints, facts);
    this.release(key, port);
    if (!this.#installed.has(key) && !hasFrontends(plan)) return;
    for (;;) {
      try {
        this.#change(key, port, plan);
        this.#refused.delete(key);
        return;
      } catch (error) {
        if (!(error instanceof NoRoom || hasBpfCode(error, "E2BIG"))) {
          this.#refuse(key, port, error);
          return;
        }
      }
      try {
        this.#grow();
      } catch (error) {
        this.#refuse(key, port, error);
        return;
      }
    }
  }

  /** Takes a service port out. */
  remove(key: string): void {
    this.#refused.delete(key);
    const before = this.#installed.get(key);
    if (before === undefined) return;
    this.#delete(before.port, addressedFrontends(before.port));
    this.#lists.write(before.cluster, []);
    this.#lists.write(before.local, []);
    this.#lists.settle();
    this.#installed.delete(key);
  }

  /** What the kernel holds: a line for each frontend, equal for equal service ports in any order of time. */
  state(): readonly string[] {
    const lines: string[] = [];
    for (const installed of this.#installed.values()) {
      const { port, treatments } = installed;
      for (const frontend of addressedFrontends(port)) {
        if (this.#set.frontends.lookup(keyOf(port, frontend)) === undefined) continue;
        const treatment = treatments[frontend.kind];
        const list = listFor(treatment, installed);
        const endpoints = list === undefined ? [] : this.#lists.read(list).map((one) => `${one.ip} ${one.port}`);
        lines.push(`${keyText(port, frontend)} ${treatment} ${endpoints.toSorted().join(", ")}`);
      }
    }
    return lines.sort();
  }

  close(): void {
    for (const map of this.open.maps) map.close();
  }

  /** What is done when something fails is remembered, so that it can be tried again, or taken back. */
  #change(key: string, port: ServicePort, plan: SocketPlan): void {
    const before: Installed = this.#installed.get(key) ?? { port, treatments: plan.treatments, ...NO_LISTS };
    let { cluster, local } = before;
    try {
      cluster = this.#lists.write(cluster, plan.cluster);
      local = this.#lists.write(local, plan.local);
      this.#writeFrontends(before, { port, treatments: plan.treatments, cluster, local });
    } catch (error) {
      this.#installed.set(key, { ...before, cluster, local, isUncertain: true });
      throw error;
    }
    this.#lists.settle();
    if (hasFrontends(plan)) this.#installed.set(key, { port, treatments: plan.treatments, cluster, local });
    else this.#installed.delete(key);
  }

  #writeFrontends(before: Installed, after: Installed): void {
    const { port } = after;
    const isKnown = before.isUncertain !== true;
    for (const frontend of addressedFrontends(port)) {
      const { kind, address } = frontend;
      const treatment = this.#hostAddresses.has(address) ? "pass" : after.treatments[kind];
      if (isKnown && isSameValue(before, after, kind)) continue;
      if (treatment === "pass") this.#set.frontends.delete(keyOf(port, frontend));
      else this.#set.frontends.update(keyOf(port, frontend), frontendValue(treatment, after));
    }
  }

  #refuse(key: string, port: ServicePort, error: unknown): void {
    this.#delete(port, addressedFrontends(port));
    this.remove(key);
    this.#refused.set(key, error instanceof Error ? error.message : String(error));
  }

  #delete(port: ServicePort, frontends: readonly AddressedFrontend[]): void {
    for (const frontend of frontends) this.#set.frontends.delete(keyOf(port, frontend));
  }

  /** Twice the room, with what is there. */
  #grow(): void {
    const { bpf, family, onMoved } = this.#options;
    const old = this.#set;
    const [frontends, slots, backends] = [old.frontends, old.slots, old.backends];
    const doubled = (map: BpfMap): number => map.definition.maxEntries * 2;
    this.#set = createMaps(bpf, family, {
      frontends: doubled(frontends),
      slots: doubled(slots),
      backends: doubled(backends),
    });
    const [from, to] = [memoryOf(old), memoryOf(this.#set)];
    to.slots.set(from.slots);
    to.backends.set(from.backends);
    this.#set.frontends.updateAll(frontends.entries());
    this.#lists.moveTo(to);
    onMoved(this.open);
    for (const map of [frontends, slots, backends]) map.close();
  }
}

const NO_LISTS = { cluster: undefined, local: undefined, isUncertain: true };

function createMaps(bpf: Bpf, family: IpFamily, capacity: BalancerCapacity): MapSet {
  const definitions = balancerMaps(family, capacity);
  const made: BpfMap[] = [];
  const create = (definition: BalancerMaps[keyof BalancerMaps]): BpfMap => {
    const map = bpf.createMap(definition);
    made.push(map);
    return map;
  };
  try {
    const { frontends, slots, backends } = definitions;
    return { definitions, frontends: create(frontends), slots: create(slots), backends: create(backends) };
  } catch (error) {
    for (const map of made) map.close();
    throw error;
  }
}

const memoryOf = ({ slots, backends }: MapSet) => ({ slots: slots.words(), backends: backends.words() });

const hasFrontends = ({ treatments }: SocketPlan): boolean => Object.values(treatments).some((one) => one !== "pass");

const keyOf = (port: ServicePort, { address, port: number }: AddressedFrontend): Uint8Array =>
  frontendKeyBytes(address, number, PROTOCOL_NUMBERS[port.protocol]);

const keyText = (port: ServicePort, { address, port: number }: AddressedFrontend): string =>
  `${port.protocol} ${address} ${number}`;

function listFor(treatment: Treatment, { cluster, local }: Installed): EndpointList | undefined {
  return treatment === "cluster" ? cluster : treatment === "local" ? local : undefined;
}

function isSameValue(before: Installed, after: Installed, kind: FrontendKind): boolean {
  const treatment = after.treatments[kind];
  if (before.treatments[kind] !== treatment) return false;
  const [one, two] = [listFor(treatment, before), listFor(treatment, after)];
  return one?.base === two?.base && one?.count === two?.count && one?.id === two?.id;
}

function frontendValue(treatment: Treatment, installed: Installed): Uint8Array {
  const { base = 0, count = 0, id = 0 } = listFor(treatment, installed) ?? {};
  const flags = treatment === "refuse" ? NO_ENDPOINTS : 0;
  return frontendValueBytes({ base, count, id, flags, affinitySeconds: 0 });
}
