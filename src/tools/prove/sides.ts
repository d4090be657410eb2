/** The sides that can be compared: a plan, dumps, and the specification. */

import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { Deviation } from "../../contract/deviations.ts";
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import type { ClusterRecords } from "../../model/objects.ts";
import { isJsonObject } from "../../model/projection/fields.ts";
import { familyOf, type IpAddress, type IpFamily, isLoopback } from "../../net/ip.ts";
import { deviceAddresses } from "../../trace/dump/device-addresses.ts";
import { gapsIn } from "../../trace/dump/gaps.ts";
import { programOfDumps } from "../../trace/dump/program.ts";
import type { Dump } from "../../trace/dump/recognise.ts";
import { unwalkedIn } from "../../trace/dump/unwalked.ts";
import { walkerOf } from "../../trace/dump/walk-dumps.ts";
import { type KnownRoute, type NodeFacts, nodeFacts } from "../../trace/facts.ts";
import type { Chain } from "../../trace/netfilter/program.ts";
import { type Outcome, outcomesOf, type TraceNode, type WalkOptions } from "../../trace/netfilter/tree.ts";
import { walk } from "../../trace/netfilter/walk.ts";
import { endText, type Packet } from "../../trace/packet.ts";
import { fieldsQuestion, type Question } from "../../trace/question.ts";
import { traceText } from "../../trace/report/text.ts";
import { plannedRules } from "../explain/planned-rules.ts";
import type { Ask } from "./asking.ts";
import { type Subject, UnprovableError } from "./classes.ts";
import { byHash, DROPPED, type Fate, isSameFate, joined, REFUSED, thenAgain, wayTo } from "./fate.ts";
import { type IsOfOthers, isInProxyTable, isOfProxy, nodeComponents } from "./node-components.ts";
import { endingSetting, meetingPolicy, type NodeSettings } from "./node-settings.ts";
import type { Side } from "./proof.ts";
import { specification } from "./specification.ts";
import { unreadPlaces } from "./unread-places.ts";

/** What else is known of the rules' node. */
interface Beside {
  readonly routes?: readonly KnownRoute[] | undefined;
  /** What decides beside the rules. @default not known */
  readonly settings?: NodeSettings | undefined;
  /** Whether the proxy itself drops what strangers send to loopback addresses, in KUBE-FIREWALL. @default true */
  readonly guardsLoopback?: boolean;
}

/** @param all dumps of the node; those of the other family are left out, as are its addresses. @param own all addresses of the node. */
export function rulesSide(
  name: string,
  all: readonly Dump[],
  family: IpFamily,
  own: readonly IpAddress[],
  { routes = [], settings, guardsLoopback = true }: Beside = {},
): Side {
  const dumps = all.filter((dump) => dump.kind !== "iptables" || (dump.family ?? family) === family);
  const addresses = deviceAddresses(dumps);
  const sockets = dumps.flatMap((dump) => (dump.kind === "chains" ? (dump.ownSockets ?? []) : []));
  const hasSockets = dumps.some((dump) => dump.kind === "chains" && dump.ownSockets !== undefined);
  const ofFamily = own.filter((address) => familyOf(address) === family);
  const facts = nodeFacts({ addresses: [...ofFamily, ...addresses], routes });
  const isOfOthers = nodeComponents(dumps, guardsLoopback);
  const traced = programToProve(dumps, family, facts);
  const rules = ruleFates(dumps, family, facts, undefined, traced);
  const isWhole = isOfOthers === undefined;
  let walker: ReturnType<typeof walkerOf> | undefined;
  const walked = (packet: Packet, options: WalkOptions): TraceNode => {
    walker ??= walkerOf(dumps, family, facts, { knowsClients: true, knowsDynamicSets: true });
    return walker(packet, options);
  };
  return {
    name,
    addresses,
    ...(hasSockets && { ownSockets: sockets }),
    enter: unreadPlaces(dumps).enter,
    doubts: [...gapsIn(dumps).map((gap) => `not all rules are known: ${gap}`), ...unwalkedIn(dumps, family)],
    hasSocketStage: dumps.some(
      (dump) => dump.kind === "chains" && dump.chains(facts, undefined).some(({ stage }) => stage === "socket"),
    ),
    fates: settings === undefined ? rules : rules.ending(settings),
    proxyPart: isWhole ? settings && rules : ruleFates(dumps, family, facts, isOfOthers, traced),
    whoDecides(packet, isOfProxy = false) {
      const isLeftOut = isOfProxy ? isOfOthers : undefined;
      const root = walked(packet, { record: "ends", ...(isLeftOut && { isLeftOut }) });
      for (const { fate } of outcomesOf(root)) if ("by" in fate) return fate.by;
      return undefined;
    },
    why(packet: Packet) {
      return traceText({ packet, rules: name, notes: [], root: walked(packet, {}) });
    },
  };
}

