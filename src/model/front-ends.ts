/**
 * Which service port answers at which destination, to see when two claim the same one. The API server keeps cluster IPs
 * and node ports unique, but not external and load-balancer IPs, and a folder of manifests keeps nothing unique.
 */
import type { Protocol } from "../cluster/objects.ts";
import { type IpAddress, joinHostPort } from "../net/ip.ts";
import type { ServicePort } from "./service-port.ts";

/** `tcp 10.96.0.1:443`, or `tcp *:30080` for a node port. Pure. */
export function frontEndText(protocol: Protocol, address: IpAddress | undefined, port: number): string {
  return `${protocol.toLowerCase()} ${address === undefined ? `*:${port}` : joinHostPort(address, port)}`;
}

/** The destinations of a port, as {@link frontEndText} writes them. Pure. */
export function frontEndsOf(port: ServicePort): string[] {
  const { protocol, clusterIP, externalIPs, loadBalancerVIPs } = port;
  const ends = [clusterIP, ...externalIPs, ...loadBalancerVIPs].map((ip) => frontEndText(protocol, ip, port.port));
  if (port.nodePort !== 0) ends.push(frontEndText(protocol, undefined, port.nodePort));
  return ends;
}

/** Two or more service ports that claim one destination. */
export interface FrontEndConflict {
  readonly frontEnd: string;
  /** Keys of service ports, sorted: the first is the one that answers. */
  readonly claimants: readonly string[];
}

/** An index of front ends, kept up to date port by port. */
export class FrontEndIndex {
  // Almost every front end has one claimant: a bare key then, a list otherwise.
  readonly #claimants = new Map<string, string | readonly string[]>();
  readonly #ports = new Map<string, ServicePort>();

  /** Replaces what is known of a service port; `undefined` forgets it. */
  set(key: string, port: ServicePort | undefined): void {
    const old = this.#ports.get(key);
    if (old !== undefined) for (const end of frontEndsOf(old)) this.#remove(end, key);
    if (port === undefined) {
      this.#ports.delete(key);
      return;
    }
    this.#ports.set(key, port);
    for (const end of frontEndsOf(port)) this.#add(end, key);
  }

  /** The conflicts that a service port is part of. */
  conflictsOf(key: string): FrontEndConflict[] {
    const port = this.#ports.get(key);
    if (port === undefined) return [];
    const conflicts: FrontEndConflict[] = [];
    for (const frontEnd of new Set(frontEndsOf(port))) {
      const claimants = this.#claimants.get(frontEnd);
      if (Array.isArray(claimants)) conflicts.push({ frontEnd, claimants });
    }
    return conflicts;
  }

  #add(end: string, key: string): void {
    const present = this.#claimants.get(end);
    if (present === undefined) this.#claimants.set(end, key);
    else if (typeof present === "string") {
      if (present !== key) this.#claimants.set(end, [present, key].sort());
    } else if (!present.includes(key)) this.#claimants.set(end, [...present, key].sort());
  }

  #remove(end: string, key: string): void {
    const present = this.#claimants.get(end);
    if (present === key) this.#claimants.delete(end);
    else if (Array.isArray(present)) {
      const rest = present.filter((other) => other !== key);
      const [only] = rest;
      this.#claimants.set(end, rest.length === 1 && only !== undefined ? only : rest);
    }
  }
}
