/**
 * What a Service's EndpointSlices say about one of its ports, beyond the model's endpoints: the slice of each endpoint, and what was
 * skipped and why. The model reads and joins the slices.
 */
import { type EndpointSliceRecord, objectKeyText } from "../../model/objects.ts";
import type { ServicePortName } from "../../model/service-port-name.ts";
import { joinSlices, type ReadSlice, readSlice } from "../../model/slice-endpoints.ts";
import type { IpFamily } from "../../net/ip.ts";

/** Where a slice says that an endpoint is. */
export interface StatedPlace {
  /** `namespace/name` of the slice. */
  readonly slice: string;
  /** Empty if the slice does not say. */
  readonly nodeName: string;
  /** `namespace/name` of its pod, if known. */
  readonly pod: string | undefined;
  readonly zone: string | undefined;
}

export interface Statement {
  /** By the endpoint's text; if several slices list it, from the one that counts. */
  readonly places: ReadonlyMap<string, StatedPlace>;
  /** Entries that make no endpoint of the service port, and duplicates that do not count. */
  readonly passedOver: readonly { readonly slice: string; readonly why: string }[];
}

const CUT_SHORT =
  "it mirrors an Endpoints object that was cut at 1,000 addresses: endpoints beyond them are in no slice " +
  "(annotation endpoints.kubernetes.io/over-capacity)";

/** Why no proxy uses a slice of another controller. */
export const NO_SERVICE_NAME = "it has no label kubernetes.io/service-name, so it belongs to no Service";

/** Why an address of an endpoint is not used. @param first the one that is */
export const notFirst = (first: string): string =>
  `of an endpoint's addresses, kube-proxy takes only the first, ${first}`;

/** @param slices all slices of the Service, of every family and kind. */
export function statedEndpoints(
  slices: readonly EndpointSliceRecord[],
  port: ServicePortName,
  { family, nodeName }: { readonly family: IpFamily; readonly nodeName: string },
): Statement {
  const passedOver: Statement["passedOver"][number][] = [];
  const read: ReadSlice[] = [];
  for (const record of slices) {
    const slice = objectKeyText(record);
    if (record.addressType !== family) {
      // The explanation of the other family covers its slices.
      if (record.addressType === "FQDN") passedOver.push({ slice, why: "its addresses are names (FQDN)" });
      continue;
    }
    if (record.serviceName === "") {
      passedOver.push({ slice, why: NO_SERVICE_NAME });
      continue;
    }
    for (const { address, unused = [] } of record.endpoints) {
      if (unused.length > 0) passedOver.push({ slice, why: `${unused.join(", ")}: ${notFirst(address)}` });
    }
    const onProblem = (message: string, { field = "", value }: Readonly<Record<string, unknown>>) =>
      passedOver.push({ slice, why: `${field}: ${message}${value === undefined ? "" : `: ${JSON.stringify(value)}`}` });
    // Of two copies one counts, with the larger weight: without weights it is not copied.
    const { weight: _weight, ...unweighted } = record;
    const one = readSlice(unweighted, { nodeName, onProblem });
    read.push(one);
    if (record.isCutShort === true) passedOver.push({ slice, why: CUT_SHORT });
    if (!one.ports.some(({ key }) => key === port.key)) passedOver.push({ slice, why: whyNothing(record, port) });
  }
  // By name, as in the cache of slices.
  read.sort((a, b) => (a.record.name < b.record.name ? -1 : 1));
  const counting = new Set(joinSlices(read).get(port.key));
  const all = read.flatMap(({ record, ports }) => {
    const own = ports.flatMap(({ key, endpoints }) => (key === port.key ? endpoints : []));
    return own.map((endpoint) => ({ endpoint, record }));
  });
  const counted = all.filter(({ endpoint }) => counting.has(endpoint));
  const places = new Map(counted.map(({ endpoint, record }) => [endpoint.text, placeIn(record, endpoint.ip)]));
  for (const { endpoint, record } of all) {
    if (counting.has(endpoint)) continue;
    const by = places.get(endpoint.text)?.slice;
    passedOver.push({ slice: objectKeyText(record), why: `${endpoint.text} is also in ${by}, which takes precedence` });
  }
  return { places, passedOver };
}

function placeIn(record: EndpointSliceRecord, ip: string): StatedPlace {
  const own = record.endpoints.find(({ address }) => address === ip);
  return { slice: objectKeyText(record), nodeName: own?.nodeName ?? "", pod: own?.pod, zone: own?.zone };
}

/** For the slice that a cluster keeps for a selector that matches nothing: it has no ports either. */
export const NO_ENDPOINTS = "it has no endpoints";

function whyNothing({ ports, endpoints }: EndpointSliceRecord, { port, protocol }: ServicePortName): string {
  if (endpoints.length === 0) return NO_ENDPOINTS;
  if (ports.some(({ name, protocol: own }) => name === port && own === protocol))
    return "none of its endpoints can be used";
  const wanted = port === "" ? "no name" : `the name "${port}"`;
  const others = ports.map(({ name, protocol: own }) => `${name === "" ? "(no name)" : name}/${own}`).join(", ");
  return `it has no port with ${wanted} and ${protocol}${others === "" ? "" : `, but ${others}`}`;
}
