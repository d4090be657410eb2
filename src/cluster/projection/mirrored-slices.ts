/**
 * core/v1 Endpoints → the EndpointSlices that the endpointslice-mirroring controller would create: one per address
 * family and set of ports; `addresses` are ready, `notReadyAddresses` are not; at most 1,000 addresses per subset; the
 * service name is that of the Endpoints object. Source: the controller's documented behaviour (KEP-0752 and its flag
 * `--mirroring-max-endpoints-per-subset`).
 *
 * There are two differences, because no controller runs here. Slice names end in a digest of family and ports instead
 * of random letters, so the same ports yield the same slice. Endpoints of Services with a selector count too, because
 * dumps of old clusters contain nothing else.
 */

import { familyOf, type IpFamily, parseIpAddress, specialAddress } from "../../net/ip.ts";
import type { EndpointRecord, EndpointSlicePort, EndpointSliceRecord } from "../objects.ts";
import { contentDigest } from "./content-digest.ts";
import { readPorts } from "./endpoint-slice.ts";
import { type JsonObject, listField, objectField, portField } from "./fields.ts";
import { conclude, type Findings, type Projection, refuse, warn } from "./findings.ts";
import { beginObject, readName, readNamespace, sharedNodeName } from "./metadata.ts";
import { DNS_SUBDOMAIN_RULE } from "./names.ts";
import { podOfTargetRef } from "./pod.ts";

/** The controller's default limit of addresses per subset. */
export const MAX_ADDRESSES_PER_SUBSET = 1000;

interface SliceDraft {
  readonly addressType: IpFamily;
  readonly ports: readonly EndpointSlicePort[];
  readonly endpoints: EndpointRecord[];
}

/**
 * Projects an Endpoints object; the caller checks `isEndpointsSelected`. Drops invalid addresses, and those beyond the
 * limit, with a warning.
 *
 * @param keepsPods keeps pod names, which the daemon does not need.
 */
export function projectEndpoints(raw: unknown, keepsPods = false): Projection<readonly EndpointSliceRecord[]> {
  const { found, object, metadata } = beginObject(raw);
  const namespace = readNamespace(found, metadata);
  const name = readName(found, metadata, "label");
  const drafts = new Map<string, SliceDraft>();
  const podNamespace = keepsPods ? namespace : undefined;
  for (const [index, item] of listField(found, object.subsets, "subsets").entries()) {
    const path = `subsets[${index}]`;
    addSubset(found, drafts, objectField(found, item, path), { path, podNamespace });
  }
  const slices = [...drafts].map(([key, draft]) => finish(namespace, name, key, draft));
  return conclude(found, Object.freeze(slices));
}

function finish(namespace: string, name: string, key: string, draft: SliceDraft): EndpointSliceRecord {
  const endpoints = Object.freeze(draft.endpoints);
  return Object.freeze({
    namespace,
    name: `${name}-${contentDigest(key)
      .toLowerCase()
      .replaceAll(/[^a-z0-9]/g, "0")
      .slice(0, 8)}`,
    serviceName: name,
    addressType: draft.addressType,
    ports: draft.ports,
    endpoints,
    lastChangeTriggerTime: "",
    resourceVersion: contentDigest(JSON.stringify([draft.ports, endpoints])),
  });
}

function addSubset(
  found: Findings,
  drafts: Map<string, SliceDraft>,
  subset: JsonObject,
  { path, podNamespace }: { readonly path: string; readonly podNamespace: string | undefined },
): void {
  const ports = readPorts(found, subset.ports, `${path}.ports`, portField);
  const portsKey = JSON.stringify(ports.map((port) => [port.name, port.protocol, port.port]).sort());
  let room = MAX_ADDRESSES_PER_SUBSET;
  for (const [list, isReady] of [["addresses", true] as const, ["notReadyAddresses", false] as const]) {
    const items = listField(found, subset[list], `${path}.${list}`);
    for (const [index, item] of items.entries()) {
      if (room === 0) {
        const message = `is beyond the ${MAX_ADDRESSES_PER_SUBSET} addresses of a subset that are mirrored; the rest is left out (write EndpointSlices instead)`;
        warn(found, `${path}.${list}[${index}]`, message, item);
        break;
      }
      const endpoint = readAddress(found, item, `${path}.${list}[${index}]`, { isReady, podNamespace });
      if (endpoint === undefined) continue;
      const key = `${endpoint.family} ${portsKey}`;
      const draft = drafts.get(key) ?? { addressType: endpoint.family, ports, endpoints: [] };
      drafts.set(key, draft);
      draft.endpoints.push(endpoint.record);
      room--;
    }
  }
}

function readAddress(
  found: Findings,
  item: unknown,
  path: string,
  { isReady, podNamespace }: { readonly isReady: boolean; readonly podNamespace: string | undefined },
): { readonly family: IpFamily; readonly record: EndpointRecord } | undefined {
  const entry = objectField(found, item, path);
  const address = typeof entry.ip === "string" ? parseIpAddress(entry.ip) : undefined;
  if (address === undefined) {
    warn(found, `${path}.ip`, "must be an IP address; it is left out", entry.ip);
    return undefined;
  }
  const special = specialAddress(address);
  if (special !== undefined) {
    const message = `must be the address of a pod or a host, not a special one (${special}); it is left out`;
    warn(found, `${path}.ip`, message, entry.ip);
    return undefined;
  }
  const nodeName = sharedNodeName(entry.nodeName);
  if (nodeName === undefined) refuse(found, `${path}.nodeName`, DNS_SUBDOMAIN_RULE, entry.nodeName);
  const record: EndpointRecord = {
    address,
    nodeName: nodeName ?? "",
    ready: isReady,
    serving: true,
    terminating: false,
    zoneHints: undefined,
    nodeHints: undefined,
  };
  const pod = podNamespace === undefined ? undefined : podOfTargetRef(entry.targetRef, podNamespace);
  return { family: familyOf(address), record: Object.freeze(pod === undefined ? record : { ...record, pod }) };
}
