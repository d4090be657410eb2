/** Requests to a mode's renderer and its results: one family's part of the output of `kube-proxy render`. */
import type { KubeProxyConfig } from "../config/config.ts";
import type { OfflineNode } from "../inspect/offline-node.ts";
import type { Dump } from "../trace/dump/recognise.ts";

/** What the node's kernel and tools may lack, which no manifest tells. */
export const KERNEL_FEATURES = ["nfacct"] as const;
export type KernelFeature = (typeof KERNEL_FEATURES)[number];

export interface RenderRequest {
  readonly config: KubeProxyConfig;
  /** One of the mode's `renderForms` or `traceForms`. */
  readonly form: string;
  /** `namespace/name` of the only Service to show; undefined shows everything. */
  readonly service: string | undefined;
  readonly missing: ReadonlySet<KernelFeature>;
}

/** @typeParam Data the plan of one family, as the mode has it. */
export type Rendered<Data extends object = object> =
  /** `tool` names what reads the text; undefined when texts of both families can simply follow each other. */
  | { readonly kind: "text"; readonly text: string; readonly tool: string | undefined }
  | { readonly kind: "data"; readonly data: Data }
  /** What is walked without a text: for `trace` alone. */
  | { readonly kind: "dump"; readonly dump: Dump }
  /** Items of both families make up one document; `data` is what they are made of. */
  | {
      readonly kind: "items";
      readonly items: readonly unknown[];
      readonly data: Data;
      document(items: readonly unknown[]): unknown;
    };

/** Prints the plan of one family. @throws Error for what the user can mend. */
export type ModeRenderer<Data extends object = object> = (
  node: OfflineNode,
  request: RenderRequest,
) => Promise<Rendered<Data>>;

/** The text of all families. Pure. */
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

/** `iptables-restore` or `ip6tables-save`: a tool by the name that it has for the family. Pure. */
export function toolName({ family }: OfflineNode, tool: "restore" | "save"): string {
  return `${family === "IPv4" ? "iptables" : "ip6tables"}-${tool}`;
}

/** A plan as data, with whose it is. Pure. */
export function planAsData<Data extends object>(
  node: OfflineNode,
  { config }: RenderRequest,
  data: Data,
): Rendered<Data> {
  return { kind: "data", data: { mode: config.mode, family: node.family, node: node.name, ...data } };
}
