/** What a socket meets, in words. Pure. */
import type { LedSocket } from "../dataplane/inspection.ts";

/** A line for each fact, so that two can be compared. */
export function socketLines({ clients, isRefused, endpoints, affinitySeconds }: LedSocket): readonly string[] {
  if (clients === "none") return ["takes the rules"];
  if (isRefused) return ["has no endpoints"];
  const lines = endpoints.map((endpoint) => `leads to ${endpoint}`);
  if (clients === "host") lines.push("leads the host alone");
  if (affinitySeconds > 0) lines.push(`remembers clients for ${affinitySeconds} s`);
  return lines.length === 0 ? ["leads nowhere"] : lines;
}
