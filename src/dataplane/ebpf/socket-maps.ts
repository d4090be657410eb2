/**
 * The maps of one family: what they hold of each service port, and the difference to what they should hold. A service port that the
 * kernel does not take is left out of them, and the packet path leads to it.
 */
import type { Bpf } from "../../kernel/bpf/bpf.ts";
import { hasBpfCode } from "../../kernel/bpf/bpf-error.ts";
import { EndpointLists, NoRoom } from "../../kernel/bpf/socket-balancer/endpoint-lists.ts";
import type { BalancerCapacity, CountingMaps, LeadingMaps, MemoryMaps } from "../../kernel/bpf/socket-balancer/maps.ts";
import { messageOf } from "../../logging/message-of.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import type { FrontendAddress } from "../../model/frontend.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import { AdoptedFrontends, nameOfKey } from "./adopted-frontends.ts";
import { Connections } from "./connections.ts";
import { FrontendTable } from "./frontend-table.ts";
import { destinationsOf, Installed, isSame, LISTS, listFor } from "./installed.ts";
import {
  allMaps,
  capacityFor,
  closeAll,
  type ExpectedSize,
  type FoundMaps,
  grown,
  type LastingRoom,
  memoryOf,
  type Opened,
  type OpenMaps,
  setAddresses,
} from "./open-maps.ts";
import { ReleasedCounts } from "./released-counts.ts";
import { PASS_ALL, planSocket, type SocketPlan, type SocketPlanFacts } from "./socket-plan.ts";

interface SocketMapsOptions extends LastingRoom {
  readonly bpf: Bpf;
  readonly family: IpFamily;
  /** The maps are others now, with the same content and more room: programs must be made again. The old ones are closed next. */
  readonly onMoved: (maps: OpenMaps) => void;
  /** Monotonic. */
  readonly nowMs: () => number;
  /** The least room. @default for a small cluster */
  readonly least?: BalancerCapacity | undefined;
}

export class SocketMaps {
  readonly #options: SocketMapsOptions;
  #set: Opened<LeadingMaps>;
  /** What programs remember and count, and the node's addresses: they stay when the others grow. */
  readonly #memory: Opened<MemoryMaps & CountingMaps>;
  #areFound: boolean;
  readonly #frontends: FrontendTable;
  readonly #lists: EndpointLists;
  /** What the maps hold, by service port. */
  readonly #installed = new Map<string, Installed>();
  /** Service ports that the kernel would not take, with the reason. */
  readonly #refused = new Map<string, string>();
  /** What the maps have had from the start, until {@link settle}. */
  #adopted: AdoptedFrontends | undefined;
  #hasLostUdp = false;
  readonly #released: ReleasedCounts;
  /** Connected UDP sockets that were led. */
  readonly connections: Connections;

