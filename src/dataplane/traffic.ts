/** Counts of the traffic of service ports: `kube-proxy services`, and `explain --kernel`. */
import { ownedFrontends } from "../model/frontend.ts";
import type { ProxyState } from "../model/proxy-state.ts";
import type { ServicePortName } from "../model/service-port-name.ts";
import type { IpAddress, IpFamily } from "../net/ip.ts";

/** A service port whose traffic is asked for. */
export interface CountedPort {
  readonly name: ServicePortName;
  readonly family: IpFamily;
  readonly frontends: readonly CountedFrontend[];
  readonly endpoints: readonly CountedEndpoint[];
}

/** All service ports of a family, of which nothing is known yet. */
export function* countedPortsOf(
  { services, endpoints }: Pick<ProxyState, "services" | "endpoints">,
  family: IpFamily,
): Generator<CountedPort> {
  for (const [key, port] of services) {
    yield {
      name: port.name,
      family,
      frontends: ownedFrontends(port).map(({ address, port: number }) => ({
        address,
        port: number,
        count: unknownCount(),
      })),
      endpoints: (endpoints.get(key) ?? []).map(({ ip, port: number, text }) => ({
        ip,
        port: number,
        text,
        count: unknownCount(),
      })),
    };
  }
}

export function unknownCount(): Count {
  return { open: null, counted: null };
}

interface CountedFrontend {
  /** Undefined for a node port. */
  readonly address: IpAddress | undefined;
  readonly port: number;
  readonly count: Count;
}

interface CountedEndpoint {
  readonly ip: IpAddress;
  readonly port: number;
  /** `ip:port` */
  readonly text: string;
  readonly count: Count;
}

/** Filled in by what reads the kernel; null is not known. */
export interface Count {
  /** Connections that the kernel tracks now; those that have ended stay for a while (TIME_WAIT, UDP timeouts). */
  open: number | null;
  /** Connections since the kernel began to count, which a rewritten rule or a new virtual server does afresh. */
  counted: number | null;
  /** Packets of new connections that rules have refused, and dropped: at frontends, where it is known. */
  refused?: number;
  dropped?: number;
}

/** What a mode's part of the kernel counts itself. */
export interface ModeCounters {
  /** Whether conntrack tells the endpoint of a connection; else only what was asked for. */
  readonly isEndpointTracked: boolean;
  /** Whether conntrack marks what the mode leads as translated. @default it does */
  readonly isMarked?: false;
  /**
   * Fills in what this network namespace has counted.
   *
   * @param onPart called where other counters are added to what is filled in by then: each kind begins at zero at times of its own.
   * @returns what cannot be known, in sentences. @throws Error when the kernel or a tool refuses.
   */
  fill(ports: readonly CountedPort[], onPart?: () => void): Promise<readonly string[]>;
}

/** Adds to what is known. */
export function addTo(count: Count, what: keyof Count, number: number): void {
  count[what] = (count[what] ?? 0) + number;
}
