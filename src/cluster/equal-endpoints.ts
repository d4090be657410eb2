/** When two entries of slices say the same of an endpoint. */
import type { EndpointRecord } from "./objects.ts";

/** Whether two endpoints are the same in every field; hints compare as ordered lists. Pure. */
export function equalEndpointRecords(a: EndpointRecord, b: EndpointRecord): boolean {
  return (
    a === b ||
    (a.address === b.address &&
      a.nodeName === b.nodeName &&
      a.ready === b.ready &&
      a.serving === b.serving &&
      a.terminating === b.terminating &&
      a.pod === b.pod &&
      equalHints(a.zoneHints, b.zoneHints) &&
      equalHints(a.nodeHints, b.nodeHints))
  );
}

function equalHints(a: readonly string[] | undefined, b: readonly string[] | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a.length === b.length && a.every((hint, index) => hint === b[index]);
}
