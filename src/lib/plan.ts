/**
 * `kube-proxy-ts/plan`: what a mode would program for a cluster on one node, without root and without a kernel. One call serves
 * all modes; the result depends only on the input, so that CI can compare it.
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

import { offlineNode } from "../contract/inspect/offline-node.ts";
import { joinFamilies, KERNEL_FEATURES, type KernelFeature, type ModeRenderer } from "../contract/rendering.ts";
import { modeNamed, type ProxyMode, type RegisteredMode } from "../modes/registry.ts";
import { IP_FAMILIES, type IpFamily } from "../net/ip.ts";
import { type Cluster, messageOf, requireCluster, requireListOf, requireObject } from "./cluster.ts";
import { PlanError } from "./plan-error.ts";
import { checkedSettings } from "./plan-settings.ts";

export { KERNEL_FEATURES, type KernelFeature } from "../contract/rendering.ts";
export type { ProxyMode } from "../modes/registry.ts";
export type { IpFamily } from "../net/ip.ts";
export {
  type Cluster,
  ClusterReadError,
  clusterFrom,
  formatProblem,
  type ObjectProblem,
  readCluster,
} from "./cluster.ts";
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
  /** Features that the node's kernel and tools lack. @default none */
  readonly without?: readonly KernelFeature[];
}

export interface RenderOptions {
  /** `namespace/name`: only what serves this Service. */
  readonly service?: string | undefined;
}

/** The plan of one family as the mode's own data, with mode, family and node. */
export type PlanData<M extends ProxyMode> = {
  readonly [N in M]: { readonly mode: N; readonly family: IpFamily; readonly node: string } & DataOf<N>;
}[M];

type RendererOf<M extends ProxyMode> = Awaited<
  ReturnType<Extract<RegisteredMode, { readonly name: M }>["loadRenderer"]>
>;
type DataOf<M extends ProxyMode> = RendererOf<M> extends ModeRenderer<infer Data> ? Data : never;

/** What would be programmed. */
export interface Plan<M extends ProxyMode = ProxyMode> {
  readonly mode: M;
  readonly node: string;
  readonly families: readonly IpFamily[];
  /** The forms that {@link render} supports, the default first. */
  readonly forms: readonly string[];
  /** Oddities of configuration and cluster, for people. Problems with objects are in `cluster.problems`. */
  readonly warnings: readonly string[];
  /**
   * Prints the plan. @param form one of {@link forms}. @default the first
   * @throws PlanError `form-unavailable`, `service-unknown`
   */
  render(form?: string, options?: RenderOptions): Promise<string>;
  /**
   * The plan as data, one item per family: rules, tables, virtual servers or documents, depending on the mode.
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
  const { renderForms: forms, loadRenderer } = modeNamed(config.mode);
  const renderer = await loadRenderer();
  const nodes = families.map((family) => offlineNode(cluster, config, family, (message) => warnings.add(message)));
  const parts = async (form: string, { service }: RenderOptions = {}) => {
    requireForm(config.mode, form, forms);
    if (service !== undefined) requireService(cluster, service);
    try {
      return await Promise.all(nodes.map((node) => renderer(node, { config, form, service, missing })));
    } catch (error) {
      // The configuration does not allow it: the caller must change it.
      throw new PlanError("form-unavailable", messageOf(error), { cause: error });
    }
  };
  return {
    // It is the request's mode, if that names one.
    mode: config.mode as M,
    node: nodes[0]?.name ?? config.hostnameOverride,
    families,
    forms,
    warnings: [...warnings],
    render: async (form = forms[0] ?? "", options = {}) => joinFamilies(await parts(form, options)),
    async data(options) {
      const found = await parts("json", options);
      return nodes.flatMap(({ family, name }, index) => {
        const part = found[index];
        if (part?.kind !== "data" && part?.kind !== "items") return [];
        // The renderer belongs to the mode that the caller asked for.
        return [{ ...part.data, mode: config.mode, family, node: name } as unknown as PlanData<M>];
      });
    },
  };
}

function requireForm(mode: string, form: string, forms: readonly string[]): void {
  if (forms.includes(form)) return;
  const known = forms.map((name) => `"${name}"`).join(", ");
  throw new PlanError("form-unavailable", `mode ${mode} has no form "${form}": use ${known}`);
}

function requireService({ services }: Cluster, wanted: string): void {
  if (services.some(({ namespace, name }) => `${namespace}/${name}` === wanted)) return;
  throw new PlanError("service-unknown", `no Service "${wanted}" in the cluster, or it is headless or another proxy's`);
}
