/**
 * One family's maps: what they hold for each service port, and the diff to what they should hold. Service ports that
 * the kernel rejects are left out of them; the packet path serves those.
 */
import type { Bpf } from "../../kernel/bpf/bpf.ts";
import { hasBpfCode } from "../../kernel/bpf/bpf-error.ts";
import { encode, putNumber } from "../../kernel/bpf/layout.ts";
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
  setAddresses,
} from "./open-maps.ts";
import { ReleasedCounts } from "./released-counts.ts";
import { EndpointLists, NoRoom } from "./socket-balancer/endpoint-lists.ts";
import {
  type BalancerCapacity,
  type BalancerMaps,
  type CountingMaps,
  type LeadingMaps,
  type MemoryMaps,
  VALIDITY,
} from "./socket-balancer/maps.ts";
import { PASS_ALL, planSocket, type SocketPlan, type SocketPlanFacts } from "./socket-plan.ts";

interface SocketMapsOptions extends LastingRoom {
  readonly bpf: Bpf;
  readonly family: IpFamily;
  /** The maps were replaced by larger ones with the same content, so programs must be reloaded. Then the old ones are closed. */
  readonly onMoved: (maps: Opened<BalancerMaps>) => void;
  /** Monotonic. */
  readonly nowMs: () => number;
  /** The minimum capacity. @default for a small cluster */
  readonly least?: BalancerCapacity | undefined;
}

/** Values of {@link VALIDITY}. */
export type Validity = { readonly until: bigint } & Partial<Readonly<Record<keyof typeof VALIDITY.fields, bigint>>>;

export class SocketMaps {
  readonly #options: SocketMapsOptions;
  #set: Opened<LeadingMaps>;
  /** What programs remember and count, and the node's addresses: not replaced when the other maps grow. */
  readonly #memory: Opened<MemoryMaps & CountingMaps>;
  readonly #frontends: FrontendTable;
  readonly #lists: EndpointLists;
  /** What the maps hold, by service port. */
  readonly #installed = new Map<string, Installed>();
  /** Service ports that the kernel rejected, with the reason. */
  readonly #refused = new Map<string, string>();
  /** What an earlier process's frontends refer to, until {@link settle}. */
  #adopted: AdoptedFrontends | undefined;
  #hasLostUdp = false;
  readonly #released: ReleasedCounts;
  /** Redirected connected UDP sockets. */
  readonly connections: Connections;

