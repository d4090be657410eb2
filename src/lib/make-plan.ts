/** From objects and a checked configuration to what a mode would program: the one way of the library and of `render`. */
import type { KubeProxyConfig } from "../config/config.ts";
import { modeNamed } from "../dataplane/registry.ts";
import { type DeclaredPlans, joinFamilies, type KernelFeature, type Rendered } from "../dataplane/rendering.ts";
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
  /** One for each family. @throws PlanError `form-unavailable`, `service-unknown` */
  data(options?: RenderOptions): Promise<readonly AnyPlan[]>;
}

/** The plan of each mode, as data. */
export type AnyPlan = DeclaredPlans[keyof DeclaredPlans];

/** @param warn told what is odd about the cluster, for people; the same may be told for each family. */
export async function makePlan(
  config: KubeProxyConfig,
  { cluster, families, missing }: PlanInput,
  warn: (message: string) => void,
): Promise<MadePlan> {
  const renderer = await modeNamed(config.mode).loadRenderer();
  const nodes = families.map((family) => offlineNode(cluster, config, family, warn));
  const parts = async (form: string, { service }: RenderOptions = {}): Promise<readonly Rendered[]> => {
    requireForm(config, form);
    if (service !== undefined) requireService(cluster, service);
    return await rendered(() => nodes.map((node) => renderer(node, { config, form, service, missing })));
  };
  return {
    nodes,
    render: async (form, options) => joinFamilies(await parts(form, options)),
    async data(options) {
      const found = await parts("json", options);
      return nodes.flatMap(({ family, name }, index) => {
        const part = found[index];
        if (part?.kind !== "data" && part?.kind !== "items") return [];
        // The mode's own declaration says what its renderer gives.
        return [{ ...part.data, mode: config.mode, family, node: name } as AnyPlan];
      });
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
