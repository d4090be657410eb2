/** Metrics of the userspace mode; upstream's had none. */

import type { MetricFamilies } from "../../metrics/metric-families.ts";
import type { IpFamily } from "../../net/ip.ts";

/** The metrics of one family. */
export interface UserspaceMetrics {
  opened(protocol: string): void;
  closed(protocol: string): void;
  /** `in`: from the client to the endpoint. */
  bytes(protocol: string, direction: "in" | "out", count: number): void;
  dialFailed(protocol: string): void;
  refused(protocol: string): void;
}

const LABELS = ["ip_family", "protocol"] as const;

/** Defines the metrics. @returns a function that makes those of one IP family. */
export function defineUserspaceMetrics(families: MetricFamilies): (family: IpFamily) => UserspaceMetrics {
  const counter = (name: string, help: string, labels: readonly string[] = LABELS) =>
    families.counter({ name: `kubeproxy_userspace_${name}_total`, help, labels });
  const connections = counter("connections", "Connections and UDP sessions that reached an endpoint");
  const bytes = counter("bytes", "Bytes handed on, in from clients and out to them", [...LABELS, "direction"]);
  const dialFailures = counter("dial_failures", "Failed attempts to reach an endpoint");
  const refused = counter("refused_clients", "Clients sent away because there was no endpoint, or no descriptor");
  const active = families.gauge({
    name: "kubeproxy_userspace_active_connections",
    help: "Connections and UDP sessions that are alive",
    labels: LABELS,
  });
  return (family) => {
    const labels = (protocol: string) => ({ ip_family: family, protocol: protocol.toLowerCase() });
    return {
      opened(protocol) {
        connections.inc(labels(protocol));
        active.inc(labels(protocol));
      },
      closed: (protocol) => active.inc(labels(protocol), -1),
      bytes: (protocol, direction, count) => bytes.inc({ ...labels(protocol), direction }, count),
      dialFailed: (protocol) => dialFailures.inc(labels(protocol)),
      refused: (protocol) => refused.inc(labels(protocol)),
    };
  };
}
