/** The service table of a running daemon: a page of the matching service ports, with the state of each. */

import type { LiveDaemon, LiveFamily } from "../../agent/daemon/inspect-report.ts";
import { sortedKeys } from "../../async/sorted-keys.ts";
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import { type KnownPod, knownPods } from "../../contract/inspect/known-pods.ts";
import { DEFAULT_WEIGHT } from "../../model/cells.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { routeServicePort } from "../../model/service-port-routing.ts";
import { familyOf, ipBytes, joinHostPort, parseHostPort } from "../../net/ip.ts";
import type { ServiceFamilyRow, ServiceRow, ServiceTable } from "./answers.ts";

/** The most rows in one answer. */
export const MAX_ROWS = 200;

/** The most words in a search: each may need a look at every endpoint of the node. */
export const MAX_WORDS = 16;

/** The distinct words of a search. Of `node port 30080`, only the number distinguishes. */
export function wordsOf(search: string): readonly string[] {
  const words = [...new Set(search.toLowerCase().match(/\S+/g))].map((word) => word.replace(/^type:/, ""));
  const telling = words.filter((word) => !/^(?:node|port|pod|type)$/.test(word));
  return telling.length > 0 ? telling : words;
}

interface TableQuestion {
  /** Each must occur in the name, type, an address, a port, an endpoint, its pod or node; `is:broken`: no answer for some. */
  readonly words: readonly string[];
  /** Empty: all. */
  readonly namespace: string;
  readonly offset: number;
  readonly limit: number;
  /** One of {@link COLUMNS}, descending with a `-` before it. @default by name */
  readonly sort?: string;
}

const padded = (count: number): string => String(count).padStart(9, "0");

/** What rows are sorted by; undefined: not known. */
const COLUMNS: ReadonlyMap<string, (row: ServiceRow) => string | undefined> = new Map([
  ["name", ({ key }: ServiceRow) => key],
  ["type", ({ type }) => type],
  ["addresses", ({ families }) => addressRank(families[0]?.clusterIP ?? "")],
  ["pods", ({ families }) => families.flatMap(podsRank).sort().at(-1)],
  ["state", ({ trouble }) => trouble ?? ""],
]);

/** Whether the table has such a column. */
export const isSortable = (sort: string): boolean => sort === "" || COLUMNS.has(sort.replace(/^-/, ""));

function addressRank(text: string): string | undefined {
  const { address, port } = parseHostPort(text) ?? {};
  if (address === undefined || port === undefined) return undefined;
  return `${familyOf(address)} ${Buffer.from(ipBytes(address)).toString("hex")} ${padded(port)}`;
}

const podsRank = ({ ready, endpoints }: ServiceFamilyRow) =>
  ready === null ? [] : [padded(ready) + padded(endpoints)];

/** Equal rows stay by name. What is not known is last in both directions. */
async function sorted(rows: readonly ServiceRow[], sort: string, signal: AbortSignal): Promise<readonly ServiceRow[]> {
  const rankOf = COLUMNS.get(sort.replace(/^-/, "")) ?? (() => "");
  const isDown = sort.startsWith("-");
  const known = new Map<string, ServiceRow>();
  const others: ServiceRow[] = [];
  for (const [index, row] of rows.entries()) {
    if (isTurnDue()) await giveTurn(signal);
    const rank = rankOf(row);
    if (rank === undefined) others.push(row);
    else known.set(`${rank}\0${padded(isDown ? rows.length - index : index)}`, row);
  }
  const keys = await sortedKeys(known, signal);
  return [...(isDown ? keys.toReversed() : keys).flatMap((key) => known.get(key) ?? []), ...others];
}

/** Yields to other work meanwhile: a hundred thousand rows take a second. */
export async function serviceTable(
  daemon: LiveDaemon,
  { words: said, namespace, offset, limit, sort = "" }: TableQuestion,
  signal: AbortSignal,
): Promise<ServiceTable> {
  const words = said.filter((word) => word !== "is:broken");
  const onlyTroubled = words.length < said.length;
  const keys = await sortedKeys(new Map(daemon.families.flatMap(({ state }) => [...state.services])), signal);
  const refused = new Set(daemon.verdict().failures.map(({ subject }) => subject));
  const rows: ServiceRow[] = [];
  const namespaces = new Set<string>();
  let matching = 0;
  for (const key of keys) {
    if (isTurnDue()) await giveTurn(signal);
    const own = key.slice(0, key.indexOf("/"));
    namespaces.add(own);
    if (namespace !== "" && own !== namespace) continue;
    const families = familiesOf(daemon, key);
    if (!words.every((word) => families.some(([family, port]) => holds(word, family, port)))) continue;
    const isShown = sort !== "" || (matching >= offset && rows.length < limit);
    if (!onlyTroubled && !isShown) {
      matching += 1;
      continue;
    }
    const row = rowOf(daemon, key, families, refused);
    if (row === undefined || (onlyTroubled && row.trouble === null)) continue;
    if (isShown) rows.push(row);
    matching += 1;
  }
  const shown = sort === "" ? rows : (await sorted(rows, sort, signal)).slice(offset, offset + limit);
  return { total: keys.length, matching, offset, namespaces: [...namespaces], rows: shown };
}

