/**
 * Stale conntrack entries of UDP: they lead to a proxy port of an earlier run, to a Service that is gone, or past the
 * proxy because they are older than the Service. Reference userspace.md §1.6.
 */

import type { Clock } from "../../async/clock.ts";
import type { ConntrackTable, TrackedFlow } from "../../kernel/conntrack/conntrack.ts";
import type { Logger } from "../../logging/logger.ts";
import type { ServicePortName } from "../../model/service-port-name.ts";
import { type Flow, isTranslated } from "../../net/flow.ts";
import { type IpAddress, type IpFamily, joinHostPort } from "../../net/ip.ts";
import type { LanePorts } from "./plan-portal-rules.ts";
import { isServed, LANES, lanesOf, type Portal } from "./portals.ts";

/** The changed UDP portals, and the proxy ports that serve them. */
export class UdpPortals {
  /** By `ip:port`, or `*:port` for a node port; empty: no endpoint is left. */
  readonly #proxyPorts = new Map<string, readonly number[]>();
  /** The proxy ports of all served ones. */
  readonly #inUse = new Set<number>();

  get isEmpty(): boolean {
    return this.#proxyPorts.size === 0;
  }

  /** Records the former portals of a service port; {@link UdpPortals.served} overrides this. */
  lost({ protocol }: ServicePortName, portals: readonly Portal[]): void {
    if (protocol !== "UDP") return;
    for (const portal of portals) {
      const text = textOf(portal);
      if (!this.#proxyPorts.has(text)) this.#proxyPorts.set(text, []);
    }
  }

  served({ protocol }: ServicePortName, portals: readonly Portal[], proxyPorts: LanePorts): void {
    if (protocol !== "UDP") return;
    for (const port of Object.values(proxyPorts)) this.#inUse.add(port);
    // An external IP may also be the cluster IP, with another policy.
    for (const [text, same] of Map.groupBy(portals, textOf)) {
      const lanes = LANES.filter((lane) => same.some((one) => lanesOf([one]).has(lane) && isServed(one, lane)));
      this.#proxyPorts.set(
        text,
        lanes.flatMap((lane) => proxyPorts[lane] ?? []),
      );
    }
  }

  /**
   * Whether the flow goes to a portal and not to its proxy port, or reaches a proxy port through none of the portals:
   * the previous process may have used the proxy port for a Service that is gone.
   */
  isStale(flow: Flow, hostAddresses: ReadonlySet<IpAddress>): boolean {
    const { destinationIP, destinationPort, replySourceIP, replySourcePort } = flow;
    const exact = joinHostPort(destinationIP, destinationPort);
    const any = `*:${destinationPort}`;
    const text = this.#proxyPorts.has(exact) ? exact : hostAddresses.has(destinationIP) ? any : undefined;
    const proxyPorts = text === undefined ? undefined : this.#proxyPorts.get(text);
    if (proxyPorts === undefined) {
      return isTranslated(flow) && hostAddresses.has(replySourceIP) && this.#inUse.has(replySourcePort);
    }
    if (proxyPorts.length > 0) return !proxyPorts.includes(replySourcePort);
    return isTranslated(flow);
  }
}

function textOf({ address, port }: Portal): string {
  return address === undefined ? `*:${port}` : joinHostPort(address, port);
}

/** Deletes stale flows of changed portals. Never rejects: a remaining flow only delays one client until it times out. */
export type DeleteStaleFlows = (
  portals: UdpPortals,
  hostAddresses: ReadonlySet<IpAddress>,
  signal: AbortSignal,
) => Promise<void>;

/** An endpoint that rules of another mode led to may be about to answer: without the flow, the answer would be lost. */
const ANSWER_MS = 1000;

/** @param conntrack read only if UDP portals changed. */
export function staleFlowsOf(conntrack: ConntrackTable, family: IpFamily, clock: Clock, log: Logger): DeleteStaleFlows {
  return async (portals, hostAddresses, signal) => {
    if (portals.isEmpty) return;
    const isStale = (flow: Flow): boolean => portals.isStale(flow, hostAddresses);
    const isAwaited = (flow: TrackedFlow): boolean =>
      flow.isAnswered === false && isTranslated(flow) && !hostAddresses.has(flow.replySourceIP);
    if (await deleteBut(isAwaited, isStale, signal)) {
      clock.setTimer(ANSWER_MS, () => void deleteBut(() => false, isStale, signal));
    }
  };

  /** @returns whether `isLeft` kept stale flows. */
  async function deleteBut(
    isLeft: (flow: TrackedFlow) => boolean,
    isStale: (flow: Flow) => boolean,
    signal: AbortSignal,
  ): Promise<boolean> {
    if (signal.aborted) return false;
    try {
      const stale: TrackedFlow[] = [];
      await conntrack.readFlows(family, { protocol: "UDP" }, () => {
        stale.length = 0;
        return (flow) => {
          if (isStale(flow)) stale.push(flow);
        };
      });
      const ended = stale.filter((flow) => !isLeft(flow));
      for (const flow of ended) {
        if (signal.aborted) return false;
        await conntrack.deleteFlow(family, flow);
      }
      if (ended.length > 0) log.v(2, "Deleted stale UDP flows", { deleted: ended.length });
      return ended.length < stale.length;
    } catch (error) {
      log.error("Failed to delete stale UDP flows from connection tracking; some may remain", error);
      return false;
    }
  }
}
