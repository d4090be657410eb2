/** Where sockets are redirected, in words. */
import { someOf } from "../logging/some-of.ts";
import type { LedSocket } from "./inspection.ts";

/** One line for each fact, so that two sockets can be compared. */
export function socketLines({ clients, isRefused, endpoints, affinitySeconds }: LedSocket): readonly string[] {
  if (clients === "none") return ["takes the rules"];
  if (isRefused) return ["has no endpoints"];
  const lines = endpoints.map((endpoint) => `leads to ${endpoint}`);
  if (clients === "host") lines.push("leads the host alone");
  if (affinitySeconds > 0) lines.push(`remembers clients for ${affinitySeconds} s`);
  return lines.length === 0 ? ["leads nowhere"] : lines;
}

/** How many entries of a long list are shown. */
const SHOWN = 8;
const LEADS_TO = "leads to ";

/** The lines of {@link socketLines} as one: `leads to 10.1.0.1:80, 10.1.0.2:80`. */
export function factsText(lines: readonly string[]): string {
  const endpoints = lines.filter((line) => line.startsWith(LEADS_TO)).map((line) => line.slice(LEADS_TO.length));
  const others = lines.filter((line) => !line.startsWith(LEADS_TO));
  if (endpoints.length === 0) return others.join("; ");
  return [`${LEADS_TO}${someOf(endpoints, SHOWN)}`, ...others].join("; ");
}

export const socketText = (socket: LedSocket): string => factsText(socketLines(socket));
