/** The mode's operating system: how clients get to its sockets. */
import type { KubeProxyConfig } from "../../config/config.ts";
import type { Logger } from "../../logging/logger.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import type { Relays } from "../../relay/relay.ts";
import type { FamilyContext, ModeRuntime, NodeContext } from "../dataplane.ts";
import type { Listeners } from "./listeners.ts";
import type { ServiceRelays } from "./service-relays.ts";

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
