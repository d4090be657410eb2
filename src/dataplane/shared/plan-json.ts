/** `render --output json` of modes whose plan is our own data: one object that begins with what it is for. Pure. */
import type { KubeProxyConfig } from "../../config/config.ts";
import type { OfflineNode } from "../../inspect/offline-node.ts";

export function planJson({ family, name }: OfflineNode, { mode }: KubeProxyConfig, plan: object): string {
  return `${JSON.stringify({ mode, family, node: name, ...plan }, undefined, 2)}\n`;
}
