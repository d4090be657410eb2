/**
 * What the daemon itself needs from the node's kernel, in every mode. The code that speaks to Linux is loaded on Linux
 * only; elsewhere Node.js provides what is needed.
 */
import { once } from "node:events";
import { networkInterfaces } from "node:os";
import { type ConntrackTable, NO_CONNTRACK } from "../../kernel/conntrack/conntrack.ts";
import type { ConntrackSettings } from "../../kernel/conntrack/tuning.ts";
import type { AddressWatch } from "../../kernel/route/address-watch.ts";
import type { LocalAddresses } from "../../kernel/route/addresses.ts";
import type { Logger } from "../../logging/logger.ts";
import type { Flow } from "../../net/flow.ts";
import { familyOf, parseIpAddress } from "../../net/ip.ts";

export interface NodeKernel {
  /** One subscription for all families and the mode. */
  readonly addressWatch: Pick<AddressWatch, "watch">;
  readonly localAddresses: LocalAddresses;
  /** For modes that use connection tracking. */
  openConntrack(): ConntrackTable;
  /** Ends the clients' sockets of connections on this machine. @returns the connections that it ended. */
  readonly endTcpClients: (flows: readonly Flow[]) => Promise<ReadonlySet<Flow>>;
  tuneConntrack(settings: ConntrackSettings, log: Logger): Promise<void>;
  /** @returns how many files and connections this process may have open. */
  raiseFileLimit(): number;
}

/** The kernel of this node. */
export async function nodeKernel(platform: NodeJS.Platform = process.platform): Promise<NodeKernel> {
  return platform === "linux" ? (await import("./linux-kernel.ts")).linuxKernel() : ELSEWHERE;
}

/** Addresses are read on request, and not watched. */
const ELSEWHERE: NodeKernel = {
  addressWatch: {
    async watch(_onChange, signal) {
      if (!signal.aborted) await once(signal, "abort");
    },
  },
  async localAddresses(family) {
    const entries = Object.values(networkInterfaces()).flatMap((found) => found ?? []);
    const addresses = entries.map(({ address }) => parseIpAddress(address)).filter((address) => address !== undefined);
    return [...new Set(addresses)].filter((address) => familyOf(address) === family);
  },
  openConntrack: () => NO_CONNTRACK,
  endTcpClients: async () => new Set(),
  async tuneConntrack() {},
  raiseFileLimit: () => Number.POSITIVE_INFINITY,
};
