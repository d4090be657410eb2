/**
 * From the slices of a service to its endpoints: reference endpoints.md §5.2. Each slice is read once, when it is applied;
 * joining the slices of a service later neither parses nor copies what only one slice says.
 */

import { type EndpointRecord, type EndpointSliceRecord, objectKeyText } from "../cluster/objects.ts";
import { exactList } from "../net/exact-list.ts";
import { joinHostPort } from "../net/ip.ts";
import { type Endpoint, equalEndpoints } from "./endpoint.ts";
import { equalOptionalLists } from "./equal-lists.ts";
import type { OnProblem } from "./problem.ts";
import { servicePortKey } from "./service-port-name.ts";

/** The endpoints that one slice has for one service port. */
interface SlicePort {
  /** {@link ServicePortName.key} */
  readonly key: string;
  /** Sorted by text, one per text, never empty. */
  readonly endpoints: readonly Endpoint[];
}

/** An accepted slice and what it means. */
export interface ReadSlice {
  readonly record: EndpointSliceRecord;
  readonly ports: readonly SlicePort[];
}

export interface SliceReader {
  /** Name of this node; empty when unknown, then no endpoint is local. */
  readonly nodeName: string;
  readonly onProblem?: OnProblem | undefined;
}

/**
 * Reads a slice. Ports without a number are skipped and reported, the rest counts. Pure.
 *
 * @param before what the slice meant before: of that, what has not changed is the same object.
 */
export function readSlice(record: EndpointSliceRecord, reader: SliceReader, before?: ReadSlice): ReadSlice {
  // Nearly every slice has one port: a list is cheaper than a map.
  const found: { readonly key: string; readonly endpoints: Endpoint[] }[] = [];
  for (let index = 0; index < record.ports.length; index += 1) {
    const slicePort = record.ports[index];
    if (slicePort === undefined) continue;
    const { name, protocol, port } = slicePort;
    if (port === null) {
      const facts = { endpointSlice: objectKeyText(record), field: `ports[${index}].port` };
      reader.onProblem?.("skipped an endpoint slice port without a usable number; expected 1 to 65535", facts);
      continue;
    }
    const key = servicePortKey(record.namespace, record.serviceName, name, protocol);
    let target = withKey(found, key);
    if (target === undefined) {
      target = { key, endpoints: [] };
      found.push(target);
    }
    const known = withKey(before?.ports, key)?.endpoints;
    for (const endpoint of record.endpoints) target.endpoints.push(endpointOf(endpoint, port, reader.nodeName, known));
  }
  const ports: SlicePort[] = [];
  for (const { key, endpoints } of found) {
    if (endpoints.length === 0) continue;
    const known = withKey(before?.ports, key);
    sortAndMerge(endpoints);
    if (known === undefined) ports.push({ key, endpoints: exactList(endpoints) });
    else ports.push({ key: known.key, endpoints: sharing(known.endpoints, endpoints) });
  }
  return { record, ports: exactList(ports) };
}

function withKey<P extends { readonly key: string }>(ports: readonly P[] = [], key: string): P | undefined {
  for (const port of ports) if (port.key === key) return port;
  return undefined;
}

/**
 * The union of a service's slices by service-port key. Pure.
 *
 * @param slices in the order that decides between copies of an endpoint that are equally good: the later one wins.
 */
export function joinSlices(slices: readonly ReadSlice[]): Map<string, readonly Endpoint[]> {
  const joined = new Map<string, readonly Endpoint[]>();
  let several: Map<string, Endpoint[]> | undefined;
  for (const slice of slices) {
    for (const { key, endpoints } of slice.ports) {
      const others = joined.get(key);
      if (others === undefined) {
        joined.set(key, endpoints);
        continue;
      }
      several ??= new Map();
      let all = several.get(key);
      if (all === undefined) {
        all = [...others];
        several.set(key, all);
      }
      for (const endpoint of endpoints) all.push(endpoint);
    }
  }
  for (const [key, all] of several ?? []) {
    sortAndMerge(all);
    joined.set(key, exactList(all));
  }
  return joined;
}

/** Among more than so many an endpoint is not looked for before it is made. */
const FEW = 16;

/** @param known those that the slice had before: one that says the same is given, and none made. */
function endpointOf(
  endpoint: EndpointRecord,
  port: number,
  nodeName: string,
  known: readonly Endpoint[] | undefined,
): Endpoint {
  const { address, zoneHints, nodeHints } = endpoint;
  const isLocal = nodeName !== "" && endpoint.nodeName === nodeName;
  if (known !== undefined && known.length <= FEW) {
    for (const candidate of known) {
      if (candidate.ip !== address || candidate.port !== port || candidate.isLocal !== isLocal) continue;
      if (says(candidate, endpoint)) return candidate;
    }
  }
  return {
    ip: address,
    port,
    text: joinHostPort(address, port),
    isLocal,
    isReady: endpoint.ready,
    isServing: endpoint.serving,
    isTerminating: endpoint.terminating,
    zoneHints,
    nodeHints,
  };
}

/** Whether an endpoint has the conditions and hints of a record. */
function says(endpoint: Endpoint, { ready, serving, terminating, zoneHints, nodeHints }: EndpointRecord): boolean {
  return (
    endpoint.isReady === ready &&
    endpoint.isServing === serving &&
    endpoint.isTerminating === terminating &&
    equalOptionalLists(endpoint.zoneHints, zoneHints) &&
    equalOptionalLists(endpoint.nodeHints, nodeHints)
  );
}

/**
 * Sorts byte-wise by text and merges copies in place: a copy that is not terminating replaces what came before it, so
 * terminating never beats non-terminating. The sort is stable, which keeps "before" meaning the order of arrival.
 */
function sortAndMerge(endpoints: Endpoint[]): void {
  if (endpoints.length <= FEW) sortFew(endpoints);
  else endpoints.sort(byText);
  let kept = 0;
  for (const endpoint of endpoints) {
    const last = endpoints[kept - 1];
    if (kept === 0 || last?.text !== endpoint.text) endpoints[kept++] = endpoint;
    else if (!endpoint.isTerminating) endpoints[kept - 1] = endpoint;
  }
  endpoints.length = kept;
}

/** The endpoints, with those of `before` where they are equal. Both are sorted by text. */
function sharing(before: readonly Endpoint[], endpoints: readonly Endpoint[]): readonly Endpoint[] {
  let at = 0;
  const shared = exactList(endpoints);
  for (const [index, endpoint] of endpoints.entries()) {
    let candidate = before[at];
    while (candidate !== undefined && candidate.text < endpoint.text) candidate = before[++at];
    if (candidate !== undefined && equalEndpoints(candidate, endpoint)) shared[index] = candidate;
  }
  return shared;
}

/** Stable; the engine's own sort makes several lists for any number. */
function sortFew(endpoints: Endpoint[]): void {
  for (let next = 1; next < endpoints.length; next += 1) {
    const moved = endpoints[next];
    if (moved === undefined) continue;
    let at = next;
    for (let left = endpoints[at - 1]; left !== undefined && left.text > moved.text; left = endpoints[at - 1]) {
      endpoints[at] = left;
      at -= 1;
    }
    endpoints[at] = moved;
  }
}

function byText(a: Endpoint, b: Endpoint): number {
  if (a.text === b.text) return 0;
  return a.text < b.text ? -1 : 1;
}
