/** Where this node's kernel leads sockets at the addresses of service ports, for `explain --kernel`. */

import { socketLines } from "../dataplane/socket-words.ts";
import { joinHostPort } from "../net/ip.ts";
import type { ExplainedCluster } from "./explained-cluster.ts";
import type { PortExplanation } from "./explanation.ts";

/**
 * The same explanations with what sockets meet; unchanged in modes that lead none.
 * @param warn told what could not be read.
 */
export async function withSockets(
  { families, config }: ExplainedCluster,
  explanations: readonly PortExplanation[],
  warn: (message: string) => void,
): Promise<readonly PortExplanation[]> {
  const sockets = await families[0]?.inspection.loadSockets?.();
  if (sockets === undefined) return explanations;
  const found = new Map<string, Awaited<ReturnType<typeof sockets.live>>>();
  for (const { node } of families) {
    const live = await sockets.live(node.family, config);
    found.set(node.family, live);
    if (!live.ok) warn(`where sockets are led could not be read (${node.family}): ${live.reason}`);
  }
  return explanations.map((own) => {
    const live = found.get(own.family);
    if (live?.ok !== true) return own;
    const frontends = own.frontends.map((one) => {
      // Another service port has it.
      if (one.owner !== null) return one;
      const place = one.address === null ? `*:${one.port}` : joinHostPort(one.address, one.port);
      const led = live.sockets.get(`${own.protocol} ${place}`);
      return { ...one, sockets: led === undefined ? ["takes the rules"] : socketLines(led) };
    });
    return { ...own, frontends };
  });
}
