/** What the maps hold, by service port. There may be 100,000: each takes one small object here. */
import type { EndpointList } from "../../kernel/bpf/socket-balancer/endpoint-lists.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { SocketPlan } from "./socket-plan.ts";

/** What the maps hold of a service port. */
export interface Installed {
  readonly port: ServicePort;
  readonly treatments: SocketPlan["treatments"];
  readonly cluster: EndpointList | undefined;
  readonly local: EndpointList | undefined;
  /** Writing its frontends was broken off: they may lead to these lists, or to older ones. */
  readonly isUncertain?: boolean;
}

/** The list of the Cluster policy, which nearly all have, stands in it. */
class Packed {
  readonly port: ServicePort;
  readonly treatments: SocketPlan["treatments"];
  readonly id: number;
  /** −1: there is no such list. */
  readonly base: number;
  readonly count: number;
  readonly held: number;
  readonly local: EndpointList | undefined;

  constructor({ port, treatments, cluster, local }: Installed) {
    this.port = port;
    this.treatments = treatments;
    this.id = cluster?.id ?? 0;
    this.base = cluster?.base ?? -1;
    this.count = cluster?.count ?? 0;
    this.held = cluster?.held ?? 0;
    this.local = local;
  }
}

export class InstalledPorts {
  readonly #ports = new Map<string, Packed>();
  /** See {@link Installed.isUncertain}: few, if any. */
  readonly #uncertain = new Set<string>();

  get size(): number {
    return this.#ports.size;
  }

  has(key: string): boolean {
    return this.#ports.has(key);
  }

  get(key: string): Installed | undefined {
    const packed = this.#ports.get(key);
    if (packed === undefined) return undefined;
    const { port, treatments, id, base, count, held, local } = packed;
    const cluster = base < 0 ? undefined : { id, base, count, held };
    return { port, treatments, cluster, local, isUncertain: this.#uncertain.has(key) };
  }

  set(key: string, installed: Installed): void {
    this.#ports.set(key, new Packed(installed));
    if (installed.isUncertain === true) this.#uncertain.add(key);
    else this.#uncertain.delete(key);
  }

  delete(key: string): void {
    this.#ports.delete(key);
    this.#uncertain.delete(key);
  }

  keys(): IterableIterator<string> {
    return this.#ports.keys();
  }

  *[Symbol.iterator](): Generator<readonly [string, Installed]> {
    for (const key of this.#ports.keys()) {
      const installed = this.get(key);
      if (installed !== undefined) yield [key, installed];
    }
  }
}
