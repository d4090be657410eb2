/** The eBPF mode for one family: applies one plan to the socket programs and to the rules, which handle everything else. */

import type {
  Backend,
  LedConnections,
  OnLostRules,
  SyncFailure,
  SyncInput,
  SyncOutcome,
} from "../../contract/backend.ts";
import type { IpFamily } from "../../net/ip.ts";
import type { SocketPath } from "./socket-path.ts";

export class EbpfBackend implements Backend {
  readonly mode = "ebpf";
  readonly #packetPath: Backend;
  readonly socketPath: SocketPath;

  /** @param packetPath handles what no program decides; complete on its own. */
  constructor(packetPath: Backend, socketPath: SocketPath) {
    this.#packetPath = packetPath;
    this.socketPath = socketPath;
  }

  get family(): IpFamily {
    return this.#packetPath.family;
  }

  get usesServiceCIDRs(): boolean {
    return this.#packetPath.usesServiceCIDRs ?? false;
  }

  get restMs(): number {
    return this.#packetPath.restMs ?? 0;
  }

  /** For `status`: where connections are decided, or why not at the socket. */
  get remarks(): readonly string[] {
    const { where } = this.socketPath;
    const lesser = this.degraded.map(({ subject, reason }) => `${subject}: ${reason}`);
    const ofRules = this.#packetPath.remarks ?? [];
    if (where !== undefined) return [where, ...lesser, ...ofRules];
    return [...(lesser.length > 0 ? lesser : ["nothing is decided at the socket: not synced yet"]), ...ofRules];
  }

  get degraded(): readonly SyncFailure[] {
    return [...this.socketPath.degraded, ...(this.#packetPath.degraded ?? [])];
  }

  async chainHistory() {
    return await this.#packetPath.chainHistory?.();
  }

  get led(): LedConnections {
    return this.socketPath.led;
  }

  async sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    // Maps first: they take microseconds, the packet path milliseconds. Each path is correct on its own.
    await this.socketPath.sync(input, signal);
    try {
      const { written, ...outcome } = await this.#packetPath.sync(input, signal);
      const kernelMs = this.socketPath.kernelMs + (written?.kernelMs ?? 0);
      return written === undefined ? outcome : { ...outcome, written: { ...written, kernelMs } };
    } finally {
      // Not awaited: tens of thousands of sockets take seconds. Needed even if the rules fail, because the maps are in force.
      void this.socketPath.disconnectStale(input.isFullSync);
    }
  }

  async monitor(onLost: OnLostRules, signal: AbortSignal, requestSync: () => void): Promise<void> {
    const stop = new AbortController();
    const ended = AbortSignal.any([signal, stop.signal]);
    try {
      await Promise.all([
        this.#packetPath.monitor?.(onLost, ended, requestSync),
        this.socketPath.watch(onLost, ended, requestSync),
      ]);
    } finally {
      // If one fails, both are restarted.
      stop.abort();
    }
  }

  async close(): Promise<void> {
    await this.socketPath.close();
    await this.#packetPath.close?.();
  }
}
