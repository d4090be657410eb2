/**
 * The slices of a service → its endpoints (reference endpoints.md §5.2). Each slice is read once, when it is applied;
 * joining the slices of a service later neither parses nor copies lists that come from a single slice.
 */

import { exactList } from "../net/compact.ts";
import { joinHostPort } from "../net/ip.ts";
import { DEFAULT_WEIGHT } from "./cells.ts";
import type { Endpoint } from "./endpoint.ts";
import { type EndpointRecord, type EndpointSliceRecord, equalLists, objectKeyText } from "./objects.ts";
import { servicePortKey } from "./service-port-name.ts";
import type { OnProblem } from "./service-ports.ts";

/** An accepted slice and its endpoints. */
export interface ReadSlice {
  readonly record: EndpointSliceRecord;
  readonly ports: readonly {
    /** {@link ServicePortName.key} */
    readonly key: string;
    /** Sorted by text, without duplicates, never empty. */
    readonly endpoints: readonly Endpoint[];
  }[];
}

export interface SliceReader {
  /** Name of this node; empty if unknown, and then no endpoint is local. */
  readonly nodeName: string;
  readonly onProblem?: OnProblem | undefined;
}

/**
 * Reads a slice. Skips and reports ports without a number.
 *
 * @param before the previous result for the slice: unchanged parts are reused.
 */
export function readSlice(record: EndpointSliceRecord, reader: SliceReader, before?: ReadSlice): ReadSlice {
  const found = new Map<string, { readonly key: string; endpoints: Endpoint[] }>();
  for (const [index, { name, protocol, port }] of record.ports.entries()) {
    if (port === null) {
      const facts = { endpointSlice: objectKeyText(record), field: `ports[${index}].port` };
      reader.onProblem?.("skipped an endpoint slice port without a usable number; expected 1 to 65535", facts);
      continue;
    }
    const key = servicePortKey(record.namespace, record.serviceName, name, protocol);
    const known = before?.ports.find((one) => one.key === key);
    const knownByText = new Map(known?.endpoints.map((endpoint) => [endpoint.text, endpoint]));
    const target = found.get(key) ?? { key: known?.key ?? key, endpoints: [] };
    found.set(key, target);
    for (const endpoint of record.endpoints) {
      target.endpoints.push(endpointOf(endpoint, port, record.weight, reader.nodeName, knownByText));
    }
  }
  const ports = record.endpoints.length === 0 ? [] : [...found.values()];
  for (const port of ports) port.endpoints = sortedAndMerged(port.endpoints);
  return { record, ports: exactList(ports) };
}

/**
 * The union of a service's slices by service-port key.
 *
 * @param slices of equally good copies of an endpoint, the one in the last slice wins.
 */
export function joinSlices(slices: readonly ReadSlice[]): Map<string, readonly Endpoint[]> {
  const joined = new Map<string, readonly Endpoint[]>();
  const several = new Map<string, Endpoint[]>();
  for (const { ports } of slices) {
    for (const { key, endpoints } of ports) {
      const first = joined.get(key);
      const all = several.get(key);
      if (first === undefined) joined.set(key, endpoints);
      else if (all === undefined) several.set(key, [...first, ...endpoints]);
      else for (const endpoint of endpoints) all.push(endpoint);
    }
  }
  for (const [key, all] of several) joined.set(key, sortedAndMerged(all));
  return joined;
}

/** @param known the slice's previous endpoints for the port, by text: an equal one is reused. */
function endpointOf(
  endpoint: EndpointRecord,
  port: number,
  weight: number | undefined,
  nodeName: string,
  known: ReadonlyMap<string, Endpoint>,
): Endpoint {
  const { address, zoneHints, nodeHints } = endpoint;
  const text = joinHostPort(address, port);
  const isLocal = nodeName !== "" && endpoint.nodeName === nodeName;
  const same = known.get(text);
  if (same?.isLocal === isLocal && same.weight === weight && says(same, endpoint)) return same;
  return {
    ip: address,
    port,
    text,
    isLocal,
    isReady: endpoint.ready,
    isServing: endpoint.serving,
    isTerminating: endpoint.terminating,
    zoneHints,
    nodeHints,
    ...(weight !== undefined && { weight }),
  };
}

/** Whether an endpoint has the same conditions and hints as a record. */
function says(endpoint: Endpoint, { ready, serving, terminating, zoneHints, nodeHints }: EndpointRecord): boolean {
  return (
    endpoint.isReady === ready &&
    endpoint.isServing === serving &&
    endpoint.isTerminating === terminating &&
    equalLists(endpoint.zoneHints, zoneHints) &&
    equalLists(endpoint.nodeHints, nodeHints)
  );
}

/**
 * Sorts byte-wise by text and merges duplicates: a copy that is not terminating replaces earlier copies, so terminating
 * never beats non-terminating. The sort is stable, so "earlier" refers to the order of the slices. The larger weight counts.
 */
function sortedAndMerged(endpoints: Endpoint[]): Endpoint[] {
  endpoints.sort((a, b) => (a.text === b.text ? 0 : a.text < b.text ? -1 : 1));
  let kept = 0;
  for (const endpoint of endpoints) {
    const last = endpoints[kept - 1];
    if (last?.text !== endpoint.text) endpoints[kept++] = endpoint;
    else endpoints[kept - 1] = withLargerWeight(endpoint.isTerminating ? last : endpoint, last, endpoint);
  }
  endpoints.length = kept;
  return exactList(endpoints);
}

/** @param chosen one of the two copies of an endpoint. */
function withLargerWeight(chosen: Endpoint, one: Endpoint, other: Endpoint): Endpoint {
  if (one.weight === other.weight) return chosen;
  const weight = Math.max(one.weight ?? DEFAULT_WEIGHT, other.weight ?? DEFAULT_WEIGHT);
  return chosen.weight === weight ? chosen : { ...chosen, weight };
}
