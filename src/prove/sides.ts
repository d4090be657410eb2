/** The sides that can be compared: a plan, dumps, and the specification. */
import type { ClusterRecords } from "../cluster/manifests/read-manifests.ts";
import { isJsonObject } from "../cluster/projection/fields.ts";
import type { KubeProxyConfig } from "../config/config.ts";
import type { Deviation } from "../dataplane/deviations.ts";
import { plannedRules } from "../explain/planned-rules.ts";
import type { OfflineNode } from "../inspect/offline-node.ts";
import type { IpAddress, IpFamily } from "../net/ip.ts";
import { deviceAddresses } from "../trace/dump/device-addresses.ts";
import { programOfDumps } from "../trace/dump/program.ts";
import type { Dump } from "../trace/dump/recognise.ts";
import { unwalkedChain } from "../trace/dump/unwalked.ts";
import { walkDumps } from "../trace/dump/walk-dumps.ts";
import { type KnownRoute, type NodeFacts, nodeFacts } from "../trace/facts.ts";
import { type Outcome, outcomesOf } from "../trace/netfilter/tree.ts";
import { walk } from "../trace/netfilter/walk.ts";
import { endText, type Packet } from "../trace/packet.ts";
import type { Question } from "../trace/question.ts";
import { traceText } from "../trace/report/text.ts";
import { type Subject, UnprovableError } from "./classes.ts";
import { DROPPED, type Fate, REFUSED, thenAgain, wayTo } from "./fate.ts";
import type { Side } from "./proof.ts";
import { specification } from "./specification.ts";

/** @param own all addresses of the node. */
export function rulesSide(
  name: string,
  dumps: readonly Dump[],
  family: IpFamily,
  own: readonly IpAddress[],
  routes: readonly KnownRoute[] = [],
): Side {
  const addresses = deviceAddresses(dumps);
  const sockets = dumps.flatMap((dump) => (dump.kind === "chains" ? (dump.ownSockets ?? []) : []));
  const hasSockets = dumps.some((dump) => dump.kind === "chains" && dump.ownSockets !== undefined);
  const facts = nodeFacts({ addresses: [...own, ...addresses], routes });
  return {
    name,
    addresses,
    ...(hasSockets && { ownSockets: sockets }),
    hasSocketStage: dumps.some(
      (dump) => dump.kind === "chains" && dump.chains(facts, undefined).some(({ stage }) => stage === "socket"),
    ),
    fates: ruleFates(dumps, family, facts),
    why(packet: Packet) {
      const root = walkDumps(dumps, packet, facts, { knowsClients: true, knowsDynamicSets: true });
      return traceText({ packet, rules: name, notes: [], root });
    },
  };
}

/** The rules that the configured mode plans. @throws NoRulesError */
export async function planSide(name: string, node: OfflineNode, config: KubeProxyConfig): Promise<Side> {
  const { dumps } = await plannedRules(node, config);
  return rulesSide(name, dumps, node.family, node.hostAddresses);
}

/** @param deviations of the mode it is compared with. @param ownSockets the proxy's sockets. */
export function specificationSide(
  cluster: ClusterRecords,
  node: OfflineNode,
  config: KubeProxyConfig,
  deviations: readonly Deviation[],
  ownSockets?: readonly Question[],
): Side {
  const { family, name, zone, hostAddresses, nodeIP, nodePortIPs, detector, serviceCIDRs } = node;
  const { services, endpointSlices } = cluster;
  const meaning = specification(
    {
      ...{ family, name, zone, nodeIP, detector, serviceCIDRs, services, endpointSlices },
      ownSockets,
      namesLoopback: node.nodePortAddresses.namesLoopback,
      addresses: hostAddresses,
      nodePortAddresses: nodePortIPs.kind === "all" ? undefined : nodePortIPs.ips,
      masqueradesAll: config.masqueradeAll,
    },
    new Set(deviations),
  );
  return { name: "specification", hasSlots: deviations.includes("shares-by-slots"), ...meaning };
}

