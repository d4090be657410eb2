/** The operating system, and how clients reach the sockets: by rules, or because the sockets are at the Service addresses. */

import type { Written } from "../../contract/backend.ts";
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { FamilyContext, ModeRuntime, NodeContext } from "../../contract/dataplane.ts";
import type { Logger } from "../../logging/logger.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import type { Relays } from "../../relay/relay.ts";
import type { Portal } from "./portals.ts";
import type { ServiceRelays } from "./service-relays.ts";

/** A wanted service port; its key is `port.name.key`. */
export interface WantedPort {
  readonly port: ServicePort;
  /** Those of the frontends that it owns. */
  readonly portals: readonly Portal[];
}

export interface ListenersRequest {
  /** `wanted` has all service ports, including those that are gone; otherwise only changed ones. */
  readonly isFull: boolean;
  /** By key; `undefined`: the service port is gone. */
  readonly wanted: ReadonlyMap<string, WantedPort | undefined>;
  /** The addresses of this family. */
  readonly hostAddresses: ReadonlySet<IpAddress>;
  /** Reports why a part of a service port does not work. */
  readonly fail: (key: string, reason: string) => void;
}

export interface Listeners {
  /**
   * Reconciles the listeners. A failure of one service port does not affect the others, and is retried when the port is
   * requested again. Rejects if the outcome is unknown; then the next request must be full.
   */
  apply(request: ListenersRequest, signal: AbortSignal): Promise<void>;
  /** Counts of the last {@link apply}. */
  readonly written: Written;
  /** Whether the rules, or the addresses given to the host, are unchanged; `unknown` also during a write. */
  isIntact?(): Promise<"present" | "absent" | "unknown">;
  /** Stops accepting: new clients are refused, connections go on. Never rejects. */
  stopAccepting(): Promise<void>;
  /** Removes what leads to the proxy; connections may end with it. Never rejects. */
  close(): Promise<void>;
}

export interface FrontParts {
  readonly sockets: ServiceRelays;
  readonly relays: Relays;
  /** Called when a port or address that was unavailable may be free. */
  readonly retry: () => void;
}

/** How clients reach the sockets, for one family. */
export interface Front {
  readonly listeners: Listeners;
  /** The host's own addresses of the family, without those that it was given for Services. */
  readonly hostAddresses: () => Promise<readonly IpAddress[]>;
  /** Calls back when they change, until the signal aborts. */
  readonly watchHostAddresses: (onChange: () => void, signal: AbortSignal) => Promise<void>;
}

export interface UserspaceHost {
  /** Why a family cannot be served here; undefined if it can. */
  unsupported(family: IpFamily, config: KubeProxyConfig): ReturnType<ModeRuntime["unsupported"]>;
  /** @returns how many files and sockets the process may open. */
  openFiles(log: Logger): number;
  open(node: NodeContext): Promise<{ frontFor(context: FamilyContext, parts: FrontParts): Promise<Front> }>;
}

/** The host of a platform, loaded on demand with its dependencies. */
export async function userspaceHost(platform: NodeJS.Platform = process.platform): Promise<UserspaceHost> {
  return platform === "win32"
    ? (await import("./windows-host.ts")).windowsHost
    : (await import("./linux-host.ts")).linuxHost;
}
