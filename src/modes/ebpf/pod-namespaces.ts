/**
 * Which network namespaces are pods of this node: besides the host's, only their sockets are redirected. Other containers, such as the
 * nodes of a nested cluster, may mean another cluster's Services by the same addresses (docs/ebpf.md, "Whose sockets").
 */
import type { Clock, Timer } from "../../async/clock.ts";
import { Mutex } from "../../async/mutex.ts";
import type { BpfMap } from "../../kernel/bpf/bpf.ts";
import { hasBpfCode } from "../../kernel/bpf/bpf-error.ts";
import { takeWide, u64 } from "../../kernel/bpf/layout.ts";
import type { LinkedDevice, OtherNamespace } from "../../kernel/linked-namespaces.ts";
import { Listeners } from "../../kernel/netlink/subscription.ts";
import { counted } from "../../logging/counted.ts";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import type { LocalTrafficDetector } from "../../model/local-traffic-detector.ts";
import { type Cidr, cidrContains, type IpAddress, type IpFamily } from "../../net/ip.ts";
import { UDP_FLOW } from "./socket-balancer/maps.ts";
import { SocketNews } from "./socket-news.ts";

/** What the kernel says about network namespaces. */
export interface NamespaceReader {
  /** Why none can be entered. */
  readonly obstacle: () => string | undefined;
  readonly others: () => Promise<readonly OtherNamespace[]>;
  /** The index of the device by which each address is reached. */
  readonly routes: (addresses: readonly IpAddress[]) => Promise<ReadonlyMap<IpAddress, number>>;
  /** Reports changes of devices and addresses, here and in linked network namespaces. */
  readonly watch: (onChange: () => void, signal: AbortSignal) => Promise<void>;
  /** Ids of the cgroups of kubelet's pods. */
  readonly podCgroups: () => ReadonlySet<bigint>;
}

interface PodNamespacesOptions extends NamespaceReader {
  /** The cluster's and the node's pod networks, as far as they are known. */
  readonly networks: readonly Cidr[];
  /** If it is by interface, the node's device decides instead of addresses and routes. */
  readonly detector: LocalTrafficDetector;
  /** No pod is led. */
  readonly isForHostOnly: boolean;
  readonly clock: Clock;
  readonly log: Logger;
}

/** One family's programs and endpoints. */
export interface NamespaceUser {
  readonly maps: () => NamespaceMaps | undefined;
  readonly family: IpFamily;
  readonly endpoints: () => ReadonlyMap<string, readonly Endpoint[]>;
}

export interface NamespaceMaps {
  readonly flows: BpfMap;
  readonly ledNamespaces: BpfMap;
  readonly otherNamespaces: BpfMap;
}

/** Interval of questions about network namespaces that programs reported. */
const LOOK_EVERY_MS = 1000;
/** Changes come in bursts: a look waits for their end, and then for nine times what the last one took. */
const [SETTLE_MS, REST, LONGEST_REST_MS] = [50, 9, 500];
/** While reports lead to nothing, as many looks are left out. */
const MOST_SKIPPED = 15;
/** How many looks at reports there are for one at what costs more. */
const LOOKS_FOR_OTHERS = 10;

const [NO_DEVICE, OTHER_DEVICE, NO_POD, NOT_KUBELET] = [
  "this node has no device to them: by their own devices such as SR-IOV they reach no Service",
  "the route to its address leaves by another device",
  "it has no address of a pod",
  "it is neither an endpoint nor in kubelet's cgroup, and no pod network is known",
] as const;

export class PodNamespaces {
  readonly #options: PodNamespacesOptions;
  readonly #news: SocketNews;
  readonly #users = new Set<NamespaceUser>();
  readonly #turns = new Mutex();
  readonly #listeners = new Listeners<object>(() => this.#stop.abort());
  #stop = new AbortController();
  #led: ReadonlySet<bigint> = new Set();
  /** Reported at the last look. */
  #reported: ReadonlySet<bigint> = new Set();
  /** How many of the reported are not led, by reason. */
  #reasons: ReadonlyMap<string, number> = new Map();
  /** Addresses of linked devices that would be a pod's if they were an endpoint. */
  #candidates: ReadonlySet<IpAddress> = new Set();
  /** A linked device has an address of a pod whose route leaves by another device. */
  #isMisrouted = false;
  #problem: string | undefined;
  #timer: Timer | undefined;
  #notBeforeMs = 0;
  #fruitless = 0;

