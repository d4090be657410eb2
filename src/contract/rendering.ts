/** The requests and results of a mode's renderer: one family's part of the output of `kube-proxy render`. */

import type { Dump } from "../trace/dump/recognise.ts";
import type { KubeProxyConfig } from "./config/config.ts";
import type { OfflineNode } from "./inspect/offline-node.ts";

/** Features that the node's kernel and tools may lack, which no manifest shows. */
export const KERNEL_FEATURES = ["nfacct", "xt_bpf"] as const;
export type KernelFeature = (typeof KERNEL_FEATURES)[number];

export interface RenderRequest {
  readonly config: KubeProxyConfig;
  /** One of the mode's `renderForms` or `traceForms`. */
  readonly form: string;
  /** `namespace/name` of the only Service to show; undefined shows everything. */
  readonly service: string | undefined;
  readonly missing: ReadonlySet<KernelFeature>;
}

/** @typeParam Data the mode's plan of one family. */
export type Rendered<Data extends object = object> =
  /** `tool` names the tool that reads the text; undefined if the texts of both families can be concatenated. */
  | { readonly kind: "text"; readonly text: string; readonly tool: string | undefined }
  | { readonly kind: "data"; readonly data: Data }
  /** A program to walk without a text, only for `trace`. */
  | { readonly kind: "dump"; readonly dump: Dump }
  /** Items of both families form one document; `data` is their source. */
  | {
      readonly kind: "items";
      readonly items: readonly unknown[];
      readonly data: Data;
      document(items: readonly unknown[]): unknown;
    };

/** Prints the plan of one family. @throws Error for what the user can fix. */
export type ModeRenderer<Data extends object = object> = (
  node: OfflineNode,
  request: RenderRequest,
) => Promise<Rendered<Data>>;

/** Joins the texts of all families. */
export function joinFamilies(parts: readonly Rendered[]): string {
  const [first] = parts;
  switch (first?.kind) {
    case "items":
      return jsonText(first.document(parts.flatMap((part) => (part.kind === "items" ? part.items : []))));
    case "data": {
      const data = parts.flatMap((part) => (part.kind === "data" ? [part.data] : []));
      return jsonText(parts.length === 1 ? first.data : data);
    }
    case "text":
      return parts.length === 1 ? first.text : parts.map(titledText).join("");
    case "dump":
    case undefined:
      return "";
  }
}

function titledText(part: Rendered): string {
  if (part.kind !== "text") return "";
  return part.tool === undefined ? part.text : `# ${part.tool}\n${part.text}`;
}

const jsonText = (data: unknown): string => `${JSON.stringify(data, undefined, 2)}\n`;

/** The family's name of a tool, such as `iptables-restore` or `ip6tables-save`. */
export function toolName({ family }: OfflineNode, tool: "restore" | "save"): string {
  return `${family === "IPv4" ? "iptables" : "ip6tables"}-${tool}`;
}

/** A plan as data, with its mode, family and node. */
export function planAsData<Data extends object>(
  node: OfflineNode,
  { config }: RenderRequest,
  data: Data,
): Rendered<Data> {
  return { kind: "data", data: { mode: config.mode, family: node.family, node: node.name, ...data } };
}
