/**
 * Real servers that are no longer wanted but still have connections: they get no new ones (weight 0) and are removed
 * when the last one has ended. Kept in memory only: after a restart they are found as unwanted real servers. Reference
 * ipvs.md §5.
 */

import type { FormerEndpoint } from "../../contract/backend.ts";
import type { Flow } from "../../net/flow.ts";
import { joinHostPort } from "../../net/ip.ts";
import { type IpvsOperation, type RealServerKey, type VirtualServerKey, virtualServerText } from "./kernel/ipvs.ts";
import type { IpvsOptions } from "./options.ts";
import { mustDrain, realServerText } from "./virtual-server-step.ts";

/** How often draining real servers are checked. There is no limit to how long one may stay. */
export const GRACE_PERIOD_MS = 60_000;

interface Draining {
  readonly virtualServer: VirtualServerKey;
  /** By {@link realServerText}. */
  readonly realServers: Map<string, RealServerKey>;
}

type Deletion = Extract<IpvsOperation, { readonly kind: "delete-real-server" }>;

export class GracefulTermination {
  readonly #draining = new Map<string, Draining>();
  readonly #options: Pick<IpvsOptions, "ipvs" | "log">;

  constructor(options: Pick<IpvsOptions, "ipvs" | "log">) {
    this.#options = options;
  }

  /** The draining real servers of a virtual server. @param key its text. */
  of(key: string): Iterable<RealServerKey> {
    return this.#draining.get(key)?.realServers.values() ?? [];
  }

  /** The draining real servers of all TCP virtual servers. */
  *endpoints(): Generator<FormerEndpoint> {
    for (const { virtualServer, realServers } of this.#draining.values()) {
      const { protocol, ...owner } = virtualServer;
      for (const endpoint of protocol === "TCP" ? realServers.keys() : []) yield { owner, endpoint };
    }
  }

  /** Whether {@link GracefulTermination.removeIdle} will perform the operation. */
  anticipates(operation: IpvsOperation): boolean {
    if (operation.kind !== "delete-real-server") return false;
    const draining = this.#draining.get(virtualServerText(operation.virtualServer));
    return draining?.realServers.has(realServerText(operation.realServer)) === true;
  }

  /** Replaces the draining real servers of a virtual server. */
  set(virtualServer: VirtualServerKey, realServers: readonly RealServerKey[]): void {
    const key = virtualServerText(virtualServer);
    if (realServers.length === 0) this.#draining.delete(key);
    else {
      const byText = new Map(realServers.map((server) => [realServerText(server), server]));
      this.#draining.set(key, { virtualServer, realServers: byText });
    }
  }

  /** Forgets a virtual server that is gone. */
  forget(key: string): void {
    this.#draining.delete(key);
  }

  /** Removes real servers without connections. Throws if the kernel does not answer. */
  async removeIdle(signal: AbortSignal): Promise<void> {
    const { ipvs, log } = this.#options;
    const deletions: Deletion[] = [];
    for (const [key, { virtualServer, realServers }] of this.#draining) {
      const present = await ipvs.realServers(virtualServer, signal);
      const byText = new Map(present?.map((server) => [realServerText(server), server]));
      for (const [text, realServer] of realServers) {
        const there = byText.get(text);
        if (there === undefined) {
          const gone = new Error(`no real server ${text} of ${key}`);
          log.error("Another program removed a real server before its connections ended", gone);
          this.#remove(key, text);
        } else if (!mustDrain(virtualServer, there)) {
          deletions.push({ kind: "delete-real-server", virtualServer, realServer });
        }
      }
    }
    await this.#delete(deletions, signal);
  }

  /** Removes the draining real servers of these TCP flows; the kernel ends their connections with the next packet. */
  async removeNow(flows: readonly Flow[]): Promise<void> {
    const deletions = new Map<RealServerKey, Deletion>();
    for (const { protocol, destinationIP, destinationPort, replySourceIP, replySourcePort } of flows) {
      const key = virtualServerText({ protocol, address: destinationIP, port: destinationPort });
      const { virtualServer, realServers } = this.#draining.get(key) ?? {};
      const realServer = realServers?.get(joinHostPort(replySourceIP, replySourcePort));
      if (virtualServer === undefined || realServer === undefined) continue;
      deletions.set(realServer, { kind: "delete-real-server", virtualServer, realServer });
    }
    await this.#delete([...deletions.values()]);
  }

  async #delete(deletions: readonly Deletion[], signal?: AbortSignal): Promise<void> {
    if (deletions.length === 0) return;
    const { ipvs, log } = this.#options;
    const failures = await ipvs.apply(deletions, signal);
    const failed = new Set<IpvsOperation>(failures.map(({ operation }) => operation));
    for (const operation of deletions) {
      if (failed.has(operation)) continue;
      this.#remove(virtualServerText(operation.virtualServer), realServerText(operation.realServer));
    }
    for (const { message } of failures) {
      log.error("Failed to remove a draining real server; will try again", new Error(message));
    }
  }

  #remove(key: string, text: string): void {
    const draining = this.#draining.get(key);
    draining?.realServers.delete(text);
    if (draining?.realServers.size === 0) this.#draining.delete(key);
  }
}
