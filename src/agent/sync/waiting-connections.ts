/** Connections that still wait for the first answer of an endpoint. */
import type { ConntrackTable, TrackedFlow } from "../../kernel/conntrack/conntrack.ts";
import { familyOf, parseHostPort } from "../../net/ip.ts";

/**
 * Deletes the entries of TCP connections to an endpoint, as `ip:port`, that were never answered: the rules then choose again for the
 * next SYN of each. Call it when no rule chooses the endpoint any more. @returns how many were deleted.
 */
export async function forgetUnanswered(conntrack: ConntrackTable, endpoint: string): Promise<number> {
  const { address, port } = parseHostPort(endpoint) ?? {};
  if (address === undefined) return 0;
  const family = familyOf(address);
  const waiting: TrackedFlow[] = [];
  // The kernel could compare the endpoint, too, but some versions invert that for IPv6.
  await conntrack.readFlows(family, { protocol: "TCP", isTranslated: true, isUnanswered: true }, () => {
    waiting.length = 0;
    return (flow) => {
      if (flow.replySourceIP === address && flow.replySourcePort === port) waiting.push(flow);
    };
  });
  let deleted = 0;
  for (const flow of waiting) if (await conntrack.deleteFlow(family, flow)) deleted += 1;
  return deleted;
}