  constructor(options: PodNamespacesOptions) {
    this.#options = options;
    this.#news = new SocketNews(options.log);
  }

  add(user: NamespaceUser): void {
    this.#users.add(user);
  }

  /** Why no pod is led; undefined if that is as configured. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** Whose sockets are redirected, in words. */
  get text(): string {
    if (this.#options.isForHostOnly) return "for the node alone";
    const others = [...this.#reasons].map(([reason, count]) => `${count} because ${reason}`);
    const left = others.length === 0 ? "" : ` (other network namespaces take the rules: ${others.join(", ")})`;
    return `for the node and ${counted(this.#led.size, "pod")}${left}`;
  }

  /** Judges all network namespaces, and tells the programs. @returns whether another one is led. */
  look(): Promise<boolean> {
    return this.#turns.run(async () => {
      const { clock, isForHostOnly, obstacle } = this.#options;
      const startMs = clock.monotonicMs();
      const users = [...this.#users];
      const reports = new Map(users.flatMap((user) => [...reportsOf(user)]));
      let found: ReadonlySet<bigint> = new Set();
      this.#problem = isForHostOnly ? undefined : obstacle();
      try {
        if (!isForHostOnly && this.#problem === undefined) found = await this.#judge(reports);
      } catch (error) {
        this.#problem = messageOf(error);
      }
      try {
        for (const user of users) leadNamespaces(user, found);
      } catch (error) {
        this.#problem = messageOf(error);
      }
      this.#news.tellLimit("pods", this.#problem ?? "");
      const isNew = !found.isSubsetOf(this.#led);
      this.#led = found;
      this.#reported = new Set(reports.keys());
      const nowMs = clock.monotonicMs();
      this.#notBeforeMs = nowMs + Math.min(LONGEST_REST_MS, REST * (nowMs - startMs));
      return isNew;
    });
  }

  /** Keeps the programs up to date until the signal aborts. @throws the watch's errors. */
  watch(signal: AbortSignal): Promise<void> {
    const watching = this.#listeners.join({}, signal);
    if (!signal.aborted && this.#listeners.size === 1 && !this.#options.isForHostOnly) this.#start();
    return watching;
  }

  /** Looks soon: something has changed. */
  readonly request = (): void => {
    const { clock } = this.#options;
    this.#fruitless = 0;
    if (this.#timer !== undefined || this.#stop.signal.aborted) return;
    this.#timer = clock.setTimer(Math.max(SETTLE_MS, this.#notBeforeMs - clock.monotonicMs()), () => {
      this.#timer = undefined;
      if (!this.#stop.signal.aborted) void this.look();
    });
  };

  #start(): void {
    this.#stop = new AbortController();
    const { signal } = this.#stop;
    // Changes before the watch started were not reported.
    this.request();
    const watching = this.#options.watch(this.request, signal);
    Promise.all([watching, this.#lookAtReports(signal)]).catch((error: unknown) => this.#listeners.fail(error));
  }

  async #lookAtReports(signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    for (let [looks, skipped] = [1, 0]; !signal.aborted; looks++, skipped++) {
      await clock.sleep(LOOK_EVERY_MS, signal);
      const isDue = skipped >= Math.min(2 ** this.#fruitless - 2, MOST_SKIPPED) && this.#hasReports();
      if (signal.aborted || !(isDue || (looks % LOOKS_FOR_OTHERS === 0 && this.#mayHavePod()))) continue;
      skipped = 0;
      this.#fruitless = (await this.look()) ? 0 : this.#fruitless + 1;
    }
  }

  #hasReports(): boolean {
    return [...this.#users].some((user) => [...reportsOf(user).keys()].some((cookie) => !this.#reported.has(cookie)));
  }

  /** Nothing reports that an address has become an endpoint's, or that its route has changed. */
  #mayHavePod(): boolean {
    return this.#isMisrouted || !this.#candidates.isDisjointFrom(this.#endpointsHere());
  }

  #endpointsHere(): ReadonlySet<IpAddress> {
    const all = [...this.#users].flatMap(({ endpoints }) => [...endpoints().values()]);
    return new Set(all.flatMap((list) => list.filter(({ isLocal }) => isLocal).map(({ ip }) => ip)));
  }

  async #judge(reports: ReadonlyMap<bigint, bigint>): Promise<ReadonlySet<bigint>> {
    const { others, routes, networks } = this.#options;
    const all = await others();
    const addresses = all.flatMap(({ devices }) => devices.flatMap((device) => device.addresses));
    const endpoints = this.#endpointsHere();
    const isPod = (address: IpAddress): boolean =>
      endpoints.has(address) || networks.some((network) => cidrContains(network, address));
    const ofPods = new Set(addresses.filter(isPod));
    this.#candidates = new Set(addresses).difference(ofPods);
    const routed = await routes([...ofPods]);
    const led = new Set<bigint>();
    const reasons = new Map<bigint, string>();
    const left: OtherNamespace[] = [];
    for (const one of all) {
      const reason = this.#reasonAgainst(one.devices, ofPods, routed);
      if (reason === undefined) led.add(one.cookie);
      else reasons.set(one.cookie, reason);
      if (reason === NOT_KUBELET) left.push(one);
    }
    this.#isMisrouted = [...reasons.values()].includes(OTHER_DEVICE);
    const ofKubelet = left.some(({ cookie }) => reports.has(cookie)) ? this.#options.podCgroups() : new Set<bigint>();
    for (const { cookie } of left) {
      // The report may be gone by the next look.
      if (this.#led.has(cookie) || ofKubelet.has(reports.get(cookie) ?? 0n)) led.add(cookie);
    }
    const notLed = [...reports.keys()].filter((cookie) => !led.has(cookie));
    const byReason = Map.groupBy(notLed, (cookie) => reasons.get(cookie) ?? "they are not visible from here");
    this.#reasons = new Map([...byReason].map(([reason, cookies]) => [reason, cookies.length]));
    return led;
  }

  #reasonAgainst(
    devices: readonly LinkedDevice[],
    ofPods: ReadonlySet<IpAddress>,
    routed: ReadonlyMap<IpAddress, number>,
  ): string | undefined {
    const { detector, networks } = this.#options;
    if (devices.length === 0) return NO_DEVICE;
    if (detector.kind === "interface" || detector.kind === "interface-prefix") {
      const isNamed = ({ name }: { readonly name: string }): boolean =>
        detector.kind === "interface" ? name === detector.name : name.startsWith(detector.prefix);
      return devices.some(({ here }) => here.some(isNamed)) ? undefined : `its device is not of detectLocalMode`;
    }
    const own = devices.flatMap(({ here, addresses }) =>
      addresses.filter((address) => ofPods.has(address)).map((address) => ({ here, address })),
    );
    const isReached = own.some(({ here, address }) => here.some(({ index }) => index === routed.get(address)));
    if (isReached) return undefined;
    if (own.length > 0) return OTHER_DEVICE;
    return networks.length > 0 ? NO_POD : NOT_KUBELET;
  }
}

/** Cookies of network namespaces that used a frontend, with the cgroup of the first process that did. */
function reportsOf({ maps }: NamespaceUser): ReadonlyMap<bigint, bigint> {
  const entries = maps()?.otherNamespaces.entries() ?? [];
  return new Map(entries.map(([key, value]) => [takeWide(key, u64(0)), takeWide(value, u64(0))]));
}

/** As many as fit. A namespace that was led before may have flows, which count. @throws BpfError */
function leadNamespaces({ maps, family }: NamespaceUser, cookies: ReadonlySet<bigint>): void {
  const those = maps();
  if (those === undefined) return;
  const there = ledIn(those);
  for (const cookie of there.difference(cookies)) those.ledNamespaces.delete(bytesOf(cookie));
  try {
    countFlows(those, family, cookies.difference(there));
  } catch (error) {
    if (!hasBpfCode(error, "E2BIG")) throw error;
  }
}

/** Cookies of the network namespaces whose sockets are redirected, beside the host's. */
export function ledIn({ ledNamespaces }: Pick<NamespaceMaps, "ledNamespaces">): ReadonlySet<bigint> {
  return new Set(ledNamespaces.entries().map(([key]) => takeWide(key, u64(0))));
}

/** Leads these network namespaces, each with the number of its flows. What programs add meanwhile may not be counted. @throws BpfError */
export function countFlows(
  { ledNamespaces, flows }: NamespaceMaps,
  family: IpFamily,
  cookies: ReadonlySet<bigint>,
): void {
  if (cookies.size === 0) return;
  const { netns } = UDP_FLOW[family].fields;
  const counts = Map.groupBy(flows.entries(), ([, value]) => takeWide(value, netns));
  for (const cookie of cookies) ledNamespaces.update(bytesOf(cookie), bytesOf(BigInt(counts.get(cookie)?.length ?? 0)));
}

const bytesOf = (word: bigint): Uint8Array => new Uint8Array(BigUint64Array.of(word).buffer);
