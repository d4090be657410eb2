/** From objects and a checked configuration to what a mode would program: the one way of the library and of `render`. */
import type { KubeProxyConfig } from "../config/config.ts";
import { modeNamed, type ProxyMode, type RegisteredMode } from "../dataplane/registry.ts";
import { joinFamilies, type KernelFeature, type ModeRenderer, type Rendered } from "../dataplane/rendering.ts";
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
  data<M extends ProxyMode>(options?: RenderOptions): Promise<readonly PlanData<M>[]>;
}

/** The plan of one family as data, as its mode has it, with whose it is. */
export type PlanData<M extends ProxyMode> = {
  readonly [N in M]: { readonly mode: N; readonly family: IpFamily; readonly node: string } & DataOf<N>;
}[M];

type RendererOf<M extends ProxyMode> = Awaited<
  ReturnType<Extract<RegisteredMode, { readonly name: M }>["loadRenderer"]>
>;
type DataOf<M extends ProxyMode> = RendererOf<M> extends ModeRenderer<infer Data> ? Data : never;

/** @param warn called with each oddity of the cluster, for people; perhaps once for each family. */
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
    async data<M extends ProxyMode>(options?: RenderOptions) {
      const found = await parts("json", options);
      return nodes.flatMap(({ family, name }, index) => {
        const part = found[index];
        if (part?.kind !== "data" && part?.kind !== "items") return [];
        // The renderer is that of the mode, which the caller asked for.
        return [{ ...part.data, mode: config.mode, family, node: name } as unknown as PlanData<M>];
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
