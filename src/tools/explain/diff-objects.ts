/**
 * What a change of manifests does on each node: to clients, in words, and to the rules. It only examines Services that differ, and
 * those that share an address with them, so that the cost follows the change.
 */

import { someOf } from "../../logging/some-of.ts";
import { nodeNameFrom } from "../../model/node-identity.ts";
import { objectKeyText } from "../../model/objects.ts";
import { type AllNodesRequest, nodesText, SHOWN } from "./all-nodes.ts";
import { type ClientChange, clientChanges, identityOf, pairsBy } from "./compare.ts";
import { diffInventories, type OwnedDifference } from "./diff-dumps.ts";
import { allPortKeys, type ExplainedCluster, explainedCluster, explainPorts } from "./explained-cluster.ts";
import { type Objects, partOf, withNeighbours } from "./part-of-cluster.ts";
import { wantedInventories } from "./wanted.ts";

interface DiffRequest extends Omit<AllNodesRequest, "onNode"> {
  /** Node names; undefined: every Node that both sides have. */
  readonly nodes: readonly string[] | undefined;
  /** Called often. @param done nodes, the last one in part */
  readonly onStep?: (done: number, total: number) => Promise<void>;
}

/** What changes on one node. */
export interface NodeDiff {
  readonly node: string;
  readonly clients: readonly ClientChange[];
  readonly rules: readonly OwnedDifference[];
}

export interface ObjectsDiff {
  readonly nodes: readonly NodeDiff[];
  /** Nodes that only one side has. */
  readonly nodesAdded: readonly string[];
  readonly nodesRemoved: readonly string[];
}

export async function diffObjects(before: Objects, after: Objects, request: DiffRequest): Promise<ObjectsDiff> {
  const [old, current] = [namesOf(before), namesOf(after)];
  const common = [...old.intersection(current)].sort();
  // Without any Node, the viewpoint is this host, as in `render`.
  const named = request.nodes?.map((name) => nodeNameFrom(name, name));
  const chosen: readonly (string | undefined)[] = named ?? (common.length > 0 ? common : [undefined]);
  const changed = changedServices(before, after);
  const nodes: NodeDiff[] = [];
  for (const [done, node] of chosen.entries()) {
    const onPart = async (part: number) => await request.onStep?.(done + part, chosen.length);
    await onPart(0);
    const affected = isNodeChanged(before, after, node) ? undefined : changed;
    if (affected?.size === 0) continue;
    nodes.push(await diffNode(partOf(before, affected), partOf(after, affected), node, { ...request, onPart }));
  }
  return {
    nodes: nodes.filter(({ clients, rules }) => clients.length + rules.length > 0),
    nodesAdded: [...current.difference(old)].sort(),
    nodesRemoved: [...old.difference(current)].sort(),
  };
}

async function diffNode(
  before: Objects,
  after: Objects,
  node: string | undefined,
  { config, families, warn, isBare = false, onPart }: DiffRequest & { onPart(part: number): Promise<void> },
): Promise<NodeDiff> {
  const here = node === undefined ? config : { ...config, hostnameOverride: node };
  const [old, current] = await Promise.all([
    explainedCluster(before, here, families, warn, { isBare }),
    explainedCluster(after, here, families, warn, { isBare }),
  ]);
  const [wasWanted, isWanted] = await Promise.all([wantedInventories(old), wantedInventories(current)]);
  return {
    node: current.families[0]?.node.name ?? "",
    clients: await clientsOf(old, current, onPart),
    rules: [...diffInventories(isWanted, wasWanted, current)],
  };
}

async function clientsOf(
  before: ExplainedCluster,
  after: ExplainedCluster,
  onPart: (part: number) => Promise<void>,
): Promise<ClientChange[]> {
  const keys = [...new Set([...allPortKeys(before), ...allPortKeys(after)])].sort();
  let done = 0;
  async function* inTurn() {
    for (const key of keys) {
      await onPart(done++ / keys.length / 2);
      yield key;
    }
  }
  const [old, current] = [await explainPorts(before, inTurn()), await explainPorts(after, inTurn())];
  const pairs = pairsBy(identityOf, old, current).sort(([one], [other]) => (one < other ? -1 : 1));
  return pairs.flatMap(([, was, is]) => clientChanges(was, is));
}

function namesOf({ nodes }: Objects): ReadonlySet<string> {
  return new Set(nodes.map(({ name }) => name));
}

