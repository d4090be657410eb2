/**
 * Serves without rules: sockets at the Service addresses that this host has or is given, and at node ports. Used on
 * hosts without netfilter and, with an {@link AddressAssigner}, on Windows. Reference userspace.md §2.
 */

import type { Written } from "../../contract/backend.ts";
import { KernelWaits } from "../../kernel/kernel-waits.ts";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import type { LocalTrafficDetector } from "../../model/local-traffic-detector.ts";
import type { ServicePortName } from "../../model/service-port-name.ts";
import {
  cidrContains,
  type IpAddress,
  type IpFamily,
  isLinkLocalV6,
  isLoopback,
  joinHostPort,
  unspecifiedAddress,
} from "../../net/ip.ts";
import type { Relay } from "../../relay/relay.ts";
import type { Listeners, ListenersRequest, WantedPort } from "./host.ts";
import type { AddressAssigner, AssignmentOutcome } from "./netsh-assigner.ts";
import { isOpen, isServed, laneOf, type Portal } from "./portals.ts";
import type { ServiceRelays } from "./service-relays.ts";

const NOTHING_ASSIGNED: AssignmentOutcome = { refused: new Map(), added: new Set() };

interface HostListenersOptions {
  readonly family: IpFamily;
  readonly sockets: ServiceRelays;
  /** If absent, addresses that the host does not have are not served. */
  readonly assigner?: AddressAssigner;
  /** Distinguishes the cluster's pods from clients outside; here only by address, not by interface. */
  readonly detector: LocalTrafficDetector;
  readonly log: Logger;
}

interface Listener {
  readonly address: IpAddress;
  readonly portal: Portal;
}

interface ServedPort {
  readonly name: ServicePortName;
  readonly listeners: ReadonlyMap<string, Listener>;
  readonly sockets: Map<string, Relay>;
}

export class HostListeners implements Listeners {
  readonly #options: HostListenersOptions;
  readonly #anywhere: IpAddress;
  readonly #served = new Map<string, ServedPort>();
  #hostAddresses: ReadonlySet<IpAddress> = new Set();
  readonly #waits = new KernelWaits();
  /** Counts of the last request. */
  #written = { "sockets opened": 0, "sockets closed": 0 };

