/**
 * Serves with rules: one socket for each lane of a service port, on the proxy's own ports, and rules that lead every
 * Service address there. Reference userspace.md §1.3–1.6. Unlike upstream, a socket stays as long as its service port,
 * even if the addresses change: no client is cut off, and no UDP flow leads to a port that is gone (userspace.md §1.6).
 */

import type { Written } from "../../contract/backend.ts";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import type { ServicePortName } from "../../model/service-port-name.ts";
import { type IpAddress, type IpFamily, unspecifiedAddress } from "../../net/ip.ts";
import type { Relay, RelayProtocol, Relays } from "../../relay/relay.ts";
import { spell } from "../shared/iptables-rules/owner-rules.ts";
import { type HeldPort, HeldPorts } from "./held-ports.ts";
import type { Listeners, ListenersRequest, WantedPort } from "./host.ts";
import type { ProxyAddresses } from "./listen-address.ts";
import { type LanePorts, type PortalPlanConfig, planPortalRules } from "./plan-portal-rules.ts";
import { type PortAllocator, PortsExhaustedError } from "./port-allocator.ts";
import type { PortalRules } from "./portal-rules.ts";
import { type Lane, lanesOf, type Portal } from "./portals.ts";
import type { ServiceRelays } from "./service-relays.ts";
import { type DeleteStaleFlows, UdpPortals } from "./stale-flows.ts";

interface RedirectListenersOptions {
  readonly family: IpFamily;
  /** The initial settings; the addresses follow the host's. */
  readonly plan: PortalPlanConfig;
  readonly addressesAmong: (hostAddresses: ReadonlySet<IpAddress>, before: IpAddress) => ProxyAddresses;
  readonly rules: PortalRules;
  readonly sockets: ServiceRelays;
  readonly relays: Relays;
  readonly ports: PortAllocator;
  readonly deleteStaleFlows: DeleteStaleFlows;
  readonly log: Logger;
}

interface ServedPort {
  readonly name: ServicePortName;
  readonly sockets: Map<Lane, Relay>;
  portals: readonly Portal[];
}

/** A socket to close once no rule leads to it. */
interface Leaving {
  readonly name: ServicePortName;
  readonly socket: Relay;
}

export class RedirectListeners implements Listeners {
  readonly #options: RedirectListenersOptions;
  readonly #anywhere: IpAddress;
  readonly #held: HeldPorts;
  #plan: PortalPlanConfig;
  readonly #served = new Map<string, ServedPort>();
  /** Sockets to close, and below UDP portals that changed: both are kept if the rules cannot be written. */
  #leaving: Leaving[] = [];
  #udp = new UdpPortals();

  constructor(options: RedirectListenersOptions) {
    this.#options = options;
    this.#anywhere = unspecifiedAddress(options.family);
    this.#held = new HeldPorts(options.relays);
    this.#plan = options.plan;
  }

  async apply(request: ListenersRequest, signal: AbortSignal): Promise<void> {
    const { rules, deleteStaleFlows } = this.#options;
    if (request.isFull) this.#followAddresses(request.hostAddresses);
    for (const [key, wanted] of request.wanted) {
      signal.throwIfAborted();
      const served = this.#served.get(key);
      if (served !== undefined) this.#udp.lost(served.name, served.portals);
      if (wanted !== undefined) {
        const opened = await this.#open(key, wanted, request);
        this.#udp.served(opened.name, opened.portals, portsOf(opened));
      } else if (served !== undefined) {
        this.#served.delete(key);
        rules.want(key, undefined);
        for (const socket of served.sockets.values()) this.#leaving.push({ name: served.name, socket });
      }
    }
    const refused = await rules.write(request.isFull ? "all" : request.wanted.keys());
    for (const [key, reason] of refused) request.fail(key, reason);
    for (const key of request.wanted.keys()) {
      if (!refused.has(key)) await this.#releaseUnused(key, request.hostAddresses);
    }
    await this.#closeLeaving(refused);
    const udp = this.#udp;
    this.#udp = new UdpPortals();
    await deleteStaleFlows(udp, request.hostAddresses, signal);
  }

  get written(): Written {
    return this.#options.rules.written;
  }

  isIntact() {
    return this.#options.rules.isIntact();
  }

  /**
   * The rules stay until {@link close}: with the last translating rule, the kernel would stop translating established
   * connections. The ports are held so that no other process gets their clients.
   */
  async stopAccepting(): Promise<void> {
    const { sockets } = this.#options;
    const { listenAddress: address } = this.#plan;
    await sockets.closeAll();
    for (const [key, { name, sockets: lanes }] of this.#served) {
      const protocol = name.protocol as RelayProtocol; // the relay was opened with it
      for (const { port } of lanes.values()) {
        await this.#held.hold(key, { protocol, address, port }).catch(() => {});
      }
    }
  }

  async close(): Promise<void> {
    const { rules, log } = this.#options;
    try {
      await rules.clear();
    } catch (error) {
      log.error("Failed to remove portal rules: they lead to ports that other programs may use", error);
    }
    this.#served.clear();
    await this.#held.close();
  }

