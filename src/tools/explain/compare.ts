/** What differs for clients between two explanations of one service port: for `--what-if` and `diff`. */
import { isDeepStrictEqual } from "node:util";
import { movedInOrder, movedShare } from "../../model/moved-share.ts";
import type { Placed } from "../../model/sparse-tables.ts";
import { findMode } from "../../modes/registry.ts";
import { parseHostPort } from "../../net/ip.ts";
import {
  type Encounter,
  type ExplainedEndpoint,
  type ExplainedFrontend,
  isUsed,
  type Policies,
  type PortExplanation,
} from "./explanation.ts";
import { encounterWords, frontendTitle, HASH_WORDS, POSITION_WORDS, shareText } from "./words.ts";

/** One change, in words. */
export interface ClientChange {
  /** `namespace/name:port protocol` */
  readonly servicePort: string;
  readonly node: string;
  readonly family: string;
  readonly what: string;
}

/** Equal for explanations of the same service port and family. */
export function identityOf({ servicePort, protocol, family }: PortExplanation): string {
  return `${servicePort} ${protocol} ${family}`;
}

/**
 * Compares two explanations of the same service port, node and family.
 *
 * @param before undefined: the service port is new. @param after undefined: it is gone.
 */
export function clientChanges(before: PortExplanation | undefined, after: PortExplanation | undefined): ClientChange[] {
  const either = after ?? before;
  if (either === undefined) return [];
  const { servicePort, protocol, node, family } = either;
  const change = (what: string): ClientChange => ({ servicePort: `${servicePort} ${protocol}`, node, family, what });
  if (before === undefined) return [change(`is new, at ${addresses(either)}`)];
  if (after === undefined) return [change(`is gone from ${addresses(either)}`)];
  return [
    ...frontendChanges(before.frontends, after.frontends),
    ...endpointChanges(before.endpoints, after.endpoints),
    ...policyChanges(before.policies, after.policies),
    ...balancingChanges(before, after),
  ].map(change);
}

function addresses({ frontends }: PortExplanation): string {
  return frontends.map(frontendTitle).join(", ");
}

function frontendChanges(before: readonly ExplainedFrontend[], after: readonly ExplainedFrontend[]): string[] {
  return pairsBy(frontendTitle, before, after).flatMap(([title, was, is]) => {
    if (is === undefined) return `${title} is gone`;
    return was === undefined ? `${title} is new` : frontendChange(title, was, is);
  });
}

/** What has the same name in both lists, in the order of the second, after what is in the first alone. */
export function pairsBy<One>(nameOf: (one: One) => string, before: readonly One[], after: readonly One[]) {
  const old = new Map(before.map((one) => [nameOf(one), one]));
  const current = new Map(after.map((one) => [nameOf(one), one]));
  const names = [...[...old.keys()].filter((name) => !current.has(name)), ...current.keys()];
  return names.map((name) => [name, old.get(name), current.get(name)] as const);
}

function frontendChange(title: string, before: ExplainedFrontend, after: ExplainedFrontend): string[] {
  if (before.owner !== after.owner) {
    return [`${title} now belongs to ${after.owner ?? "this service port"}`];
  }
  const met = encounterChanges(before, after, (was, is) => changeWords(title, was, is));
  return before.answersAt === after.answersAt
    ? met
    : [`${title} now answers at ${after.answersAt ?? "no address"}`, ...met];
}

/** One line for all positions with the same change. @param words describes a change; undefined: there is none. */
function encounterChanges(
  before: ExplainedFrontend,
  after: ExplainedFrontend,
  words: (was: Encounter, is: Encounter) => string | undefined,
): string[] {
  const groups = Map.groupBy(after.clients.entries(), ([index, encounter]) => {
    const old = before.clients[index];
    return old && words(old, encounter);
  });
  return [...groups].flatMap(([said, group]) => {
    const positions = group.map(([, { position }]) => POSITION_WORDS[position]);
    return said === undefined ? [] : [`from ${positions.join(", ")}: ${said}`];
  });
}

function changeWords(title: string, before: Encounter, after: Encounter): string | undefined {
  const [was, is] = [encounterWords(before), encounterWords(after)];
  if (was === is) return undefined;
  const answered = { before: before.outcome === "answered", after: after.outcome === "answered" };
  if (answered.before && !answered.after) return `no longer answers at ${title}: ${is}`;
  if (!answered.before && answered.after) return `now answers at ${title}: ${is}`;
  return `${title} is now ${is} (before: ${was})`;
}