/** The rules that the configured mode plans. @throws NoRulesError */
export async function planSide(name: string, node: OfflineNode, config: KubeProxyConfig): Promise<Side> {
  const { dumps } = await plannedRules(node, config);
  return rulesSide(name, dumps, node.family, node.hostAddresses);
}

/** Whether a mode has {@link Beside.guardsLoopback}. */
export function guardsLoopback({ nodePortIPs }: OfflineNode, deviations: readonly Deviation[]): boolean {
  const isAnswered = nodePortIPs.kind === "all" || nodePortIPs.ips.some(isLoopback);
  return isAnswered && deviations.includes("loopback-node-ports");
}

/** The name of the side that says what the Services ask for. */
export const SPECIFICATION = "specification";

/** @param deviations of the mode it is compared with. @param ownSockets the proxy's sockets. */
export function specificationSide(
  cluster: ClusterRecords,
  node: OfflineNode,
  config: KubeProxyConfig,
  deviations: readonly Deviation[],
  ownSockets?: readonly Question[],
): Side {
  const { family, name, zone, hostAddresses, nodeIP, otherNodes, nodePortIPs, detector, serviceCIDRs } = node;
  const { services, endpointSlices, leftOut } = cluster;
  const meaning = specification(
    {
      ...{ family, name, zone, nodeIP, otherNodes, detector, serviceCIDRs, services, endpointSlices },
      ...{ ownSockets, leftOut: leftOut?.node === name ? leftOut.ports : undefined },
      namesLoopback: node.nodePortAddresses.namesLoopback,
      addresses: hostAddresses,
      nodePortAddresses: nodePortIPs.kind === "all" ? undefined : nodePortIPs.ips,
      masqueradesAll: config.masqueradeAll,
      hashSeed: config.balancing.seed,
    },
    new Set(deviations),
  );
  return { name: SPECIFICATION, hasSlots: deviations.includes("shares-by-slots"), ...meaning };
}

function programToProve(dumps: readonly Dump[], family: IpFamily, facts: NodeFacts) {
  return programOfDumps(dumps.map(withoutClients), { family, facts, knowsClients: true, knowsDynamicSets: true });
}

/**
 * Throws `UnprovableError` when a packet meets a rule that is not understood.
 *
 * @param facts with all node addresses. @param isLeftOut chains that are not walked. @default none
 * @param traced one for several: the same questions divide packets once.
 */
export function ruleFates(
  dumps: readonly Dump[],
  family: IpFamily,
  facts: NodeFacts,
  isLeftOut?: IsOfOthers,
  traced = programToProve(dumps, family, facts),
): Subject<Fate> & { ending(settings: NodeSettings): Subject<Fate> } {
  const [missing] = gapsIn(dumps);
  const places = unreadPlaces(dumps);
  const isOfHns = dumps.some(({ kind }) => kind === "walker");
  /** The walk of the last packet: what decides beside the rules needs no second one. */
  let last: readonly [packet: Packet, root: TraceNode] | undefined;
  return {
    fateOf(packet, asked) {
      last = [packet, rootOf(packet, asked)];
      return fateAt(last[1], packet, asked, (end) => wayText(packet, end));
    },
    ending: (settings) => ({
      fateOf(packet, asked) {
        const root = last?.[0] === packet ? last[1] : rootOf(packet, asked);
        return fateAt(root, packet, asked, (end) => {
          const isSent = end.fate.kind === "sent" || end.fate.kind === "delivered";
          const by = isSent ? endingSetting(settings, packet, end.packet, asked) : undefined;
          if (by !== undefined) return `${DROPPED} by ${by}`;
          const policy = isSent ? meetingPolicy(settings, packet, end.packet, asked) : undefined;
          if (policy !== undefined) throw new UnprovableError(`${policy} can meet it, and is not read`);
          return wayText(packet, end);
        });
      },
    }),
  };

  function fateAt(root: TraceNode, packet: Packet, asked: Ask, readWay: (end: End) => string): Fate {
    const wayOf = (end: End): string => {
      places.leave(packet, end);
      return readWay(end);
    };
    let ways: ReadonlySet<string> | undefined;
    const fate = fateIn(root, (end) => byHash(wayWithNext(end), end.hashed));
    return joined(fate);

    function wayWithNext(end: End): string {
      const way = wayOf(end);
      if (end.entries.length === 0) return way;
      for (const entry of end.entries) traced.remember(entry);
      let next: Fate;
      try {
        next = fateIn(rootOf(packet, asked), wayOf);
      } finally {
        // Also if it is not known: other packets are judged after this one.
        traced.forget();
      }
      // With only one way there is nothing to remember.
      ways ??= new Set(Array.from(outcomesOf(root), wayOf));
      return ways.size > 1 || !next.has(way) ? thenAgain(way, next) : way;
    }
  }

  function rootOf(packet: Packet, asked: Ask): TraceNode {
    if (isOfHns) throw new UnprovableError("on Windows, HNS has load balancers and no rules");
    if (missing !== undefined) throw new UnprovableError(`not all rules are known: ${missing}`);
    const observer = {
      asked,
      isFar(table: string, chain: Chain, now: Packet) {
        if (!isOfProxy(table, chain)) asked(NOTHING, now, `${table} ${chain.name}`);
      },
      unclear(what: string) {
        throw new UnprovableError(missingSet(what) ?? `${what} is not understood`);
      },
    };
    return walk(traced.program, packet, facts, { record: "ends", observer, ...(isLeftOut && { isLeftOut }) });
  }

  function missingSet(what: string): string | undefined {
    const [, name] = /^"-m set (?:! )?--match-set (\S+) /.exec(what) ?? [];
    const isGiven = dumps.some((dump) => dump.kind === "ipset" && dump.text.includes(`create ${name} `));
    return name === undefined || isGiven
      ? undefined
      : `the IP set ${name} is not in the dump (give what ipset save prints, too), and ${what} asks for it`;
  }
}