  /** If the host's address changed, moves every socket there; the same request writes the rules that lead to it. */
  #followAddresses(hostAddresses: ReadonlySet<IpAddress>): void {
    const { addressesAmong, log, family } = this.#options;
    const { listenAddress: before, hostAddress } = this.#plan;
    const addresses = addressesAmong(hostAddresses, hostAddress);
    if (addresses.listenAddress === before && addresses.hostAddress === hostAddress) return;
    this.#plan = { ...this.#plan, ...addresses };
    if (addresses.listenAddress === before) return;
    log.info("The proxy's sockets move to another address", { ipFamily: family, before, now: addresses.listenAddress });
    for (const { name, sockets } of this.#served.values()) {
      for (const socket of sockets.values()) this.#leaving.push({ name, socket });
      sockets.clear();
    }
  }

  /** Opens missing sockets and sets the wanted rules; portals that cannot be opened get none. */
  async #open(key: string, { port, portals }: WantedPort, request: ListenersRequest): Promise<ServedPort> {
    const { rules } = this.#options;
    const served = this.#served.get(key) ?? { name: port.name, sockets: new Map(), portals: [] };
    this.#served.set(key, served);
    await this.#openLanes(served, lanesOf(portals), request);
    const usable: Portal[] = [];
    for (const portal of portals) {
      if (await this.#hold(port.name, portal, request)) usable.push(portal);
    }
    served.portals = usable;
    try {
      const plan = planPortalRules(port, usable, portsOf(served), this.#plan);
      rules.want(key, { name: port.name, rules: spell(plan) });
    } catch (error) {
      // The name cannot be written in a rule.
      if (!(error instanceof RangeError)) throw error;
      rules.want(key, undefined);
      request.fail(key, error.message);
    }
    return served;
  }

  async #openLanes(served: ServedPort, lanes: ReadonlySet<Lane>, request: ListenersRequest): Promise<void> {
    for (const lane of lanes) {
      if (served.sockets.has(lane)) continue;
      const socket = await this.#listen(served.name, lane, request);
      if (socket !== undefined) served.sockets.set(lane, socket);
    }
    for (const [lane, socket] of served.sockets) {
      if (lanes.has(lane)) continue;
      served.sockets.delete(lane);
      this.#leaving.push({ name: served.name, socket });
    }
  }

  async #listen(name: ServicePortName, lane: Lane, { fail }: ListenersRequest): Promise<Relay | undefined> {
    const { ports, sockets } = this.#options;
    const { listenAddress: address } = this.#plan;
    try {
      return await ports.open((port) => sockets.listen({ name, address, port, sources: [], laneOf: () => lane }));
    } catch (error) {
      const reason = messageOf(error);
      const what = error instanceof PortsExhaustedError ? "failed to allocate proxy port" : "failed to start proxy";
      fail(name.key, `${what} for service "${name.text}": ${reason}`);
      return undefined;
    }
  }

  async #hold(name: ServicePortName, portal: Portal, { hostAddresses, fail }: ListenersRequest): Promise<boolean> {
    const port = this.#heldPortOf(name, portal, hostAddresses);
    if (port === undefined) return true;
    try {
      await this.#held.hold(name.key, port);
      return true;
    } catch (error) {
      fail(name.key, `can't open node port for ${portal.frontend}: ${messageOf(error)}`);
      return false;
    }
  }

  /** Only ports at addresses of this host need to be held. */
  #heldPortOf(name: ServicePortName, portal: Portal, hostAddresses: ReadonlySet<IpAddress>): HeldPort | undefined {
    const { kind, port } = portal;
    const address = portal.address ?? this.#anywhere;
    if (kind !== "node-port" && !hostAddresses.has(address)) return undefined;
    return { protocol: name.protocol as RelayProtocol, address, port }; // backend.ts requests no others
  }

  async #releaseUnused(key: string, hostAddresses: ReadonlySet<IpAddress>): Promise<void> {
    const served = this.#served.get(key);
    const kept = served?.portals.flatMap((portal) => this.#heldPortOf(served.name, portal, hostAddresses) ?? []) ?? [];
    await this.#held.keepOnly(key, kept);
  }

  /** @param refused service ports whose old rules are still in force and lead to these sockets. */
  async #closeLeaving(refused: ReadonlyMap<string, string>): Promise<void> {
    const { sockets, ports } = this.#options;
    const leaving = this.#leaving.filter(({ name }) => !refused.has(name.key));
    this.#leaving = this.#leaving.filter(({ name }) => refused.has(name.key));
    for (const { name, socket } of leaving) {
      await sockets.close(name, socket);
      if (!this.#served.has(name.key)) await this.#held.keepOnly(name.key, []);
      ports.release(socket.port);
    }
  }
}

function portsOf({ sockets }: ServedPort): LanePorts {
  return Object.fromEntries(Array.from(sockets, ([lane, { port }]) => [lane, port]));
}
