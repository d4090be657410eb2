/** Where the pinned maps of this node lead sockets, for `kube-proxy trace` over its kernel. */
import type { KubeProxyConfig } from "../config/config.ts";
import { MODES } from "../dataplane/registry.ts";
import { nodeNameIn } from "../inspect/offline-node.ts";
import type { IpFamily } from "../net/ip.ts";
import type { TracedRules } from "./trace-rules.ts";

/** Rules of this kernel with the step of sockets before them, where maps are pinned. */
export async function withLiveSockets(
  rules: TracedRules,
  family: IpFamily,
  config: KubeProxyConfig,
): Promise<TracedRules> {
  let { notes } = rules;
  for (const { name, loadTraceStages, loadInspection } of MODES) {
    const sockets = loadTraceStages === undefined ? undefined : await (await loadInspection()).loadSockets?.();
    const live = await sockets?.live(family, config);
    if (sockets !== undefined && live?.ok === true) {
      const ownName = nodeNameIn([], config);
      const podAt = (_address: unknown, podNode: string | undefined) =>
        podNode === ownName ? { inInterface: undefined } : undefined;
      return { ...rules, dumps: [...rules.dumps, sockets.chain(live)], podAt };
    }
    // Of a mode that was not asked for, nothing is missed.
    if (live?.ok === false && config.mode === name) {
      notes = [...notes, `where sockets are led could not be read: ${live.reason}`];
    }
  }
  return { ...rules, notes };
}
