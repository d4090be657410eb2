/**
 * Which UDP flows of the connection tracking table go to an endpoint that no longer serves: reference sync.md §13.2,
 * steps 2 and 3. Dumping and deleting is done elsewhere.
 */
import { type IpAddress, joinHostPort } from "../net/ip.ts";
import type { UdpFlow } from "../net/udp-flow.ts";
import type { Endpoint } from "./endpoint.ts";
import { type FrontendAddress, ownedFrontends } from "./frontend.ts";
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
  ownersOf(address: IpAddress, port: number): readonly Owners[] {
    const onPort = this.#byPort.get(port);
    return onPort === undefined ? [] : [onPort.byAddress.get(address) ?? NO_OWNERS, onPort.nodePort];
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
 * Makes the judgement of flows: whether one goes to a frontend and is answered by none of its serving endpoints. Service ports
 * without a serving endpoint have no say; where an endpoint is, readiness and policy do not matter. A frontend has one owner,
 * whose endpoints alone count. Pure; looks only at service ports that flows go to.
 */
export function staleFlowTest(
  frontends: UdpFrontends,
  endpoints: ReadonlyMap<string, readonly Endpoint[]>,
): (flow: UdpFlow) => boolean {
  const known = new Map<string, Serving>();
  const servingOf = (key: string): Serving => {
    const serving = known.get(key) ?? servingIn(endpoints.get(key));
    known.set(key, serving);
    return serving;
  };
  return ({ destinationIP, destinationPort, replySourceIP, replySourcePort }) =>
    frontends.ownersOf(destinationIP, destinationPort).some((owners) => {
      const serving = owners.map(servingOf).filter(({ size }) => size > 0);
      if (serving.length === 0) return false;
      const replier = joinHostPort(replySourceIP, replySourcePort);
      return !serving.some((texts) => texts.has(replier));
    });
}

/** Whether any of these service ports has a serving endpoint. Pure; nearly always the first has. */
export function anyServes(keys: Iterable<string>, endpoints: ReadonlyMap<string, readonly Endpoint[]>): boolean {
  for (const key of keys) if (endpoints.get(key)?.some(({ isServing }) => isServing) === true) return true;
  return false;
}

function servingIn(endpoints: readonly Endpoint[] | undefined): Serving {
  const serving = new Set<string>();
  for (const { isServing, text } of endpoints ?? []) if (isServing) serving.add(text);
  return serving;
}
