/** Traffic counts of service ports, for `kube-proxy services` and `explain --kernel`. */
import { ownedFrontends } from "../model/frontend.ts";
import type { ProxyState } from "../model/proxy-state.ts";
import type { ServicePortName } from "../model/service-port-name.ts";
import type { IpAddress, IpFamily } from "../net/ip.ts";

/** A service port with its counts. */
export interface CountedPort {
  readonly name: ServicePortName;
  readonly family: IpFamily;
  readonly frontends: readonly {
    /** Undefined for a node port. */
    readonly address: IpAddress | undefined;
    readonly port: number;
    readonly count: Count;
  }[];
  readonly endpoints: readonly {
    readonly ip: IpAddress;
    readonly port: number;
    /** `ip:port` */
    readonly text: string;
    readonly count: Count;
  }[];
}

/** All service ports of a family, with unknown counts. */
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

/** Filled in by readers of the kernel; null: unknown. */
export interface Count {
  /** Connections that the kernel tracks now; ended ones stay for a while (TIME_WAIT, UDP timeouts). */
  open: number | null;
  /** Connections since the counter started; a rewritten rule or a new virtual server restarts it. */
  counted: number | null;
  /** Packets of new connections that rules rejected and dropped, at frontends, if known. */
  refused?: number;
  dropped?: number;
}

/** The counters of a mode's kernel objects. */
export interface ModeCounters {
  /** Whether connection tracking shows a connection's endpoint, or only the frontend. */
  readonly isEndpointTracked: boolean;
  /** False if connection tracking does not mark the mode's connections as translated. @default it does */
  readonly isMarked?: false;
  /**
   * Fills in the counts of this network namespace.
   *
   * @param onPart called before further counters are added to the counts so far: each kind restarts at zero at its own times.
   * @returns what cannot be known, in sentences. @throws Error if the kernel or a tool fails.
   */
  fill(ports: readonly CountedPort[], onPart?: () => void): Promise<readonly string[]>;
}

/** Adds to a count; an unknown one starts at 0. */
export function addTo(count: Count, what: keyof Count, number: number): void {
  count[what] = (count[what] ?? 0) + number;
}