  /**
   * @param found maps of an earlier process, which are changed to what is wanted; the others are made.
   * @throws BpfError when the kernel cannot hold them.
   */
  constructor(options: SocketMapsOptions, expected: ExpectedSize, found: FoundMaps = {}) {
    this.#options = options;
    const { bpf, family, nowMs, least } = options;
    const all = allMaps(bpf, family, capacityFor(expected, least), options, found);
    const { frontends, slots, backends, ...memory } = all;
    this.#set = { frontends, slots, backends };
    this.#memory = memory;
    this.#areFound =
      found.leading !== undefined && found.memory !== undefined && found.counting?.counts === this.#memory.counts;
    this.#frontends = new FrontendTable(family, this.#set.frontends);
    this.#released = new ReleasedCounts(family, this.#memory.counts);
    this.connections = new Connections(family, () => ({ ...this.#memory, backends: this.#set.backends }));
    try {
      // A socket that was led in other maps must not be taken for one that these lead.
      const firstId = found.leading === undefined && found.memory !== undefined ? this.connections.highestId + 1 : 1;
      this.#lists = new EndpointLists(family, memoryOf(this.#set), nowMs, firstId);
      if (found.leading !== undefined) {
        this.#adopted = new AdoptedFrontends(this.#set.frontends.entries(), (lists) => this.#lists.adopt(lists));
      }
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** Whether an endpoint of a UDP service port has gone since this was asked last. */
  takeLostUdp(): boolean {
    const hasLost = this.#hasLostUdp;
    this.#hasLostUdp = false;
    return hasLost;
  }

  get open(): OpenMaps {
    return { maps: { ...this.#set, ...this.#memory }, areFound: this.#areFound };
  }

  /** Where programs note which sockets they have led. */
  get peers(): Pick<Opened<MemoryMaps>, "tcpPeers" | "flows"> {
    return this.#memory;
  }

  /** Keys of service ports that have something here. */
  get keys(): readonly string[] {
    return [...this.#installed.keys()];
  }

  /** Keys of service ports that the kernel did not take, with the reason: they pass, until they are set again. */
  get refused(): ReadonlyMap<string, string> {
    return this.#refused;
  }

  /** Programs decide until then, and let all pass after it. @param untilNs of CLOCK_MONOTONIC. @throws BpfError */
  renew(untilNs: bigint): void {
    this.#memory.validUntil.update(new Uint8Array(4), new Uint8Array(BigUint64Array.of(untilNs).buffer));
  }

  /** Node ports are led at these addresses, and no others; at those for which there is no room, the rules lead. @throws BpfError */
  setNodeAddresses(addresses: ReadonlySet<IpAddress>): void {
    setAddresses(this.#memory.nodeAddresses, addresses);
  }

  /** The rules decide at service addresses that are the host's own. */
  setHostAddresses(addresses: ReadonlySet<IpAddress>): void {
    // What waits says what held before.
    this.#flush();
    const changed = this.#frontends.setHostAddresses(addresses);
    const isChanged = ({ address }: FrontendAddress) => address !== undefined && changed.has(address);
    for (const [key, installed] of changed.size === 0 ? [] : this.#installed) {
      if (destinationsOf(installed.port).some(isChanged)) this.#rewrite(key, installed);
    }
  }

  /**
   * Takes out the frontends that a service port does not declare or own any more. For all that change together, this comes before
   * the first {@link set}: another of them may own such a frontend now. @param port undefined when it is gone.
   */
  release(key: string, port: ServicePort | undefined): void {
    const before = this.#installed.get(key);
    if (port === undefined) {
      if (before !== undefined) this.#noteReleased(before.port, destinationsOf(before.port));
      this.remove(key);
      return;
    }
    if (before === undefined || before.port === port) return;
    const owned = new Set(destinationsOf(port).map((frontend) => keyText(port, frontend)));
    const lost = destinationsOf(before.port).filter((frontend) => !owned.has(keyText(before.port, frontend)));
    this.#noteReleased(before.port, lost);
    this.#delete(before.port, lost);
    // Of those that are left it is known that they are its own; what they say is written again.
    this.#installed.set(key, before.uncertain({ port }));
  }

  /** Brings the maps to what a service port and its endpoints ask for; those of a new one at the latest with {@link settle}. */
  set(key: string, port: ServicePort, endpoints: readonly Endpoint[], facts: SocketPlanFacts): void {
    const plan = planSocket(port, endpoints, facts);
    if (this.#frontends.isWaiting(key)) this.#flush();
    let before = this.#installed.get(key);
    if (before !== undefined && before.port !== port) {
      this.release(key, port);
      before = this.#installed.get(key);
    }
    if (before === undefined) {
      if (plan === PASS_ALL) return;
      if (this.#adopted !== undefined) before = this.#adopt(this.#adopted, key, port, plan);
    }
    const isTaken = this.#insist(key, port, (isRepeated) =>
      this.#change(key, port, plan, isRepeated ? this.#installed.get(key) : before),
    );
    if (isTaken) this.#refused.delete(key);
    if (this.#frontends.isFull) this.#flush();
  }

  /** Does it again with more room while there is too little. @returns false: the kernel does not take it, and it is left out. */
  #insist(key: string, port: ServicePort, work: (isRepeated: boolean) => void): boolean {
    const { bpf, family } = this.#options;
    for (let isRepeated = false; ; isRepeated = true) {
      let longer: Opened<LeadingMaps>;
      try {
        try {
          work(isRepeated);
          return true;
        } catch (error) {
          if (!(error instanceof NoRoom || hasBpfCode(error, "E2BIG"))) throw error;
          longer = grown(bpf, family, this.#set);
        }
      } catch (error) {
        this.#refuse(key, port, error);
        return false;
      }
      // What fails here leaves programs over maps that are not written any more: it is the end of all of them.
      this.#moveTo(longer);
    }
  }

  /** Whether every service port must be {@link set}, and then {@link settle} called: the maps have something from before. */
  get isUnsettled(): boolean {
    return this.#adopted !== undefined;
  }

  /**
   * All service ports are set: what has waited is written, and what the maps have had from before and none of them wants goes.
   * @throws BpfError
   */
  settle(): void {
    this.#flush();
    const { keys = [], lists = [] } = this.#adopted?.left ?? {};
    for (const key of keys) {
      this.#set.frontends.delete(key);
      this.#released.note(key);
    }
    this.#released.forget((key) => this.#frontends.has(key));
    if (this.#adopted === undefined) return;
    for (const list of lists) this.#lists.write(list, []);
    this.#lists.settle();
    this.#hasLostUdp = true;
    this.#adopted = undefined;
  }

  /**
   * Compares the frontends in the kernel with what was written there. @returns number of service ports of which another program has
   * taken some away or changed them: they are written again when they are {@link set}. @throws BpfError
   */
  findDamage(): number {
    if (this.#frontends.isWaiting() || this.isUnsettled) return 0;
    const there = this.#frontends.read();
    let damaged = 0;
    for (const [key, installed] of this.#installed) {
      const { port, isUncertain } = installed;
      // A sync has begun with it, and writes it again in any case.
      if (isUncertain) continue;
      const elementOf = (frontend: FrontendAddress) => there.get(nameOfKey(this.#frontends.keyOf(port, frontend)));
      if (this.#frontends.isWhole(installed, elementOf)) continue;
      this.#installed.set(key, installed.uncertain());
      damaged++;
    }
    return damaged;
  }

  /** Takes a service port out. */
  remove(key: string): void {
    this.#refused.delete(key);
    const before = this.#installed.get(key);
    if (before === undefined) return;
    this.#delete(before.port, destinationsOf(before.port));
    this.#lists.write(before.cluster, []);
    this.#lists.write(before.local, []);
    this.#settle(before.port);
    this.#installed.delete(key);
  }

  /** What the kernel holds: a line for each frontend, equal for equal service ports in any order of time. */
  state(): readonly string[] {
    const lines: string[] = [];
    for (const [, installed] of this.#installed) {
      const { port, treatments } = installed;
      for (const frontend of destinationsOf(port)) {
        if (!this.#frontends.has(this.#frontends.keyOf(port, frontend))) continue;
        const treatment = this.#frontends.treatmentOf(treatments, frontend);
        const list = listFor(treatment, installed);
        const endpoints = list === undefined ? [] : this.#lists.read(list).map((one) => `${one.ip} ${one.port}`);
        lines.push(`${keyText(port, frontend)} ${treatment} ${endpoints.toSorted().join(", ")}`);
      }
    }
    return lines.sort();
  }

  close(): void {
    closeAll(this.#set);
    closeAll(this.#memory);
  }

  /** Takes what its frontends have from before for its own; where that is not all as it should be, they are written again. */
  #adopt(adopted: AdoptedFrontends, key: string, port: ServicePort, { treatments }: SocketPlan): Installed {
    const { values, cluster, local } = adopted.claim(
      destinationsOf(port).map((frontend) => ({
        name: nameOfKey(this.#frontends.keyOf(port, frontend)),
        to: LISTS[this.#frontends.treatmentOf(treatments, frontend)],
      })),
    );
    const installed = new Installed({ port, treatments, cluster, local });
    const found = this.#frontends.isWhole(installed, (_, at) => values[at]) ? installed : installed.uncertain();
    this.#installed.set(key, found);
    return found;
  }

  /** What is done when something fails is remembered, so that it can be tried again, or taken back. @param known undefined: nothing. */
  #change(key: string, port: ServicePort, plan: SocketPlan, known: Installed | undefined): void {
    const { treatments } = plan;
    const before = known ?? new Installed({ port, treatments, isUncertain: true });
    let { cluster, local } = before;
    let after: Installed;
    try {
      cluster = this.#lists.write(cluster, plan.cluster, plan.serving, local);
      local = this.#lists.write(local, plan.local, plan.serving, cluster);
      after = new Installed({ port, treatments, cluster, local });
      if (known === undefined) this.#frontends.writeLater(key, after);
      else this.#frontends.write(before, after);
    } catch (error) {
      this.#installed.set(key, before.uncertain({ cluster, local }));
      throw error;
    }
    this.#settle(port);
    if (!isSame(before, after)) this.#installed.set(key, after);
  }

  /** What an attempt that failed has replaced is given back here as well. */
  #settle({ protocol }: ServicePort): void {
    const hasGone = this.#lists.settle();
    if (hasGone && protocol === "UDP") this.#hasLostUdp = true;
  }

  #flush(): void {
    const owners = this.#frontends.flush();
    for (const key of owners ?? []) {
      const installed = this.#installed.get(key);
      if (installed !== undefined) this.#rewrite(key, installed);
    }
  }

  /** What its frontends say is written again, all of it. */
  #rewrite(key: string, installed: Installed): void {
    this.#insist(key, installed.port, () => this.#frontends.write(installed.uncertain(), installed));
  }

  #refuse(key: string, port: ServicePort, error: unknown): void {
    this.#delete(port, destinationsOf(port));
    this.remove(key);
    this.#refused.set(key, messageOf(error));
  }

  #noteReleased(port: ServicePort, frontends: readonly FrontendAddress[]): void {
    for (const frontend of frontends) this.#released.note(this.#frontends.keyOf(port, frontend));
  }

  #delete(port: ServicePort, frontends: readonly FrontendAddress[]): void {
    if (this.#frontends.isWaiting() && frontends.length > 0) this.#flush();
    for (const frontend of frontends) this.#frontends.delete(port, frontend);
  }

  /** @param longer with what the arrays have. @throws BpfError: then it is not known which of them programs read. */
  #moveTo(longer: Opened<LeadingMaps>): void {
    const old = this.#set;
    this.#set = longer;
    this.#areFound = false;
    try {
      this.#frontends.moveTo(longer.frontends);
      this.#lists.moveTo(memoryOf(longer));
      this.#options.onMoved(this.open);
    } finally {
      closeAll(old);
    }
  }
}

const keyText = (port: ServicePort, { address, port: number }: FrontendAddress): string =>
  `${port.protocol} ${address ?? "*"} ${number}`;
