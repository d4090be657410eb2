/** From objects and a checked configuration to what a mode would program: the one way of the library and of `render`. */
import type { KubeProxyConfig } from "../config/config.ts";
import { modeNamed } from "../dataplane/registry.ts";
import { joinFamilies, type KernelFeature, type Rendered } from "../dataplane/rendering.ts";
import { type OfflineNode, offlineNode } from "../inspect/offline-node.ts";
import type { IpFamily } from "../net/ip.ts";
import { type Cluster, messageOf } from "./cluster.ts";
import { PlanError } from "./plan-error.ts";

export interface PlanInput {
  readonly cluster: Cluster;
  readonly families: readonly IpFamily[];
  /** What the node's kernel and tools lack. */
  readonly missing: ReadonlySet<KernelFeature>;
}

export interface RenderOptions {
  /** `namespace/name`: only what is there for this Service. */
  readonly service?: string | undefined;
}

export interface MadePlan {
  /** One for each family asked for, in that order. */
  readonly nodes: readonly OfflineNode[];
  /** @throws PlanError `form-unavailable`, `service-unknown` */
  render(form: string, options?: RenderOptions): Promise<string>;
}

/** @param warn told what is odd about the cluster, for people; the same may be told for each family. */
export async function makePlan(
  config: KubeProxyConfig,
  { cluster, families, missing }: PlanInput,
  warn: (message: string) => void,
): Promise<MadePlan> {
  const renderer = await modeNamed(config.mode).loadRenderer();
  const nodes = families.map((family) => offlineNode(cluster, config, family, warn));
  return {
    nodes,
    async render(form, { service } = {}) {
      requireForm(config, form);
      if (service !== undefined) requireService(cluster, service);
      return joinFamilies(
        await rendered(() => nodes.map((node) => renderer(node, { config, form, service, missing }))),
      );
    },
  };
}

function requireForm({ mode }: KubeProxyConfig, form: string): void {
  const { renderForms } = modeNamed(mode);
  if (renderForms.includes(form)) return;
  const known = renderForms.map((name) => `"${name}"`).join(", ");
  throw new PlanError("form-unavailable", `mode ${mode} has no form "${form}": use ${known}`);
}

/** What a configuration does not allow is the caller's to mend. */
async function rendered(render: () => readonly Promise<Rendered>[]): Promise<readonly Rendered[]> {
  try {
    return await Promise.all(render());
  } catch (error) {
    throw new PlanError("form-unavailable", messageOf(error), { cause: error });
  }
}

function requireService({ services }: Cluster, wanted: string): void {
  if (services.some(({ namespace, name }) => `${namespace}/${name}` === wanted)) return;
  throw new PlanError("service-unknown", `no Service "${wanted}" in the cluster, or it is headless or another proxy's`);
}
