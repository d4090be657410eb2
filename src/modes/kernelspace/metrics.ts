/** Failed HNS calls for load balancers, under upstream's names (Kubernetes 1.37, kubernetes #137767). */

import type { MetricFamilies } from "../../metrics/metric-families.ts";
import type { IpFamily } from "../../net/ip.ts";
import { HcnError } from "./hcn/hcn-error.ts";
import type { LoadBalancerKind } from "./plan-service-port.ts";

const VERBS = ["create", "update", "delete"] as const;
export type LoadBalancerVerb = (typeof VERBS)[number];

/** The metrics of this mode, for one family. */
export interface KernelspaceMetrics {
  countFailure(verb: LoadBalancerVerb, kind: LoadBalancerKind, error: unknown): void;
}

const TYPES = {
  "cluster-ip": "clusterip",
  "node-port": "nodeport",
  "external-ip": "externalip",
  "load-balancer": "ingressip",
  "health-check": "healthcheck",
} as const satisfies Record<LoadBalancerKind, string>;

const ERRORS: ReadonlyMap<number, string> = new Map([
  [0x803b_0001, "network_not_found"],
  [0x803b_0013, "port_already_exists"],
  [0x8000_4001, "not_implemented"],
  [0x803b_001e, "invalid_ip"],
]);

/** Defines the metrics. @returns a function that makes those of one IP family. */
export function defineKernelspaceMetrics(families: MetricFamilies): (family: IpFamily) => KernelspaceMetrics {
  const counters = Object.fromEntries(
    VERBS.map((verb) => {
      const name = `kubeproxy_sync_proxy_rules_winkernel_lb_${verb}_failures_total`;
      const help = `Cumulative proxy winkernel lb ${verb} failures`;
      return [verb, families.counter({ name, help, labels: ["ip_family", "lb_type", "error"] })];
    }),
  );
  return (family) => ({
    countFailure(verb, kind, error) {
      const known = error instanceof HcnError ? ERRORS.get(error.code) : undefined;
      counters[verb]?.inc({ ip_family: family, lb_type: TYPES[kind], error: known ?? "other" });
    },
  });
}
