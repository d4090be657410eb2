/** What the daemon of a node has decided by itself: read from its answers, and in words. */
import { isObject, listOf } from "../../kernel/nftables/json.ts";
import { someOf } from "../../logging/some-of.ts";
import { declaredFrontends, placeText } from "../../model/frontend.ts";
import type { ManifestProblem } from "../../model/manifest-problem.ts";
import type { StandingPort } from "../../model/standing-ports.ts";
import { familyOf, type IpFamily, parseHostPort } from "../../net/ip.ts";
import type { Objects } from "./part-of-cluster.ts";

/** The Services that are defined, but not validly (`namespace/name`): why. */
export function refusedServices(problems: readonly ManifestProblem[]): ReadonlyMap<string, string> {
  const errors = problems.filter(({ severity, object }) => severity === "error" && object.startsWith("Service "));
  return new Map(errors.map(({ object, message }) => [object.slice("Service ".length), message]));
}

/** Service ports in a daemon's answer, perhaps of another version. @param why of those without a reason of their own */
export function standingIn(answer: unknown, why = ""): StandingPort[] {
  return listOf(answer).flatMap((one): StandingPort[] => {
    if (!isObject(one) || typeof one.servicePort !== "string") return [];
    const { servicePort, family = "", reason = why } = one as Pick<StandingPort, "servicePort"> & Partial<StandingPort>;
    if (!isObject(one.inForce)) return [{ servicePort, family, reason, inForce: undefined }];
    const { port, endpoints } = one.inForce as unknown as NonNullable<StandingPort["inForce"]>;
    if (!isObject(port) || !isObject(port.name) || port.name.key !== servicePort || !Array.isArray(endpoints))
      return [];
    const { lostFrontends: lost, ...rest } = port;
    const lostFrontends = lost && { lostFrontends: new Set(lost) };
    return [{ servicePort, family, reason, inForce: { port: { ...rest, ...lostFrontends }, endpoints } }];
  });
}

/** How many addresses or endpoints a sentence names. */
const NAMED = 5;

export function standingText({ servicePort, family, reason, inForce }: StandingPort): string {
  const refused = `${servicePort} is refused (${reason})`;
  if (inForce === undefined) return `${refused}: nothing is in force for it (${family})`;
  const at = declaredFrontends(inForce.port).map(placeText);
  const to = inForce.endpoints.map(({ text }) => text);
  return `${refused}: its last known good rules stand, from ${someOf(at, NAMED)} to ${to.length === 0 ? "no endpoint" : someOf(to, NAMED)} (${family})`;
}

/** Everything that the daemon of this node has decided by itself, in sentences without a full stop. */
export function decidedLines(
  { standing, leftOut }: Pick<Objects, "standing" | "leftOut">,
  node: string,
  families: readonly IpFamily[],
): readonly string[] {
  const refused =
    standing?.node === node ? standing.ports.filter(({ family }) => families.some((one) => one === family)) : [];
  const left = leftOut?.node === node ? [...leftOut.ports] : [];
  return [
    ...refused.map(standingText),
    ...left.flatMap(([servicePort, endpoints]) =>
      Array.from(endpoints).flatMap(([endpoint, why]) => {
        const end = parseHostPort(endpoint);
        return end !== undefined && families.includes(familyOf(end.address))
          ? [`${endpoint} of ${servicePort} is left out ${why}`]
          : [];
      }),
    ),
  ];
}

export const DECIDED = "Decided by the daemon here, and no difference:";
