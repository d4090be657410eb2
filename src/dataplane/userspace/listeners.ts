/** Ways for clients to the proxy's sockets: rules, or sockets at the service addresses themselves. */
import type { ServicePort } from "../../model/service-port.ts";
import type { IpAddress } from "../../net/ip.ts";
import type { Written } from "../../sync/backend.ts";
import type { Portal } from "./portals.ts";

/** A service port as it is wanted; its key is `port.name.key`. */
export interface WantedPort {
  readonly port: ServicePort;
  /** At the frontends that it owns. */
  readonly portals: readonly Portal[];
}

export interface ListenersRequest {
  /** `wanted` is everything, and what is gone; otherwise only what changed. */
  readonly isFull: boolean;
  /** By key; `undefined` is a service port that is gone. */
  readonly wanted: ReadonlyMap<string, WantedPort | undefined>;
  /** Of this family. */
  readonly hostAddresses: ReadonlySet<IpAddress>;
  /** Reports why something of a service port does not work. */
  readonly fail: (key: string, reason: string) => void;
}

export interface Listeners {
  /**
   * Brings what there is to what is wanted; what fails for one service port does not keep the others, and is tried again when
   * it is asked for again. Rejects when nothing can be said of the outcome; the next request must be full then.
   */
  apply(request: ListenersRequest, signal: AbortSignal): Promise<void>;
  /** Counts of the last {@link apply}. */
  readonly written: Written;
  /** Whether rules are as they were left; `unknown` also while they change. Absent where there are none. */
  isIntact?(): Promise<"present" | "absent" | "unknown">;
  /** Accepts no more clients: they are refused. Connections go on. Never rejects. */
  stopAccepting(): Promise<void>;
  /** Takes back what leads to the proxy; connections need not outlive that. Never rejects. */
  close(): Promise<void>;
}
