/** Metrics that only the eBPF mode has. */

import type { MetricFamilies } from "../../metrics/metric-families.ts";
import type { IpFamily } from "../../net/ip.ts";

/** The metrics of one IP family. */
export interface EbpfMetrics {
  /** 1 while programs decide about connections of the node's processes. */
  readonly attached: { set(value: number): void };
  /** Service ports that the maps could not hold. */
  readonly passedPorts: { set(value: number): void };
  /** Connected UDP sockets that were disconnected because their endpoint was gone. */
  readonly disconnected: { inc(count: number): void };
}

/** Defines the families and returns the function that creates the metrics of one IP family. */
export function defineEbpfMetrics(families: MetricFamilies): (family: IpFamily) => EbpfMetrics {
  const attached = families.gauge({
    name: "kubeproxy_ebpf_attached",
    help: "Whether connections of this node's processes and pods are decided at the socket",
    labels: ["ip_family"],
  });
  const passedPorts = families.gauge({
    name: "kubeproxy_ebpf_passed_service_ports",
    help: "Service ports that take the rules because the kernel did not take them into the maps",
    labels: ["ip_family"],
  });
  const disconnected = families.counter({
    name: "kubeproxy_ebpf_udp_sockets_disconnected_total",
    help: "Connected UDP sockets that were disconnected because their endpoint was gone",
    labels: ["ip_family"],
  });
  return (family) => ({
    disconnected: { inc: (count) => disconnected.inc({ ip_family: family }, count) },
    attached: { set: (value) => attached.set({ ip_family: family }, value) },
    passedPorts: { set: (value) => passedPorts.set({ ip_family: family }, value) },
  });
}
