/**
 * What the EndpointSlices of a service say of one of its ports: every endpoint with the slice that it comes from, copies
 * that lost against others, and what was passed over and why. The slices are read and joined by the model. Pure.
 */
import { type EndpointSliceRecord, objectKeyText } from "../cluster/objects.ts";
import type { Endpoint } from "../model/endpoint.ts";
import type { ServicePortName } from "../model/service-port-name.ts";
import { joinSlices, type ReadSlice, readSlice } from "../model/slice-endpoints.ts";
import type { IpFamily } from "../net/ip.ts";

/** An endpoint as one slice has it. */
export interface StatedEndpoint {
  readonly endpoint: Endpoint;
  /** `namespace/name` of the slice. */
  readonly slice: string;
  /** Empty when the slice does not say. */
  readonly nodeName: string;
  /** `namespace/name` of its pod, where that is known. */
  readonly pod: string | undefined;
}

/** Something in the slices that makes no endpoint of the service port. */
interface PassedOver {
  readonly slice: string;
  readonly why: string;
}

export interface Statement {
  /** The copies that count, in the model's order. */
  readonly endpoints: readonly StatedEndpoint[];
  /** The same endpoint in another slice, which says something else or the same; `by` is the slice that counts. */
  readonly overlapping: readonly (StatedEndpoint & { readonly by: string })[];
  readonly passedOver: readonly PassedOver[];
}

const CUT_SHORT =
  "it mirrors an Endpoints object that was cut at 1,000 addresses: endpoints beyond them are in no slice " +
  "(annotation endpoints.kubernetes.io/over-capacity)";

/** @param slices those of the service, of every family and kind. */
export function statedEndpoints(
  slices: readonly EndpointSliceRecord[],
  port: ServicePortName,
  { family, nodeName }: { readonly family: IpFamily; readonly nodeName: string },
): Statement {
  const passedOver: PassedOver[] = [];
  const read: ReadSlice[] = [];
  for (const record of slices) {
    const slice = objectKeyText(record);
    if (record.addressType !== family) {
      // Those of the other family are in its own explanation.
      if (record.addressType === "FQDN") passedOver.push({ slice, why: "its addresses are names (FQDN)" });
      continue;
    }
    const onProblem = (message: string, { field = "", value }: Readonly<Record<string, unknown>>) =>
      passedOver.push({ slice, why: `${field}: ${message}${value === undefined ? "" : `: ${JSON.stringify(value)}`}` });
    const one = readSlice(record, { nodeName, onProblem });
    read.push(one);
    if (record.isCutShort === true) passedOver.push({ slice, why: CUT_SHORT });
    if (!one.ports.some(({ key }) => key === port.key)) passedOver.push({ slice, why: whyNothing(record, port) });
  }
  // As the cache of slices orders them: by name.
  read.sort((a, b) => (a.record.name < b.record.name ? -1 : 1));
  const joined = joinSlices(read).get(port.key) ?? [];
  const all = read.flatMap(({ record, ports }) =>
    ports.flatMap(({ key, endpoints }) =>
      key === port.key ? endpoints.map((endpoint) => stated(endpoint, record)) : [],
    ),
  );
  const counting = new Map(joined.map((endpoint) => [endpoint.text, endpoint]));
  const places = new Map(all.map((one) => [one.endpoint, one]));
  return {
    endpoints: joined.flatMap((endpoint) => places.get(endpoint) ?? []),
    overlapping: all.flatMap((one) => {
      const winner = counting.get(one.endpoint.text);
      const by = winner && places.get(winner);
      return by === undefined || by === one ? [] : [{ ...one, by: by.slice }];
    }),
    passedOver,
  };
}

function stated(endpoint: Endpoint, record: EndpointSliceRecord): StatedEndpoint {
  const own = record.endpoints.find(({ address }) => address === endpoint.ip);
  return { endpoint, slice: objectKeyText(record), nodeName: own?.nodeName ?? "", pod: own?.pod };
}

/** Of a slice as the cluster keeps one for a selector that matches nothing: it has no ports either. */
export const NO_ENDPOINTS = "it has no endpoints";

function whyNothing({ ports, endpoints }: EndpointSliceRecord, { port, protocol }: ServicePortName): string {
  if (endpoints.length === 0) return NO_ENDPOINTS;
  if (ports.some(({ name, protocol: own }) => name === port && own === protocol))
    return "none of its endpoints can be used";
  const wanted = port === "" ? "no name" : `the name "${port}"`;
  const others = ports.map(({ name, protocol: own }) => `${name === "" ? "(no name)" : name}/${own}`).join(", ");
  return `it has no port with ${wanted} and ${protocol}${others === "" ? "" : `, but ${others}`}`;
}
