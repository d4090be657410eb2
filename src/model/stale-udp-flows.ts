/**
 * Which UDP flows of the connection tracking table go to an endpoint that no longer serves: reference sync.md §13.2,
 * steps 2 and 3. Dumping and deleting is done elsewhere.
 */
import { type IpAddress, joinHostPort } from "../net/ip.ts";
import type { UdpFlow } from "../net/udp-flow.ts";
import type { Endpoint } from "./endpoint.ts";
import { type FrontendAddress, frontendKey, ownedFrontends } from "./frontend.ts";
import type { ServicePort } from "./service-port.ts";

/** `ip:port` of serving endpoints. */
type Serving = ReadonlySet<string>;

/** Keys of service ports; nearly always one. */
type Owners = readonly string[];

interface PortFrontends {
  readonly byAddress: Map<IpAddress, Owners>;
  /** Those that answer at any destination address. */
  nodePort: Owners;
}

const NO_OWNERS: Owners = Object.freeze([]);

/** The addresses and ports that UDP services answer on, kept up to date service port by service port. */
export class UdpFrontends {
  readonly #byPort = new Map<number, PortFrontends>();

  /** Replaces what a service port owns; of other protocols than UDP nothing is kept. Costs what the two ports have. */
  replace(key: string, before: ServicePort | undefined, after: ServicePort | undefined): void {
    if (before?.protocol === "UDP") {
      for (const frontend of ownedFrontends(before)) {
        this.#change(frontend, (owners) => owners.filter((owner) => owner !== key));
      }
    }
    if (after?.protocol === "UDP") {
      for (const frontend of ownedFrontends(after)) {
        this.#change(frontend, (owners) => (owners.includes(key) ? owners : [...owners, key]));
      }
    }
  }

  /** The service ports that decide about a destination: those of its address, and those of its port on any address. */
  ownersOf(address: IpAddress, port: number): { readonly ofAddress: Owners; readonly ofNodePort: Owners } {
    const onPort = this.#byPort.get(port);
    return { ofAddress: onPort?.byAddress.get(address) ?? NO_OWNERS, ofNodePort: onPort?.nodePort ?? NO_OWNERS };
  }

  #change({ address, port }: FrontendAddress, change: (owners: Owners) => Owners): void {
    const onPort = this.#byPort.get(port) ?? { byAddress: new Map<IpAddress, Owners>(), nodePort: NO_OWNERS };
    this.#byPort.set(port, onPort);
    if (address === undefined) onPort.nodePort = change(onPort.nodePort);
    else {
      const owners = change(onPort.byAddress.get(address) ?? NO_OWNERS);
      if (owners.length === 0) onPort.byAddress.delete(address);
      else onPort.byAddress.set(address, owners);
    }
    if (onPort.byAddress.size + onPort.nodePort.length === 0) this.#byPort.delete(port);
  }
}

/**
 * Makes the judgement of flows: whether one goes to a frontend and is answered by none of its serving endpoints; where an
 * endpoint is, readiness and policy do not matter. A frontend has one owner, whose endpoints alone count. At an address
 * without any every flow is stale. A node port is known by its number alone, which flows to other hosts may have as well: without
 * endpoints, or without an owner now, it ends only what was translated at an address of the node. Pure; looks only at service ports
 * that flows go to.
 *
 * @param gone what service ports owned before, as {@link frontendKey} writes it; what has an owner again is judged by it.
 * @param own addresses of the node.
 */
export function staleFlowTest(
  frontends: UdpFrontends,
  endpoints: ReadonlyMap<string, readonly Endpoint[]>,
  gone: ReadonlySet<string>,
  own: ReadonlySet<IpAddress>,
): (flow: UdpFlow) => boolean {
  const known = new Map<string, Serving>();
  const servingOf = (key: string): Serving => {
    const serving = known.get(key) ?? servingIn(endpoints.get(key));
    known.set(key, serving);
    return serving;
  };
  return ({ destinationIP, destinationPort, replySourceIP, replySourcePort }) => {
    const { ofAddress, ofNodePort } = frontends.ownersOf(destinationIP, destinationPort);
    const isAnswered = (owners: Owners) => {
      const replier = joinHostPort(replySourceIP, replySourcePort);
      return owners.some((owner) => servingOf(owner).has(replier));
    };
    if (ofAddress.length > 0 && !isAnswered(ofAddress)) return true;
    const hasNodePort = ofNodePort.some((owner) => servingOf(owner).size > 0);
    if (hasNodePort && !isAnswered(ofNodePort)) return true;
    if (ofAddress.length > 0) return false;
    const isGone = (address: IpAddress | undefined) =>
      gone.size > 0 && gone.has(frontendKey("UDP", { address, port: destinationPort }));
    if (isGone(destinationIP)) return true;
    const isTranslated = replySourceIP !== destinationIP || replySourcePort !== destinationPort;
    if (hasNodePort || !isTranslated || !own.has(destinationIP)) return false;
    return ofNodePort.length > 0 || isGone(undefined);
  };
}

function servingIn(endpoints: readonly Endpoint[] | undefined): Serving {
  const serving = new Set<string>();
  for (const { isServing, text } of endpoints ?? []) if (isServing) serving.add(text);
  return serving;
}