  /**
   * @param found maps of an earlier process. Those that programs lead by are made again, with the same numbers of lists
   * and backends, of which the others speak. @throws BpfError if the kernel cannot hold them.
   */
  constructor(options: SocketMapsOptions, expected: ExpectedSize, found: FoundMaps = {}) {
    this.#options = options;
    const { bpf, family, nowMs, least } = options;
    const { frontends, slots, backends, ...memory } = allMaps(
      bpf,
      family,
      capacityFor(expected, least),
      options,
      found,
    );
    this.#set = { frontends, slots, backends };
    this.#memory = memory;
    this.#frontends = new FrontendTable(family, frontends);
    this.#released = new ReleasedCounts(family, memory.counts);
    this.connections = new Connections(family, () => ({ ...memory, backends: this.#set.backends }));
    const { frontends: former, slots: formerSlots } = found.leading ?? {};
    try {
      this.#lists = new EndpointLists(family, memoryOf(this.#set), nowMs);
      this.#lists.adopt(this.connections.highestId);
      if (former !== undefined) this.#adopted = new AdoptedFrontends(former.entries());
    } catch (error) {
      this.close();
      throw error;
    } finally {
      former?.close();
      formerSlots?.close();
    }
  }

  /** Whether an endpoint of a UDP service port has gone since the last call. */
  takeLostUdp(): boolean {
    const hasLost = this.#hasLostUdp;
    this.#hasLostUdp = false;
    return hasLost;
  }

  get open(): Opened<BalancerMaps> {
    return { ...this.#set, ...this.#memory };
  }

  /** What the programs record, and whose sockets they redirect. */
  get memory(): Opened<MemoryMaps> {
    return this.#memory;
  }

  /** Keys of service ports in the maps. */
  get keys(): readonly string[] {
    return [...this.#installed.keys()];
  }

  /** Keys of service ports that the kernel rejected, with the reason: the rules serve them until they are set again. */
  get refused(): ReadonlyMap<string, string> {
    return this.#refused;
  }

  /** Programs decide until then, and let all pass after it. @throws BpfError */
  renew(validity: Validity): void {
    this.#memory.validUntil.update(new Uint8Array(4), encode(VALIDITY, validity));
  }

  /** Says that this process has ended; programs stay in force as long as before. @throws BpfError */
  endBeat(): void {
    const { validUntil } = this.#memory;
    const value = validUntil.lookup(new Uint8Array(4));
    if (value !== undefined) putNumber(value, VALIDITY.fields.beat, 0n);
    if (value !== undefined) validUntil.update(new Uint8Array(4), value);
  }

  /** Programs serve node ports at exactly these addresses; where the map has no room, the rules do. @throws BpfError */
  setNodeAddresses(addresses: ReadonlySet<IpAddress>): void {
    setAddresses(this.#memory.nodeAddresses, addresses);
  }

  /** At Service addresses that are also the host's own, the rules decide. */
  setHostAddresses(addresses: ReadonlySet<IpAddress>): void {
    // Pending elements were built for the old addresses.
    this.#flush();
    const changed = this.#frontends.setHostAddresses(addresses);
    const isChanged = ({ address }: FrontendAddress) => address !== undefined && changed.has(address);
    for (const [key, installed] of changed.size === 0 ? [] : this.#installed) {
      if (destinationsOf(installed.port).some(isChanged)) this.#rewrite(key, installed);
    }
  }

  /**
   * Removes the frontends that a service port no longer declares or owns. Call it for all changed ports before the
   * first {@link set}: another one may now own such a frontend. @param port undefined if it is gone.
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
    // The remaining frontends are still its own; their values are rewritten.
    this.#installed.set(key, before.uncertain({ port }));
  }

  /** Updates the maps to a service port and its endpoints; a new port is written with {@link settle} at the latest. */
  set(key: string, port: ServicePort, endpoints: readonly Endpoint[], facts: SocketPlanFacts): void {
    const plan = planSocket(port, endpoints, facts);
    if (this.#frontends.isWaiting(key)) this.#flush();
    let before = this.#installed.get(key);
    if (before !== undefined && before.port !== port) {
      this.release(key, port);
      before = this.#installed.get(key);
    }
    if (before === undefined && plan === PASS_ALL) return;
    const id = before === undefined ? this.#claim(port, plan) : undefined;
    const isTaken = this.#insist(key, port, (isRepeated) =>
      this.#change(key, port, plan, isRepeated ? this.#installed.get(key) : before, id),
    );
    if (isTaken) this.#refused.delete(key);
    if (this.#frontends.isFull) this.#flush();
  }

  /** Retries with larger maps while capacity is short. @returns false if the kernel rejects the port, which is then left out. */
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
      // If this fails, programs use maps that are no longer written: the whole socket path ends.
      this.#moveTo(longer);
    }
  }

  /** Whether an earlier process's lists wait to be claimed: every service port must be {@link set}, and then {@link settle} called. */
  get isUnsettled(): boolean {
    return this.#adopted !== undefined;
  }

  /**
   * Call when all service ports are set: writes pending elements, and gives up lists of an earlier process that no service port claimed.
   * @throws BpfError
   */
  settle(): void {
    this.#flush();
    for (const key of this.#adopted?.left ?? []) this.#released.note(key);
    this.#released.forget((key) => this.#frontends.has(key));
    if (this.#adopted === undefined) return;
    this.#lists.forgetFormer();
    this.#lists.settle();
    this.#hasLostUdp = true;
    this.#adopted = undefined;
  }

  /**
   * Compares the frontends in the kernel with what was written. @returns the number of service ports that another
   * program damaged; the next {@link set} rewrites them. @throws BpfError
   */
  findDamage(): number {
    if (this.#frontends.isWaiting() || this.isUnsettled) return 0;
    const there = this.#frontends.read();
    let damaged = 0;
    for (const [key, installed] of this.#installed) {
      const { port, isUncertain } = installed;
      // The current sync rewrites it anyway.
      if (isUncertain) continue;
      const elementOf = (frontend: FrontendAddress) => there.get(nameOfKey(this.#frontends.keyOf(port, frontend)));
      if (this.#frontends.isWhole(installed, elementOf)) continue;
      this.#installed.set(key, installed.uncertain());
      damaged++;
    }
    return damaged;
  }

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

  /** What the kernel holds: one line per frontend, independent of the order of changes. */
  state(): readonly string[] {
    return this.keys.flatMap((key) => this.linesOf(key)).sort();
  }

  /** The same of one service port, in the order of its frontends; empty if the maps have none of them. */
  linesOf(key: string): readonly string[] {
    const installed = this.#installed.get(key);
    if (installed === undefined) return [];
    const { port, treatments } = installed;
    return destinationsOf(port).flatMap((frontend) => {
      if (!this.#frontends.has(this.#frontends.keyOf(port, frontend))) return [];
      const treatment = this.#frontends.treatmentOf(treatments, frontend);
      const list = listFor(treatment, installed);
      const endpoints = list === undefined ? [] : this.#lists.read(list).map((one) => `${one.ip} ${one.port}`);
      return `${keyText(port, frontend)} ${treatment} ${endpoints.toSorted().join(", ")}`;
    });
  }

  close(): void {
    closeAll(this.#set);
    closeAll(this.#memory);
  }

  /** @returns the id of its list in an earlier process. */
  #claim(port: ServicePort, { treatments }: SocketPlan): number | undefined {
    return this.#adopted?.claim(
      destinationsOf(port).map((frontend) => ({
        name: nameOfKey(this.#frontends.keyOf(port, frontend)),
        to: LISTS[this.#frontends.treatmentOf(treatments, frontend)],
      })),
    );
  }

  /**
   * Remembers the state after a failure, so that it can be retried or undone.
   * @param known undefined if the maps have nothing. @param id of the Cluster policy's list, if that is new. @default a new one
   */
  #change(key: string, port: ServicePort, plan: SocketPlan, known: Installed | undefined, id?: number): void {
    const { treatments } = plan;
    const before = known ?? new Installed({ port, treatments, isUncertain: true });
    let { cluster, local } = before;
    let after: Installed;
    try {
      cluster = this.#lists.write(cluster, plan.cluster, plan.serving, pairOf(local?.id) ?? id);
      local = this.#lists.write(local, plan.local, plan.serving, pairOf(cluster?.id ?? id));
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

  /** Also frees what a failed attempt replaced. */
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

  /** Rewrites the values of all its frontends. */
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

  /** @param longer has the arrays' content. @throws BpfError: programs may then use either set of maps. */
  #moveTo(longer: Opened<LeadingMaps>): void {
    const old = this.#set;
    this.#set = longer;
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

/** The ids of a service port's two lists differ in the lowest bit. */
const pairOf = (id: number | undefined): number | undefined => (id === undefined ? undefined : id ^ 1);