function endpointChanges(before: readonly ExplainedEndpoint[], after: readonly ExplainedEndpoint[]): string[] {
  return pairsBy(({ address }) => address, before, after).flatMap(([address, was, is]) => {
    if (is === undefined) return `endpoint ${address} is gone`;
    const use = isUsed(is) ? "used" : `left out: ${is.cluster?.why ?? is.local?.why ?? "no client asks for it"}`;
    if (was === undefined) return `endpoint ${address} is new${isUsed(is) ? "" : `, and ${use}`}`;
    if (isUsed(was) !== isUsed(is)) return `endpoint ${address} is now ${use}`;
    return useChanges(was, is).map((change) => `endpoint ${address} ${change}`);
  });
}

/** What changes under one policy alone. */
function useChanges(before: ExplainedEndpoint, after: ExplainedEndpoint): string[] {
  return (["Cluster", "Local"] as const).flatMap((policy) => {
    const [was, is] = [before, after].map(({ cluster, local }) => (policy === "Cluster" ? cluster : local));
    if (!was || !is) return [];
    const where = `where the policy is ${policy}`;
    if (was.used !== is.used) return is.used ? `is now used ${where}` : `is now left out ${where}: ${is.why}`;
    if (!is.used || is.share === was.share || after.weight === before.weight) return [];
    return `now gets ${shareText(is.share)} of new connections (before: ${shareText(was.share)}) ${where}`;
  });
}

/** The policies in words, by what begins the sentence of a change. */
const POLICIES: Readonly<Record<string, (policies: Policies) => string>> = {
  "session affinity is now": ({ sessionAffinity, affinitySeconds }) =>
    sessionAffinity === "None" ? "None" : `${sessionAffinity} for ${affinitySeconds} seconds`,
  "load-balancer addresses are now for": ({ sourceRanges }) => sourceRanges.join(", ") || "everyone",
  "the load balancer's health check is now": ({ healthCheckNodePort, localReady }) =>
    healthCheckNodePort === 0 ? "none" : `${localReady > 0 ? 200 : 503} at port ${healthCheckNodePort}`,
};

function policyChanges(before: Policies, after: Policies): string[] {
  return Object.entries(POLICIES).flatMap(([what, words]) => {
    const [was, is] = [words(before), words(after)];
    return was === is ? [] : `${what} ${is} (before: ${was})`;
  });
}

/** Which clients get another endpoint by their hash. */
function balancingChanges(before: PortExplanation, after: PortExplanation): string[] {
  const [was, is] = [before.balancing, after.balancing];
  const words = (one: typeof is) => (one === undefined ? "without a hash" : HASH_WORDS[one.hash]);
  if (was?.hash !== is?.hash) return [`endpoints are now chosen ${words(is)} (before: ${words(was)})`];
  if (was === undefined || is === undefined) return [];
  if (was.seed !== is.seed) return [`the seed of the hash is now ${is.seed} (before: ${was.seed}): most clients move`];
  return (["Cluster", "Local"] as const).flatMap((policy) => {
    const [old, current] = [usedBy(before, policy), usedBy(after, policy)];
    if (old.length === 0 || current.length === 0 || isDeepStrictEqual(old, current)) return [];
    const hashes = findMode(after.mode)?.hashes;
    const where = `where the policy is ${policy}`;
    if (hashes === "in-kernel") return [`which clients move ${where} is not known: the hash is the kernel's own`];
    const share = (hashes === "in-turn" ? movedInOrder : movedShare)(old, current, is.seed);
    if (share < NO_SHARE) return [];
    const percent = share < 0.0005 ? "less than 0.1 %" : shareText(share);
    return [`${percent} of ${is.hash === "FlowHash" ? "flows" : "clients"} move to another endpoint ${where}`];
  });
}

/** Below it, a share is a sum of rounding errors. */
const NO_SHARE = 1e-9;

function usedBy({ endpoints }: PortExplanation, policy: "Cluster" | "Local"): Placed[] {
  return endpoints.flatMap(({ address: text, weight, cluster, local }) => {
    const at = (policy === "Cluster" ? cluster : local)?.used === true ? parseHostPort(text) : undefined;
    if (at === undefined) return [];
    return [{ ip: at.address, port: at.port, ...(weight !== undefined && { weight }) }];
  });
}