  constructor(options: HostListenersOptions) {
    const { sockets, assigner } = options;
    this.#options = {
      ...options,
      sockets: this.#waits.timed(sockets),
      ...(assigner !== undefined && { assigner: this.#waits.timed(assigner) }),
    };
    this.#anywhere = unspecifiedAddress(options.family);
  }

  async apply(request: ListenersRequest, signal: AbortSignal): Promise<void> {
    const { assigner } = this.#options;
    this.#written = { "sockets opened": 0, "sockets closed": 0 };
    this.#waits.begin();
    this.#hostAddresses = request.hostAddresses;
    for (const [key, wanted] of request.wanted) await this.#replace(key, wanted, request.hostAddresses);
    const { refused, added } = (await assigner?.update(this.#serviceAddresses(), signal)) ?? NOTHING_ASSIGNED;
    // An address that came back may belong to service ports that are not in the request.
    const keys = added.size > 0 ? [...this.#served.keys()] : request.wanted.keys();
    for (const key of keys) {
      const served = this.#served.get(key);
      if (served === undefined) continue;
      for (const [text, listener] of served.listeners) {
        signal.throwIfAborted();
        const reason = refused.get(listener.address);
        if (reason !== undefined) request.fail(key, `${listener.address}: ${reason}`);
        const isHere = listener.address === this.#anywhere || request.hostAddresses.has(listener.address);
        const isUsable = isHere || (assigner !== undefined && reason === undefined);
        if (!isUsable) this.#tellUnserved(served, listener);
        if (!isUsable || added.has(listener.address)) await this.#stop(served, text);
        if (isUsable) await this.#listen(served, text, listener, request);
      }
    }
  }

  get written(): Written {
    return { counts: this.#written, kernelMs: this.#waits.ms };
  }

  async isIntact(): Promise<"present" | "absent"> {
    return this.#options.assigner?.isIntact() === false ? "absent" : "present";
  }

  stopAccepting(): Promise<void> {
    return this.#options.sockets.closeAll();
  }

  async close(): Promise<void> {
    const { assigner, log } = this.#options;
    this.#served.clear();
    try {
      await assigner?.update(new Set(), new AbortController().signal);
    } catch (error) {
      log.error("Failed to remove service addresses", error);
    }
  }

  /** Records where to listen, and closes other listeners. */
  async #replace(key: string, wanted: WantedPort | undefined, hostAddresses: ReadonlySet<IpAddress>): Promise<void> {
    const before = this.#served.get(key);
    const listeners = wanted === undefined ? new Map<string, Listener>() : this.#listenersOf(wanted, hostAddresses);
    if (wanted === undefined) this.#served.delete(key);
    else this.#served.set(key, { name: wanted.port.name, listeners, sockets: before?.sockets ?? new Map() });
    if (before === undefined) return;
    for (const text of before.sockets.keys()) if (!listeners.has(text)) await this.#stop(before, text);
  }

  /** Listeners by a key of all that distinguishes them, including sources. */
  #listenersOf({ port: servicePort, portals }: WantedPort, hostAddresses: ReadonlySet<IpAddress>) {
    const listeners = new Map<string, Listener>();
    const taken = new Set<string>();
    const everywhere = servicePort.protocol === "UDP" ? answeringAddresses(hostAddresses) : [this.#anywhere];
    for (const portal of portals) {
      const { kind, address: own, port, sources } = portal;
      // Without a listener, clients are refused.
      if (!isOpen(portal)) continue;
      for (const address of own === undefined ? everywhere : [own]) {
        const place = joinHostPort(address, port);
        // An external IP may also be a load-balancer IP.
        if (taken.has(place)) continue;
        taken.add(place);
        const access = [portal.policy, portal.fate, kind === "cluster-ip"];
        listeners.set([place, ...access, ...sources].join(" "), { address, portal });
      }
    }
    return listeners;
  }

  /** Node ports are served at the host's own addresses; they are no reason to keep one that was given for a Service. */
  #serviceAddresses(): ReadonlySet<IpAddress> {
    const listeners = [...this.#served.values()].flatMap((served) => [...served.listeners.values()]);
    return new Set(listeners.filter(({ portal }) => portal.kind !== "node-port").map(({ address }) => address));
  }

  async #listen(served: ServedPort, text: string, listener: Listener, { fail }: ListenersRequest): Promise<void> {
    if (served.sockets.has(text)) return;
    try {
      const { address, portal } = listener;
      const { port, sources } = portal;
      const laneFor = (client: IpAddress) => {
        const lane = laneOf(portal, this.#isInside(client));
        return isServed(portal, lane) ? lane : undefined;
      };
      const request = { name: served.name, address, port, sources, laneOf: laneFor };
      served.sockets.set(text, await this.#options.sockets.listen(request));
      this.#written["sockets opened"] += 1;
    } catch (error) {
      fail(served.name.key, messageOf(error));
    }
  }

  #isInside(client: IpAddress): boolean {
    const { detector } = this.#options;
    if (isLoopback(client) || this.#hostAddresses.has(client)) return true;
    return detector.kind === "cidr" && cidrContains(detector.cidr, client);
  }

  #tellUnserved({ name }: ServedPort, { address }: Listener): void {
    this.#options.log.v(2, "A service address is not on this host and is not served", { service: name.text, address });
  }

  async #stop({ name, sockets }: ServedPort, text: string): Promise<void> {
    const relay = sockets.get(text);
    if (relay === undefined) return;
    sockets.delete(text);
    this.#written["sockets closed"] += 1;
    await this.#options.sockets.close(name, relay);
  }
}

/**
 * Where a UDP node port listens: one socket for all addresses would answer from the address that the route prefers, and
 * the client would not recognise the answer.
 */
function answeringAddresses(hostAddresses: ReadonlySet<IpAddress>): IpAddress[] {
  return [...hostAddresses].filter((address) => !isLinkLocalV6(address));
}
