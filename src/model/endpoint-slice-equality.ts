/** When two deliveries of an EndpointSlice are the same object: reference endpoints.md §6.2 step 2. */
import { equalEndpointRecords } from "../cluster/equal-endpoints.ts";
import type { EndpointSlicePort, EndpointSliceRecord } from "../cluster/objects.ts";
import { equalLists } from "./equal-lists.ts";

/**
 * Deep equality over the whole record, resource version and element order included: reordering or a metadata-only edit
 * is a change, a resync is not. Pure.
 */
export function equalSlices(a: EndpointSliceRecord, b: EndpointSliceRecord): boolean {
  return (
    a === b ||
    (a.resourceVersion === b.resourceVersion &&
      a.namespace === b.namespace &&
      a.name === b.name &&
      a.serviceName === b.serviceName &&
      a.addressType === b.addressType &&
      a.lastChangeTriggerTime === b.lastChangeTriggerTime &&
      equalLists(a.ports, b.ports, equalPorts) &&
      equalLists(a.endpoints, b.endpoints, equalEndpointRecords))
  );
}

function equalPorts(a: EndpointSlicePort, b: EndpointSlicePort): boolean {
  return a.name === b.name && a.protocol === b.protocol && a.port === b.port;
}
