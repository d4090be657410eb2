/** The mode's operating system, and how clients get to its sockets: by rules, or because the sockets are at the service addresses themselves. */
import type { KubeProxyConfig } from "../../config/config.ts";
import type { Logger } from "../../logging/logger.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import type { Relays } from "../../relay/relay.ts";
import type { Written } from "../../sync/backend.ts";
import type { FamilyContext, ModeRuntime, NodeContext } from "../dataplane.ts";
import type { Portal } from "./portals.ts";
import type { ServiceRelays } from "./service-relays.ts";

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

export interface FrontParts {
  readonly sockets: ServiceRelays;
  readonly relays: Relays;
  /** A port or address that was missing may be free now. */
  readonly retry: () => void;
}

/** One family's way from clients to the sockets. */
export interface Front {
  readonly listeners: Listeners;
  /** The host's own addresses of the family, without those that it has for services. */
  readonly hostAddresses: () => Promise<readonly IpAddress[]>;
  /** Calls back when they change, until the signal aborts. */
  readonly watchHostAddresses: (onChange: () => void, signal: AbortSignal) => Promise<void>;
}

export interface UserspaceHost {
  /** Why a family cannot be served here; undefined: it can. */
  unsupported(family: IpFamily, config: KubeProxyConfig): ReturnType<ModeRuntime["unsupported"]>;
  /** @returns how many files and sockets the process may have open. */
  openFiles(log: Logger): number;
  open(node: NodeContext): Promise<{ frontFor(context: FamilyContext, parts: FrontParts): Promise<Front> }>;
  /** Removes what an earlier run has left. @returns whether everything worked. */
  cleanUp(log: Logger): Promise<boolean>;
}

/** That of a platform; what it speaks to is loaded with it. */
export async function userspaceHost(platform: NodeJS.Platform = process.platform): Promise<UserspaceHost> {
  return platform === "win32"
    ? (await import("./windows-host.ts")).windowsHost
    : (await import("./linux-host.ts")).linuxHost;
}
