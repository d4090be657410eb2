/**
 * What a real API server refuses of Services and EndpointSlices, as far as the examples could get it wrong: rules of its
 * validation that this program has no reason to check, for it never sees objects that break them.
 */

type Json = Readonly<Record<string, unknown>>;

const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
const map = (value: unknown): Json => Object(value);
const familyOf = (ip: unknown) => (String(ip).includes(":") ? "IPv6" : "IPv4");

/** What is wrong with a Service; empty when it would be stored. Pure. */
export function serviceFaults(service: Json): readonly string[] {
  const spec = map(service.spec);
  return [...familyFaults(spec), ...typeFaults(spec), ...portFaults(spec)];
}

function familyFaults(spec: Json): readonly string[] {
  const ips = list(spec.clusterIPs);
  const families = list(spec.ipFamilies);
  const policy = spec.ipFamilyPolicy ?? "SingleStack";
  const faults: string[] = [];
  const isMany = ips.length > 1 || families.length > 1;
  if (isMany && policy !== "PreferDualStack" && policy !== "RequireDualStack") {
    faults.push("ipFamilyPolicy: must be PreferDualStack or RequireDualStack with two families");
  }
  if (ips.length > 2 || families.length > 2) faults.push("clusterIPs, ipFamilies: at most two");
  if (ips.length > 0 && ips[0] !== spec.clusterIP) faults.push("clusterIPs[0]: must be the clusterIP");
  for (const [at, ip] of ips.entries()) {
    if (families.length > at && familyOf(ip) !== families[at])
      faults.push(`clusterIPs[${at}]: not of ipFamilies[${at}]`);
  }
  if (new Set(families).size !== families.length) faults.push("ipFamilies: one family twice");
  return faults;
}

function typeFaults(spec: Json): readonly string[] {
  const type = spec.type ?? "ClusterIP";
  const isBalancer = type === "LoadBalancer";
  const isExternal = isBalancer || type === "NodePort" || list(spec.externalIPs).length > 0;
  const isLocal = spec.externalTrafficPolicy === "Local";
  const faults: string[] = [];
  if (spec.externalTrafficPolicy !== undefined && !isExternal) {
    faults.push("externalTrafficPolicy: only for a Service that is reached from outside");
  }
  if (spec.healthCheckNodePort !== undefined && !(isBalancer && isLocal)) {
    faults.push("healthCheckNodePort: only for a LoadBalancer with externalTrafficPolicy Local");
  }
  if (list(spec.loadBalancerSourceRanges).length > 0 && !isBalancer) {
    faults.push("loadBalancerSourceRanges: only for a LoadBalancer");
  }
  if (spec.sessionAffinityConfig !== undefined && spec.sessionAffinity !== "ClientIP") {
    faults.push("sessionAffinityConfig: only with sessionAffinity ClientIP");
  }
  return faults;
}

function portFaults(spec: Json): readonly string[] {
  const type = spec.type ?? "ClusterIP";
  const ports = list(spec.ports).map(map);
  const faults: string[] = [];
  for (const [at, { name, nodePort }] of ports.entries()) {
    if (ports.length > 1 && name === undefined) faults.push(`ports[${at}].name: required with several ports`);
    if (nodePort === undefined) continue;
    if (type === "ClusterIP") faults.push(`ports[${at}].nodePort: not for a ClusterIP`);
    if (Number(nodePort) < 30_000 || Number(nodePort) > 32_767)
      faults.push(`ports[${at}].nodePort: not in 30000-32767`);
  }
  return faults;
}

/** What is wrong with an EndpointSlice. Pure. */
export function sliceFaults(slice: Json): readonly string[] {
  const faults: string[] = [];
  if (slice.addressType !== "IPv4" && slice.addressType !== "IPv6") faults.push("addressType: must be IPv4 or IPv6");
  for (const [at, endpoint] of list(slice.endpoints).map(map).entries()) {
    const addresses = list(endpoint.addresses);
    if (addresses.length === 0) faults.push(`endpoints[${at}].addresses: required`);
    for (const address of addresses) {
      if (familyOf(address) !== slice.addressType) faults.push(`endpoints[${at}].addresses: ${String(address)}`);
    }
  }
  return faults;
}

/** What is wrong between Services: node ports and addresses that are given away twice. Pure. */
export function sharedFaults(services: readonly Json[]): readonly string[] {
  const owners = new Map<string, string>();
  const faults: string[] = [];
  const claim = (key: string, owner: string): void => {
    const other = owners.get(key);
    if (other !== undefined && !(other === owner && key.startsWith("ip ")))
      faults.push(`${key}: ${owner} and ${other}`);
    owners.set(key, owner);
  };
  for (const service of services) {
    const { name, namespace } = map(service.metadata);
    const spec = map(service.spec);
    const owner = `${String(namespace)}/${String(name)}`;
    const ips = list(spec.clusterIPs ?? [spec.clusterIP]).filter((ip) => ip !== "None" && ip !== undefined);
    for (const ip of ips) claim(`ip ${String(ip)}`, owner);
    for (const { nodePort, protocol = "TCP" } of list(spec.ports).map(map)) {
      if (nodePort !== undefined) claim(`node port ${String(nodePort)}/${String(protocol)}`, owner);
    }
    if (spec.healthCheckNodePort !== undefined) claim(`node port ${String(spec.healthCheckNodePort)}/TCP`, owner);
  }
  return faults;
}
