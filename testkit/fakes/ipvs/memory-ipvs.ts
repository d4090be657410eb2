/**
 * IPVS of one network namespace in memory. Behaves like the kernel (`testing/ipvs-contract.ts`); tests can make it
 * reject operations, lose its module, and set the connections of real servers.
 */

import {
  type Ipvs,
  type IpvsFailure,
  type IpvsOperation,
  type IpvsTimeouts,
  IpvsUnavailableError,
  ipvsFailure,
  type RealServer,
  type RealServerKey,
  type RealServerState,
  type VirtualServer,
  type VirtualServerKey,
  virtualServerText,
} from "../../../src/modes/ipvs/kernel/ipvs.ts";
import { familyOf, type IpFamily, joinHostPort } from "../../../src/net/ip.ts";

/** Those of kernel 6.x. */
const SCHEDULERS = ["rr", "wrr", "lc", "wlc", "fo", "ovf", "lblc", "lblcr", "dh", "sh", "mh", "sed", "nq", "twos"];

/** The kernel's own (net/netfilter/ipvs/ip_vs_proto_tcp.c, …_udp.c). */
const DEFAULT_TIMEOUTS: IpvsTimeouts = { tcp: 900, tcpFin: 120, udp: 300 };

export interface Connections {
  readonly active: number;
  readonly inactive: number;
}

const NO_CONNECTIONS: Connections = { active: 0, inactive: 0 };

/** Decides by returning an errno's name whether an operation is rejected, in any state. */
export type IpvsFault = (operation: IpvsOperation) => string | undefined;

export interface MemoryIpvsOptions {
  /** Schedulers that the kernel can load. @default those of kernel 6.x */
  readonly schedulers?: readonly string[];
}

interface Service {
  definition: VirtualServer;
  /** By address and port, newest first as in the kernel's list. */
  realServers: RealServer[];
}

export class MemoryIpvs implements Ipvs {
  readonly #schedulers: ReadonlySet<string>;
  readonly #services = new Map<string, Service>();
  /** By virtual and real server. The kernel remembers those of removed real servers until the last one ends. */
  readonly #connections = new Map<string, Connections>();
  readonly #faults = new Set<IpvsFault>();
  readonly #operations: IpvsOperation[] = [];
  #timeouts = DEFAULT_TIMEOUTS;
  #isLoaded = true;
  #messages = 0;

  constructor(options: MemoryIpvsOptions = {}) {
    this.#schedulers = new Set(options.schedulers ?? SCHEDULERS);
  }

  /** Number of requests so far, including reads: what a netlink implementation would send. */
  get messages(): number {
    return this.#messages;
  }

  /** Clears the operations that were carried out. @returns them, oldest first. */
  takeOperations(): IpvsOperation[] {
    return this.#operations.splice(0);
  }

  /** From now on rejects operations for which `fault` returns a code. @returns a function that ends that. */
  refuse(fault: IpvsFault): () => void {
    this.#faults.add(fault);
    return () => this.#faults.delete(fault);
  }

  /** Another program removes the module, and all its state. */
  unload(): void {
    this.#isLoaded = false;
    this.#services.clear();
    this.#connections.clear();
    this.#timeouts = DEFAULT_TIMEOUTS;
  }

  /** The module is loaded again, empty. */
  load(): void {
    this.#isLoaded = true;
  }

  /** Clients have opened and closed connections. The real server need not exist any more. */
  setConnections(virtualServer: VirtualServerKey, realServer: RealServerKey, connections: Connections): void {
    this.#connections.set(pairText(virtualServer, realServer), connections);
  }

