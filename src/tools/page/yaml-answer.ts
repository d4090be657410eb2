/** A Service and its EndpointSlices as this node understood them, as manifests that every command reads with -f. */

import type { LiveDaemon } from "../../agent/daemon/inspect-report.ts";
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { familyOf } from "../../net/ip.ts";
import { serviceManifest, sliceManifest } from "../explain/objects-list.ts";
import type { YamlAnswer } from "./answers.ts";
import { typeOf } from "./service-table.ts";

/** More endpoints are more than anyone reads, and would take the daemon's time. */
const MAX_ENDPOINTS = 1_000;

/** @param key of one of its service ports. @returns undefined if there is none with this key. */
export async function yamlAnswer(
  { families }: Pick<LiveDaemon, "families">,
  key: string,
  signal: AbortSignal,
): Promise<YamlAnswer | undefined> {
  const name = families.map(({ state }) => state.services.get(key)?.name.service).find((one) => one !== undefined);
  const all = families.flatMap(({ state }) => [...state.services.values()]);
  const service = serviceOf(all.filter((port) => port.name.service === name));
  if (name === undefined || service === undefined) return undefined;
  const { stringify } = await import("yaml");
  const slices = families.flatMap(({ state }) => state.slicesOf(name));
  const documents = [stringify(filled(serviceManifest(service)))];
  let endpoints = 0;
  for (const slice of slices) {
    endpoints += slice.endpoints.length;
    if (endpoints > MAX_ENDPOINTS && documents.length > 1) break;
    documents.push(stringify(filled(sliceManifest(slice))));
    if (isTurnDue()) await giveTurn(signal);
  }
  const left = slices.length + 1 - documents.length;
  return { yaml: `${documents.join("---\n")}${left > 0 ? `# and ${left} more EndpointSlices\n` : ""}` };
}

const EMPTY = new Set(["{}", "[]", '""', "0"]);

/** Without the fields that say nothing: readers take them as absent. */
function filled(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(filled);
  if (typeof value !== "object" || value === null) return value;
  const fields = Object.entries(value).map(([name, own]) => [name, filled(own)]);
  return Object.fromEntries(fields.filter(([, own]) => !EMPTY.has(JSON.stringify(own))));
}

/** A Service as its service ports in all families tell it: the daemon keeps no more of it. */
function serviceOf(ports: readonly ServicePort[]) {
  const [first] = ports;
  if (first === undefined) return undefined;
  const every = <Item>(of: (port: ServicePort) => readonly Item[]) => [...new Set(ports.flatMap(of))];
  const { name, clusterIP, sessionAffinity, stickyMaxAgeSeconds, healthCheckNodePort, balancing } = first;
  const vips = every(({ loadBalancerVIPs }) => loadBalancerVIPs);
  const endTCP = ports.find((port) => port.endTCP !== undefined)?.endTCP;
  return {
    ...{ namespace: name.namespace, name: name.name, uid: "" },
    type: typeOf({ ...first, loadBalancerVIPs: vips }),
    ...{
      clusterIP,
      clusterIPs: every((port) => [port.clusterIP]),
      ipFamilies: every((port) => [familyOf(port.clusterIP)]),
    },
    ports: Array.from(new Map(ports.map((port) => [port.name.key, port])).values(), (port) => ({
      ...{ name: port.name.port, protocol: port.protocol, port: port.port, nodePort: port.nodePort },
    })),
    externalIPs: every(({ externalIPs }) => externalIPs),
    loadBalancerSourceRanges: every(({ loadBalancerSourceRanges }) => loadBalancerSourceRanges),
    loadBalancerIngress: vips.map((ip) => ({ ip, ipMode: "VIP" as const })),
    ...{ sessionAffinity, sessionAffinityTimeoutSeconds: stickyMaxAgeSeconds, healthCheckNodePort },
    internalTrafficPolicy: first.internalPolicyLocal ? ("Local" as const) : ("Cluster" as const),
    externalTrafficPolicy: first.externalPolicyLocal ? ("Local" as const) : ("Cluster" as const),
    ...(first.preservesDestination === true && { preservesDestination: true as const }),
    ...(endTCP !== undefined && { endTCP }),
    ...(balancing !== undefined && { balancing }),
  };
}