/** Throws `UnprovableError` when a packet meets a rule that is not understood. @param facts with all node addresses. */
export function ruleFates(dumps: readonly Dump[], family: IpFamily, facts: NodeFacts): Subject<Fate> {
  const own = dumps.map(withoutClients);
  const stranger = strangerIn(dumps);
  const traced = programOfDumps(own, { family, facts, knowsClients: true, knowsDynamicSets: true });
  return {
    fateOf(packet, asked) {
      if (stranger !== undefined) throw new UnprovableError(stranger);
      const outcomes = Array.from(waysOf(packet, asked), (outcome) => ({ ...outcome, way: wayText(packet, outcome) }));
      const hasChoice = outcomes.some(({ way }) => way !== outcomes[0]?.way);
      const fate = new Map<string, number>();
      for (const { odds, entries, way: first } of outcomes) {
        let way = first;
        if (entries.length > 0) {
          for (const entry of entries) traced.remember(entry);
          const next = sum([...waysOf(packet, asked)].map((other) => [wayText(packet, other), other.odds]));
          // With only one way there is nothing to remember.
          if (hasChoice || !next.has(way)) way = thenAgain(way, next);
          traced.forget();
        }
        fate.set(way, (fate.get(way) ?? 0) + odds);
      }
      return fate;
    },
  };

  function waysOf(packet: Packet, asked: (question: Question, packet: Packet) => void): Generator<Outcome> {
    const observer = {
      asked,
      unclear(what: string) {
        throw new UnprovableError(`${what} is not understood`);
      },
    };
    return outcomesOf(walk(traced.program, packet, facts, { record: "ends", observer }));
  }
}

/** Rules that packets meet but a walk cannot follow, in words. */
function strangerIn(dumps: readonly Dump[]): string | undefined {
  if (dumps.some(({ kind }) => kind === "walker")) return "load balancers of HNS are not rules";
  const [gap] = dumps.flatMap((dump) => (dump.kind === "nftables" ? (dump.gaps ?? []) : []));
  if (gap !== undefined) return `not all rules are known: ${gap}`;
  return unwalkedChain(dumps);
}

function sum(ways: Iterable<readonly [string, number]>): Fate {
  const fate = new Map<string, number>();
  for (const [way, odds] of ways) fate.set(way, (fate.get(way) ?? 0) + odds);
  return fate;
}

function wayText(asked: Packet, { fate, packet, assumptions }: Outcome): string {
  const [assumption] = assumptions;
  if (assumption !== undefined) throw new UnprovableError(`it depends on whether ${assumption}`);
  switch (fate.kind) {
    case "uncertain":
      throw new UnprovableError(fate.because);
    case "dropped":
      return DROPPED;
    case "refused":
      return REFUSED;
    default: {
      const { destination, destinationPort } = packet;
      const isChanged = destination !== asked.destination || destinationPort !== asked.destinationPort;
      const way = wayTo(isChanged ? endText(destination, destinationPort) : undefined, packet.isMasqueraded);
      return packet.isSourceTranslated && !packet.isMasqueraded ? `${way}, from ${packet.source}` : way;
    }
  }
}

/**
 * Removes the elements of sets that rules fill: a proof starts without remembered clients. Programs fill the other sets whose
 * elements expire, for example with addresses that are banned for a while; those stay.
 */
function withoutClients(dump: Dump): Dump {
  if (dump.kind !== "nftables") return dump;
  let filled: ReadonlySet<string> | undefined;
  const emptied = (body: unknown): unknown => {
    if (!isJsonObject(body)) return body;
    const flags = [body.flags ?? []].flat();
    if (!flags.includes("timeout") && !flags.includes("dynamic")) return body;
    filled ??= setsFilledIn(dump.objects);
    return filled.has(`${body.family} ${body.table} ${body.name}`) ? { ...body, elem: [] } : body;
  };
  const objects = dump.objects.map((object) => {
    if (!isJsonObject(object)) return object;
    if (object.set !== undefined) return { set: emptied(object.set) };
    return object.map === undefined ? object : { map: emptied(object.map) };
  });
  return { ...dump, objects };
}

/** A statement that fills a set from packets; nft 1.0.6 prints it as text. */
const FILLS = /"(?:set|map)":"@([^"]+)"|"(?:add|update) @(\S+) \{/g;

/** Sets and maps that rules fill, as `family table name`. */
function setsFilledIn(objects: readonly unknown[]): ReadonlySet<string> {
  const found = new Set<string>();
  for (const object of objects) {
    const rule = isJsonObject(object) ? object.rule : undefined;
    if (!isJsonObject(rule)) continue;
    for (const [, json, text] of JSON.stringify(rule.expr ?? []).matchAll(FILLS))
      found.add(`${rule.family} ${rule.table} ${json ?? text}`);
  }
  return found;
}
