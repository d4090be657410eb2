/**
 * From the slices of a service to its endpoints: reference endpoints.md §5.2. Each slice is read once, when it is applied;
 * joining the slices of a service later neither parses nor copies what only one slice says.
 */
import { exactList } from "../cluster/exact-list.ts";
import { type EndpointRecord, type EndpointSliceRecord, objectKeyText } from "../cluster/objects.ts";
import { joinHostPort } from "../net/ip.ts";
import { type Endpoint, equalEndpoints } from "./endpoint.ts";
import type { OnProblem } from "./problem.ts";
import { servicePortKey } from "./service-port-name.ts";

/** The endpoints that one slice has for one service port. */
export interface SlicePort {
  /** {@link ServicePortName.key} */
  readonly key: string;
  readonly isUdp: boolean;
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
  const found = new Map<string, { isUdp: boolean; endpoints: Endpoint[] }>();
  for (const [index, slicePort] of record.ports.entries()) {
    const { name, protocol, port } = slicePort;
    if (port === null) {
      const facts = { endpointSlice: objectKeyText(record), field: `ports[${index}].port` };
      reader.onProblem?.("skipped an endpoint slice port without a usable number; expected 1 to 65535", facts);
      continue;
    }
    const key = servicePortKey(record.namespace, record.serviceName, name, protocol);
    let target = found.get(key);
    if (target === undefined) {
      target = { isUdp: protocol === "UDP", endpoints: [] };
      found.set(key, target);
    }
    for (const endpoint of record.endpoints) target.endpoints.push(endpointOf(endpoint, port, reader.nodeName));
  }
  const ports: SlicePort[] = [];
  for (const [key, { isUdp, endpoints }] of found) {
    if (endpoints.length === 0) continue;
    const known = before?.ports.find((port) => port.key === key);
    sortAndMerge(endpoints);
    if (known === undefined) ports.push({ key, isUdp, endpoints: exactList(endpoints) });
    else ports.push({ key: known.key, isUdp, endpoints: sharing(known.endpoints, endpoints) });
  }
  return { record, ports: exactList(ports) };
}

/**
 * The union of a service's slices by service-port key. Pure.
 *
 * @param slices in the order that decides between copies of an endpoint that are equally good: the later one wins.
 */
export function joinSlices(slices: readonly ReadSlice[]): Map<string, readonly Endpoint[]> {
  const joined = new Map<string, readonly Endpoint[]>();
  const several = new Map<string, Endpoint[]>();
  for (const slice of slices) {
    for (const { key, endpoints } of slice.ports) {
      const others = joined.get(key);
      if (others === undefined) {
        joined.set(key, endpoints);
        continue;
      }
      let all = several.get(key);
      if (all === undefined) {
        all = [...others];
        several.set(key, all);
      }
      for (const endpoint of endpoints) all.push(endpoint);
    }
  }
  for (const [key, all] of several) {
    sortAndMerge(all);
    joined.set(key, exactList(all));
  }
  return joined;
}

function endpointOf(endpoint: EndpointRecord, port: number, nodeName: string): Endpoint {
  const { address, zoneHints, nodeHints } = endpoint;
  return {
    ip: address,
    port,
    text: joinHostPort(address, port),
    isLocal: nodeName !== "" && endpoint.nodeName === nodeName,
    isReady: endpoint.ready,
    isServing: endpoint.serving,
    isTerminating: endpoint.terminating,
    zoneHints,
    nodeHints,
  };
}

/**
 * Sorts byte-wise by text and merges copies in place: a copy that is not terminating replaces what came before it, so
 * terminating never beats non-terminating. The sort is stable, which keeps "before" meaning the order of arrival.
 */
function sortAndMerge(endpoints: Endpoint[]): void {
  endpoints.sort(byText);
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

function byText(a: Endpoint, b: Endpoint): number {
  if (a.text === b.text) return 0;
  return a.text < b.text ? -1 : 1;
}