  async virtualServers(family: IpFamily, signal?: AbortSignal): Promise<readonly VirtualServer[]> {
    this.#request(signal);
    const all = [...this.#services.values()].map(({ definition }) => definition);
    return all.filter(({ address }) => familyOf(address) === family);
  }

  async virtualServer(key: VirtualServerKey): Promise<VirtualServer | undefined> {
    this.#request();
    return this.#services.get(virtualServerText(key))?.definition;
  }

  async connections(key: VirtualServerKey): Promise<number | undefined> {
    return (await this.virtualServer(key)) && 0;
  }

  async realServers(key: VirtualServerKey, signal?: AbortSignal): Promise<readonly RealServerState[] | undefined> {
    this.#request(signal);
    return this.#services.get(virtualServerText(key))?.realServers.map((realServer) => {
      const { active, inactive } = this.#connections.get(pairText(key, realServer)) ?? NO_CONNECTIONS;
      const counts = { activeConnections: active, inactiveConnections: inactive, connections: active + inactive };
      return { ...realServer, ...counts };
    });
  }

  async apply(operations: readonly IpvsOperation[], signal?: AbortSignal): Promise<readonly IpvsFailure[]> {
    const failures: IpvsFailure[] = [];
    for (const operation of operations) {
      this.#request(signal);
      const code = this.#fault(operation) ?? this.#execute(operation);
      if (code === undefined) this.#operations.push(operation);
      else failures.push(ipvsFailure(operation, code));
    }
    return failures;
  }

  async flush(): Promise<void> {
    this.#request();
    this.#services.clear();
  }

  async timeouts(): Promise<IpvsTimeouts> {
    this.#request();
    return this.#timeouts;
  }

  async setTimeouts({ tcp, tcpFin, udp }: IpvsTimeouts): Promise<void> {
    this.#request();
    const old = this.#timeouts;
    this.#timeouts = { tcp: tcp || old.tcp, tcpFin: tcpFin || old.tcpFin, udp: udp || old.udp };
  }

  async close(): Promise<void> {}

  #request(signal?: AbortSignal): void {
    signal?.throwIfAborted();
    this.#messages++;
    if (!this.#isLoaded) throw new IpvsUnavailableError("ipvs not supported by the kernel: the module ip_vs is gone");
  }

  #fault(operation: IpvsOperation): string | undefined {
    for (const fault of this.#faults) {
      const code = fault(operation);
      if (code !== undefined) return code;
    }
    return undefined;
  }

  /** @returns the errno's name, or `undefined` on success. */
  #execute(operation: IpvsOperation): string | undefined {
    const key = virtualServerText(operation.virtualServer);
    const service = this.#services.get(key);
    if (operation.kind === "add-virtual-server") {
      if (service !== undefined) return "EEXIST";
      if (!this.#schedulers.has(operation.virtualServer.scheduler)) return "ENOENT";
      this.#services.set(key, { definition: { ...operation.virtualServer }, realServers: [] });
      return undefined;
    }
    if (service === undefined) return "ESRCH";
    switch (operation.kind) {
      case "update-virtual-server":
        if (!this.#schedulers.has(operation.virtualServer.scheduler)) return "ENOENT";
        service.definition = { ...operation.virtualServer };
        return undefined;
      case "delete-virtual-server":
        this.#services.delete(key);
        return undefined;
      case "add-real-server":
        return addRealServer(service, operation.realServer);
      case "update-real-server":
        return updateRealServer(service, operation.realServer);
      case "delete-real-server":
        return deleteRealServer(service, operation.realServer);
    }
  }
}

function addRealServer(service: Service, realServer: RealServer): string | undefined {
  if (indexOf(service, realServer) >= 0) return "EEXIST";
  if (familyOf(realServer.address) !== familyOf(service.definition.address)) return "EINVAL";
  service.realServers.unshift({ ...realServer });
  return undefined;
}

function updateRealServer(service: Service, realServer: RealServer): string | undefined {
  const index = indexOf(service, realServer);
  if (index < 0) return "ENOENT";
  service.realServers[index] = { ...realServer };
  return undefined;
}

function deleteRealServer(service: Service, realServer: RealServerKey): string | undefined {
  const index = indexOf(service, realServer);
  if (index < 0) return "ENOENT";
  service.realServers.splice(index, 1);
  return undefined;
}

function indexOf(service: Service, { address, port }: RealServerKey): number {
  return service.realServers.findIndex((other) => other.address === address && other.port === port);
}

function pairText(virtualServer: VirtualServerKey, { address, port }: RealServerKey): string {
  return `${virtualServerText(virtualServer)}/${joinHostPort(address, port)}`;
}