function isNodeChanged(before: Objects, after: Objects, name: string | undefined): boolean {
  const [old, current] = [before, after].map(({ nodes, serviceCIDRs }) =>
    JSON.stringify([nodes.find((node) => name === undefined || node.name === name), serviceCIDRs]),
  );
  return old !== current;
}

/** `namespace/name` of Services that differ, or whose slices do, and of those that share an address with them. */
function changedServices(before: Objects, after: Objects): ReadonlySet<string> {
  const [old, current] = [contents(before), contents(after)];
  const all = [...current.keys(), ...old.keys()];
  const changed = new Set(all.filter((service) => old.get(service) !== current.get(service)));
  return withNeighbours([...before.services, ...after.services], changed);
}

function contents({ services, endpointSlices }: Objects): ReadonlyMap<string, string> {
  const texts = new Map<string, string>();
  const add = (service: string, text: string) => texts.set(service, `${texts.get(service) ?? ""}\n${text}`);
  for (const service of services) add(objectKeyText(service), JSON.stringify(service));
  const sorted = [...endpointSlices].sort((a, b) => (objectKeyText(a) < objectKeyText(b) ? -1 : 1));
  for (const slice of sorted) {
    add(
      `${slice.namespace}/${slice.serviceName}`,
      JSON.stringify({ ...slice, resourceVersion: "", lastChangeTriggerTime: "" }),
    );
  }
  return texts;
}

/** For people: changes for clients first, then those of the rules. @param compared how many nodes were compared. */
export function objectsDiffText({ nodes, nodesAdded, nodesRemoved }: ObjectsDiff, compared = nodes.length): string {
  const lines: string[] = [];
  if (nodesAdded.length > 0) lines.push(`new nodes: ${nodesText(nodesAdded, 0)}`);
  if (nodesRemoved.length > 0) lines.push(`nodes that are gone: ${nodesText(nodesRemoved, 0)}`);
  const changes = nodes.flatMap(({ clients }) => clients);
  for (const [servicePort, own] of Map.groupBy(changes, (change) => change.servicePort)) {
    lines.push(servicePort);
    /** What changes, by where: `on node-a, IPv4`. */
    const byPlace = new Map<string, string[]>();
    for (const [what, same] of Map.groupBy(own, (change) => change.what)) {
      const byNode = Map.groupBy(same, ({ node }) => node);
      const familiesOf = (node: string) => [...new Set(byNode.get(node)?.map(({ family }) => family))].join(" and ");
      for (const [families, names] of Map.groupBy(byNode.keys(), familiesOf)) {
        const place = `on ${nodesText([...names], compared)}, ${families}`;
        byPlace.set(place, [...(byPlace.get(place) ?? []), what]);
      }
    }
    for (const [place, changes] of byPlace) lines.push(...manyAtOnce(changes).map((what) => `  ${place}: ${what}`));
  }
  const changed = nodes.filter(({ rules }) => rules.length > 0);
  if (changed.length > SHOWN) {
    const rules = changed.flatMap((one) => one.rules);
    lines.push(
      `rules on ${nodesText(
        changed.map(({ node }) => node),
        compared,
      )}: ${rulesText(rules)} in all`,
    );
  } else for (const { node, rules } of changed) lines.push(`rules of ${node}: ${rulesText(rules)}`);
  return lines.map((line) => `${line}\n`).join("");
}

/** `100 endpoints are gone: 10.1.0.1:80, 10.1.0.2:80 and 98 more` */
function manyAtOnce(changes: readonly string[]): string[] {
  const groups = Map.groupBy(changes, (what) => /^endpoint \S+ is (.*)$/.exec(what)?.[1] ?? what);
  return Array.from(groups, ([rest, own]) => {
    if (own.length <= SHOWN) return own;
    const addresses = own.map((what) => what.split(" ")[1] ?? "");
    return [`${own.length} endpoints are ${rest}: ${someOf(addresses, 2)}`];
  }).flat();
}

function rulesText(rules: readonly OwnedDifference[]): string {
  const [added, removed] = [count(rules, "missing"), count(rules, "extra")];
  const places = rules.length === 1 ? "1 chain, set or server" : `${rules.length} chains, sets or servers`;
  return `${added} ${added === 1 ? "line" : "lines"} more, ${removed} fewer, in ${places}`;
}

function count(rules: readonly OwnedDifference[], side: "missing" | "extra"): number {
  return rules.reduce((sum, difference) => sum + difference[side].length, 0);
}