export type FamilyPort = readonly [family: LiveFamily, port: ServicePort];

export function familiesOf({ families }: LiveDaemon, key: string): FamilyPort[] {
  return families.flatMap((family) => {
    const port = family.state.services.get(key);
    return port === undefined ? [] : [[family, port] as const];
  });
}

/** The pods that the EndpointSlices of the served Services name, by `namespace/name`. Yields to other work meanwhile. */
export async function podsIn(families: readonly Pick<LiveFamily, "state">[], signal?: AbortSignal) {
  const pods = new Map<string, KnownPod>();
  for (const { state } of families) {
    for (const service of new Set(Array.from(state.services.values(), ({ name }) => name.service))) {
      knownPods({ endpointSlices: state.slicesOf(service) }, pods);
      if (isTurnDue()) await giveTurn(signal);
    }
  }
  return pods;
}

function holds(word: string, { state }: LiveFamily, port: ServicePort): boolean {
  const { name, clusterIP, externalIPs, loadBalancerVIPs, nodePort, port: number } = port;
  if (name.key.toLowerCase().includes(word)) return true;
  if (`${typeOf(port)} ${port.protocol}`.toLowerCase().split(" ").includes(word)) return true;
  if (joinHostPort(clusterIP, number).includes(word) || (nodePort !== 0 && String(nodePort) === word)) return true;
  if ([...externalIPs, ...loadBalancerVIPs].some((address) => joinHostPort(address, number).includes(word)))
    return true;
  // Only searches endpoints for parts of addresses: a single digit is in every one.
  if (/[.:]/.test(word) && (state.endpoints.get(name.key) ?? []).some(({ text }) => text.includes(word))) return true;
  if (word.length < 3) return false;
  const slices = state.slicesOf(name.service);
  if (slices.some(({ endpoints }) => endpoints.some(({ nodeName }) => nodeName?.toLowerCase().includes(word))))
    return true;
  return [...knownPods({ endpointSlices: slices }).values()].some((pod) => pod.name.toLowerCase().includes(word));
}

/** The least type that the Service must have; the daemon does not keep its actual type. */
export function typeOf({
  loadBalancerVIPs,
  nodePort,
}: Pick<ServicePort, "loadBalancerVIPs" | "nodePort">): "LoadBalancer" | "NodePort" | "ClusterIP" {
  return loadBalancerVIPs.length > 0 ? "LoadBalancer" : nodePort !== 0 ? "NodePort" : "ClusterIP";
}

function rowOf(
  daemon: LiveDaemon,
  key: string,
  families: readonly FamilyPort[],
  refused: ReadonlySet<string>,
): ServiceRow | undefined {
  const [first] = families;
  if (first === undefined) return undefined;
  const { name, protocol } = first[1];
  const routed = families.map((one) => ({ ...routingOf(daemon, one), row: one }));
  const trouble = refused.has(name.text)
    ? "refused by the kernel"
    : (routed.find((one) => one.trouble !== null)?.trouble ?? null);
  const rows = routed.map(({ all, row: [{ family, state }, port] }): ServiceFamilyRow => {
    const { clusterIP, externalIPs, loadBalancerVIPs, nodePort, port: number } = port;
    const others = [...externalIPs, ...loadBalancerVIPs].map((address) => joinHostPort(address, number));
    const ready = state.slicesOf(name.service).length > 0 ? all.filter(({ isReady }) => isReady).length : null;
    return { family, clusterIP: joinHostPort(clusterIP, number), others, nodePort, endpoints: all.length, ready };
  });
  const type = typeOf({
    loadBalancerVIPs: families.flatMap(([, { loadBalancerVIPs }]) => loadBalancerVIPs),
    nodePort: Math.max(...families.map(([, { nodePort }]) => nodePort)),
  });
  const weights = new Set(routed.flatMap(({ all }) => all.map(({ weight = DEFAULT_WEIGHT }) => weight)));
  return {
    ...{ key, service: name.service, portName: name.port, protocol, type, families: rows, trouble },
    weights: weights.size > 1 ? [...weights].sort((one, other) => one - other) : [],
  };
}

/** Whether clients get an answer: 0 all, 1 some, 2 none. A port that both families serve answers some if one does. */
export function gradeOf(daemon: LiveDaemon, families: readonly FamilyPort[]): 0 | 1 | 2 {
  const grades = families.map((one) => routingOf(daemon, one).grade);
  return grades.every((grade) => grade === 2) ? 2 : grades.some((grade) => grade > 0) ? 1 : 0;
}

function routingOf({ node, zone }: LiveDaemon, [{ state }, port]: FamilyPort) {
  const all = state.endpoints.get(port.name.key) ?? [];
  const { categories, lacksLocal } = routeServicePort(port, all, { nodeName: node, zone: zone() });
  const { hasAny } = categories;
  const { internal, external } = lacksLocal;
  const grade = !hasAny || internal ? 2 : external && port.isExternallyAccessible ? 1 : 0;
  const trouble = !hasAny ? "no usable endpoint" : grade > 0 ? "no local endpoint" : null;
  return { all, grade, trouble };
}