const NOTHING = fieldsQuestion([], []);

type End = Pick<Outcome, "fate" | "packet" | "entries" | "hashed">;

/** The odds of each way. @throws UnprovableError if they depend on what is not known */
function fateIn(root: TraceNode, wayOf: (end: End) => string): Fate {
  const outcomes = [...outcomesOf(root)];
  if (outcomes.every(({ assumptions }) => assumptions.length === 0))
    return sum(outcomes.map((outcome) => [wayOf(outcome), outcome.odds]));
  return fateOfNode(root, wayOf);
}

function fateOfNode({ end }: TraceNode, wayOf: (end: End) => string): Fate {
  if (end.kind === "end") return new Map([[wayOf(end), 1]]);
  const fates = end.branches.map(({ node, label, odds }) => ({ fate: fateOfNode(node, wayOf), label, odds }));
  const [one, ...others] = fates;
  if (one === undefined || end.question === undefined)
    return sum(fates.flatMap(({ fate, odds = 0 }) => [...fate].map(([way, share]) => [way, odds * share] as const)));
  const isOpen = others.some(({ fate }) => !isSameFate(one.fate, fate));
  if (isOpen) throw new UnprovableError(`it depends on whether ${one.label}${placeText(end.by)}`);
  return one.fate;
}

function sum(ways: Iterable<readonly [string, number]>): Fate {
  const fate = new Map<string, number>();
  for (const [way, odds] of ways) fate.set(way, (fate.get(way) ?? 0) + odds);
  return fate;
}

const placeText = (by: string | undefined) => (by === undefined ? "" : ` (${by})`);

function wayText(asked: Packet, { fate, packet }: End): string {
  switch (fate.kind) {
    case "uncertain":
      throw new UnprovableError(`${fate.because}${placeText(fate.by)}`);
    case "dropped":
      return DROPPED;
    case "refused":
      return REFUSED;
    default: {
      if (!packet.isSourceKnown && !packet.isMasqueraded)
        throw new UnprovableError("which source address the packet gets is not known");
      const { destination, destinationPort } = packet;
      const isChanged = destination !== asked.destination || destinationPort !== asked.destinationPort;
      const way = wayTo(isChanged ? endText(destination, destinationPort) : undefined, packet.isMasqueraded);
      return packet.isSourceTranslated && !packet.isMasqueraded ? `${way}, from ${packet.source}` : way;
    }
  }
}

/**
 * Removes the elements of sets that the proxy's rules fill: a proof starts without remembered clients. Elements of other programs' sets,
 * for example addresses that are banned for a while, stay.
 */
function withoutClients(dump: Dump): Dump {
  if (dump.kind !== "nftables") return dump;
  const emptied = (body: unknown): unknown => {
    if (!isJsonObject(body) || !isInProxyTable(`${body.family} ${body.table} `)) return body;
    const flags = [body.flags ?? []].flat();
    return flags.includes("timeout") || flags.includes("dynamic") ? { ...body, elem: [] } : body;
  };
  const objects = dump.objects.map((object) => {
    if (!isJsonObject(object)) return object;
    if (object.set !== undefined) return { set: emptied(object.set) };
    return object.map === undefined ? object : { map: emptied(object.map) };
  });
  return { ...dump, objects };
}
