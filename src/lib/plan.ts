/**
 * `kube-proxy-ts/plan`: what a mode would program for a cluster on one node, without root and without a kernel. One call for
 * all modes; it depends on its input alone, so that it can be compared in CI.
 *
 * @experimental Names and shapes may change with any version before 1.0. The rules themselves are kube-proxy's.
 *
 * @example
 * ```ts
 * import { clusterFrom, plan } from "kube-proxy-ts/plan";
 *
 * const cluster = clusterFrom([
 *   {
 *     apiVersion: "v1",
 *     kind: "Service",
 *     metadata: { namespace: "shop", name: "web" },
 *     spec: { clusterIP: "10.96.0.10", clusterIPs: ["10.96.0.10"], ipFamilies: ["IPv4"], ports: [{ port: 80 }] },
 *   },
 * ]);
 * const rules = await plan({ cluster, node: "node-a", mode: "nftables", families: ["IPv4"] });
 * console.log(rules.forms, (await rules.render("text")).includes("10.96.0.10"));
 * ```
 */
import { modeNamed, type ProxyMode } from "../dataplane/registry.ts";
import { KERNEL_FEATURES, type KernelFeature } from "../dataplane/rendering.ts";
import { IP_FAMILIES, type IpFamily } from "../net/ip.ts";
import { type Cluster, requireCluster, requireListOf, requireObject } from "./cluster.ts";
import { makePlan, type PlanData, type RenderOptions } from "./make-plan.ts";
import { checkedSettings } from "./plan-settings.ts";

export type { ProxyMode } from "../dataplane/registry.ts";
export { KERNEL_FEATURES, type KernelFeature } from "../dataplane/rendering.ts";
export type { IpFamily } from "../net/ip.ts";
export {
  type Cluster,
  ClusterReadError,
  clusterFrom,
  formatProblem,
  type ObjectProblem,
  readCluster,
} from "./cluster.ts";
export type { PlanData, RenderOptions } from "./make-plan.ts";
export { PlanError, type PlanErrorCode } from "./plan-error.ts";

/** The cluster to plan, the node and the mode. */
export interface PlanRequest<M extends ProxyMode = ProxyMode> {
  readonly cluster: Cluster;
  /** @default `hostnameOverride` of the configuration, else the cluster's only Node, else this host's name */
  readonly node?: string;
  /** @default that of the configuration, else iptables */
  readonly mode?: M;
  /** A KubeProxyConfiguration: a file's text or bytes, or an object, in which `apiVersion` and `kind` may be left out. */
  readonly config?: string | Uint8Array | object;
  /** @default both */
  readonly families?: readonly IpFamily[];
  /** What the node's kernel and tools lack. @default nothing */
  readonly without?: readonly KernelFeature[];
}

/** What would be programmed. */
export interface Plan<M extends ProxyMode = ProxyMode> {
  readonly mode: M;
  readonly node: string;
  readonly families: readonly IpFamily[];
  /** Forms that {@link render} knows, the default first. */
  readonly forms: readonly string[];
  /** Oddities of configuration and cluster, for people. Problems with objects are in `cluster.problems`. */
  readonly warnings: readonly string[];
  /**
   * Prints the plan. @param form one of {@link forms}; the first when it is left out.
   * @throws PlanError `form-unavailable`, `service-unknown`
   */
  render(form?: string, options?: RenderOptions): Promise<string>;
  /**
   * The plan as data, one for each family: rules, tables, virtual servers, documents, as the mode has them.
   * @throws PlanError `service-unknown`
   */
  data(options?: RenderOptions): Promise<readonly PlanData<M>[]>;
}

/**
 * Plans a cluster for one node.
 *
 * @throws PlanError `input-invalid`, `config-decode`, `config-invalid`
 * @experimental
 */
export async function plan<M extends ProxyMode = ProxyMode>(request: PlanRequest<M>): Promise<Plan<M>> {
  requireObject("request", request, "an object that has a cluster");
  const { cluster, families = IP_FAMILIES, without = [] } = request;
  requireCluster(cluster);
  requireListOf("families", families, IP_FAMILIES);
  requireListOf("without", without, KERNEL_FEATURES);
  const { config, warnings: configWarnings } = await checkedSettings(request);
  const warnings = new Set(configWarnings);
  const missing = new Set(without);
  const made = await makePlan(config, { cluster, families, missing }, (message) => warnings.add(message));
  const forms = modeNamed(config.mode).renderForms;
  return {
    // The mode of the request, if it names one.
    mode: config.mode as M,
    node: made.nodes[0]?.name ?? config.hostnameOverride,
    families,
    forms,
    warnings: [...warnings],
    render: (form = forms[0] ?? "", options = {}) => made.render(form, options),
    data: (options) => made.data<M>(options),
  };
}
