/** Finds the service ports that a target means, and how it relates to them. */

import { declaredFrontends } from "../../model/frontend.ts";
import { type EndpointSliceRecord, objectKeyText, type ServiceRecord } from "../../model/objects.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { familyOf, type IpAddress, joinHostPort, parseIpAddress } from "../../net/ip.ts";
import { type ExplainedCluster, servedServices } from "./explained-cluster.ts";
import { behindHostName, type HostNames, nodeOfAddress, type Objects, servicesBehind } from "./part-of-cluster.ts";
import { NO_SERVICE_NAME, notFirst } from "./stated-endpoints.ts";
import type { NamedPort, Target } from "./target.ts";

/** Service ports, and how the target relates to them. */
export interface Found {
  readonly kind: "ports";
  /** Keys of service ports. */
  readonly keys: readonly string[];
  /** Sentences about how the target relates to them; empty for a Service that was named. */
  readonly because: readonly string[];
}

export type Search =
  | Found
  /** A name that all service ports share, and its purpose. */
  | { readonly kind: "shared"; readonly name: string; readonly purpose: string }
  /** Nothing: why, and names that may have been meant. */
  | { readonly kind: "nothing"; readonly why: string; readonly meant: Iterable<string>; readonly wanted: string };

export function find(cluster: ExplainedCluster, target: Target): Search {
  switch (target.kind) {
    case "service":
      return findService(cluster, target.service, target);
    case "address":
      return findAddress(cluster, target);
    case "node-port":
      return findNodePort(cluster, target);
    case "name":
      return findName(cluster, target.name, target);
  }
}

function findService(cluster: ExplainedCluster, service: string, { port, protocol }: Partial<NamedPort>): Search {
  const own = portsWhere(cluster, ({ name }) => name.service === service);
  if (own.length === 0) {
    return nothing(service, whyNotServed(cluster.objects, service));
  }
  const chosen = own.filter(
    (one) =>
      (port === undefined || one.name.port === port || String(one.port) === port) &&
      (protocol === undefined || one.protocol === protocol),
  );
  const names = new Set(own.flatMap((one) => [one.name.port, String(one.port)]).filter((name) => name !== ""));
  if (chosen.length > 0) return { kind: "ports", keys: keysOf(chosen), because: [] };
  const wanted = [port ?? [], protocol?.toLowerCase() ?? []].flat().join("/");
  return nothing(port ?? wanted, `Service ${service} has no port "${wanted}", but ${[...names].join(", ")}`, names);
}

const headlessWords = (service: string): string =>
  `Service ${service} is headless (clusterIP None): DNS gives out its pods' addresses, and no proxy does anything`;

type NamedServices = Pick<Objects, "services"> & HostNames;

/** Whether there is a Service with this name, served or not. @param name `namespace/name` */
export function isKnownService({ services, serviceNotes = [] }: NamedServices, name: string): boolean {
  return [...services, ...serviceNotes].some((one) => objectKeyText(one) === name);
}

const noSuchService = (name: string): string => `there is no Service "${name}"`;

/** Why a proxy does nothing for a Service. @param name `namespace/name` */
export function whyNotServed({ services, serviceNotes }: NamedServices, name: string): string {
  const notes = serviceNotes?.find((one) => objectKeyText(one) === name);
  if (notes?.proxyName !== undefined) {
    const label = `service.kubernetes.io/service-proxy-name=${notes.proxyName}`;
    return `Service ${name} is another proxy's (label ${label}): kube-proxy leaves it alone`;
  }
  if (notes?.isHeadless === true) return headlessWords(name);
  const service = services.find((one) => objectKeyText(one) === name);
  if (service === undefined) return noSuchService(name);
  if (service.type === "ExternalName")
    return `Service ${name} is an ExternalName: DNS answers for it, and no proxy does anything`;
  if (service.clusterIP === "None") return headlessWords(name);
  if (service.clusterIP === "") return `Service ${name} has no cluster IP yet, so no proxy does anything for it`;
  return `Service ${name} has no cluster IP of this family, or no ports`;
}

interface SocketTarget {
  readonly address: ServicePort["clusterIP"];
  /** Its number or name. */
  readonly port: number | string | undefined;
  readonly protocol: ServicePort["protocol"] | undefined;
}

function findAddress(cluster: ExplainedCluster, { address, port, protocol }: SocketTarget): Search {
  const text = port === undefined ? address : joinHostPort(address, port);
  const fits = (one: ServicePort) =>
    (protocol === undefined || one.protocol === protocol) && (typeof port !== "string" || one.name.port === port);
  const isPort = (number: number) => typeof port !== "number" || number === port;
  const frontends = portsWhere(
    cluster,
    (one) =>
      fits(one) && declaredFrontends(one).some((frontend) => frontend.address === address && isPort(frontend.port)),
  );
  if (frontends.length > 0) return found(frontends, (names) => `${text} is an address of ${names}.`);
  if (typeof port === "number" && isNodeAddress(cluster, address)) {
    const search = findNodePort(cluster, { port, protocol });
    if (search.kind === "ports") return search;
  }
  const behind = portsWhere(cluster, (one, endpoints) => {
    return fits(one) && endpoints.some(({ ip, port: number }) => ip === address && isPort(number));
  });
  if (behind.length > 0) return found(behind, (names) => `${text} is an endpoint of ${names}.`);
  const others = portsWhere(cluster, (one) => declaredFrontends(one).some((frontend) => frontend.address === address));
  if (others.length > 0) {
    const ports = others.map((one) => `${one.port}/${one.protocol} (${one.name.text})`).join(", ");
    return nothing(text, `no service port answers at ${text}; ${address} has ${ports}`);
  }
  const proxied = cluster.objects.services.find(({ loadBalancerIngress }) =>
    loadBalancerIngress.some(({ ip, ipMode }) => ipMode === "Proxy" && parseIpAddress(ip) === address),
  );
  if (proxied !== undefined) {
    const why = `${address} is the load balancer of ${objectKeyText(proxied)} with ipMode Proxy`;
    return nothing(text, `${why}: the load balancer takes what comes for it, and no node does`);
  }
  const [service] = [...servicesBehind(cluster.objects, address)].filter((name) => !servedServices(cluster).has(name));
  if (service !== undefined) {
    return nothing(text, `${address} is an endpoint of ${service}: ${whyNotServed(cluster.objects, service)}`);
  }
  const unused = unusedAddress(cluster.objects, address);
  if (unused !== undefined) return nothing(text, unused);
  const talks = `on a node, kube-proxy flows --to ${address} shows who still talks to it`;
  return nothing(text, `${text} is neither an address nor an endpoint of a Service; ${talks}`);
}

function isNodeAddress({ families, objects }: ExplainedCluster, address: ServicePort["clusterIP"]): boolean {
  const isOwn = families.some(({ node }) => node.hostAddresses.includes(address));
  return isOwn || nodeOfAddress(objects, address) !== undefined;
}

function findNodePort(
  cluster: ExplainedCluster,
  { port, protocol }: Omit<SocketTarget, "address"> & { readonly port: number },
): Search {
  const fits = (one: ServicePort) => protocol === undefined || one.protocol === protocol;
  const own = portsWhere(cluster, (one) => one.nodePort === port && fits(one));
  if (own.length > 0) return found(own, (names) => `${port} is the node port of ${names}.`);
  const checked = portsWhere(cluster, (one) => one.healthCheckNodePort === port);
  if (checked.length > 0) {
    return found(
      checked,
      (names) => `${port} is the health-check node port of ${names}: an HTTP server, no service port.`,
    );
  }
  const numbered = portsWhere(cluster, (one) => one.port === port && fits(one)).map(({ name }) => name.text);
  const hint = numbered.length === 0 || numbered.length > 5 ? "" : `; it is the port of ${numbered.join(", ")}`;
  return nothing(String(port), `no Service has the node port ${port}${hint}`);
}

/** Digits and dots, or two colons: no chain, set or Service has such a name. */
const IS_MEANT_AS_ADDRESS = /^(?:[\d.]*\.[\d.]*|[\da-z]*:[\da-z]*:[\da-z:.]*)$/i;

function findName(cluster: ExplainedCluster, name: string, named: Partial<NamedPort>): Search {
  for (const { inspection, node } of cluster.families) {
    const purpose = inspection.sharedPurpose(name, node.family);
    if (purpose !== undefined) return { kind: "shared", name, purpose };
  }
  for (const { inspection, node } of cluster.families) {
    if (inspection.ownerTest(name) === undefined) continue;
    for (const [key, port] of node.state.services) {
      for (const own of inspection.namesOf(port, node.state.endpoints.get(key) ?? [])) {
        if (own.name !== name) continue;
        return { kind: "ports", keys: [key], because: [`${name} belongs to ${port.name.text}: it ${own.purpose}.`] };
      }
    }
  }
  const isNamed = (service: string) => service.endsWith(`/${name}`);
  const served = [...servedServices(cluster)].filter(isNamed);
  const { services: all, serviceNotes = [] } = cluster.objects;
  // Why a Service is not served is an answer, too.
  const services =
    served.length > 0 ? served : [...new Set([...all, ...serviceNotes].map(objectKeyText))].filter(isNamed);
  if (services.length === 1) return findService(cluster, services[0] ?? "", named);
  if (services.length > 1)
    return nothing(name, `several Services have the name ${name}: ${services.join(", ")}; add the namespace`);
  const behind = behindHostName(cluster.objects, name);
  if (behind !== undefined) {
    const { service, host, port } = behind;
    const search = findService(cluster, service, { ...named, ...(port !== undefined && { port }) });
    const because = [
      `${host} is the load balancer of ${service}: its packets come to a node port, or to a pod itself.`,
    ];
    return search.kind === "ports" ? { ...search, because } : search;
  }
  if (IS_MEANT_AS_ADDRESS.test(name)) return nothing(name, `${name} is not an IP address`);
  const isOfKernel = cluster.families.some(({ inspection }) => inspection.ownerTest(name) !== undefined);
  if (!isOfKernel && !/[A-Z_]/.test(name)) return nothing(name, noSuchService(name));
  return nothing(
    name,
    `no Service, chain or set of ${cluster.config.mode} mode has the name ${name} for these objects: ` +
      "it may belong to an endpoint that is gone, to another mode or to another program",
  );
}

function portsWhere(
  { families }: ExplainedCluster,
  isWanted: (port: ServicePort, endpoints: readonly { readonly ip: string; readonly port: number }[]) => boolean,
): ServicePort[] {
  const ports = new Map<string, ServicePort>();
  for (const { node } of families) {
    for (const [key, port] of node.state.services) {
      if (!ports.has(key) && isWanted(port, node.state.endpoints.get(key) ?? [])) ports.set(key, port);
    }
  }
  return [...ports.keys()].sort().flatMap((key) => ports.get(key) ?? []);
}

function keysOf(ports: readonly ServicePort[]): string[] {
  return ports.map(({ name }) => name.key);
}

function found(ports: readonly ServicePort[], because: (names: string) => string): Found {
  return { kind: "ports", keys: keysOf(ports), because: [because(ports.map(({ name }) => name.text).join(", "))] };
}

function nothing(wanted: string, why: string, meant: Iterable<string> = []): Search {
  return { kind: "nothing", why, wanted, meant };
}

/** Where an address is although nothing leads to it, and why not; undefined if it is nowhere. */
function unusedAddress(objects: Objects, address: IpAddress): string | undefined {
  for (const service of objects.services) {
    const place = placeIn(service, address);
    if (place !== undefined) return place;
  }
  for (const slice of objects.endpointSlices) {
    const own = slice.endpoints.find((one) => one.address === address || one.unused?.includes(address));
    if (own === undefined) continue;
    const pod = own.pod === undefined ? "" : `, of pod ${own.pod}`;
    const where = `${address} is in EndpointSlice ${objectKeyText(slice)}${pod}`;
    return `${where}, and is not used: ${own.address === address ? whyNot(objects, slice) : notFirst(own.address)}`;
  }
  const pod = objects.pods?.find(({ addresses }) => addresses.includes(address));
  if (pod !== undefined) return `${address} is the pod ${objectKeyText(pod)}, which is an endpoint of no Service`;
  const node = nodeOfAddress(objects, address);
  return node && `${address} is an address of the Node ${node.name}; a node port is asked for as ${address}:PORT`;
}

function placeIn(service: ServiceRecord, address: IpAddress): string | undefined {
  const { clusterIPs, externalIPs, loadBalancerIngress } = service;
  const has = (texts: readonly string[]) => texts.some((text) => parseIpAddress(text) === address);
  const isIngress = has(loadBalancerIngress.map(({ ip }) => ip));
  if (!isIngress && !has(externalIPs)) return undefined;
  const families = new Set(clusterIPs.flatMap((text) => parseIpAddress(text) ?? []).map(familyOf));
  const what = `${isIngress ? "a load-balancer address" : "an external IP"} of ${objectKeyText(service)}`;
  const why =
    families.has(familyOf(address)) || families.size === 0
      ? "the Service has no port, or no cluster IP, that leads there"
      : `the Service is ${[...families].join()} only`;
  return `${address} is ${what}, and is not used: ${why}`;
}

function whyNot({ services }: Objects, { namespace, serviceName, ports, meantFor }: EndpointSliceRecord): string {
  if (serviceName === "") {
    return meantFor === undefined
      ? NO_SERVICE_NAME
      : `${NO_SERVICE_NAME} (another controller's label names ${meantFor})`;
  }
  const key = `${namespace}/${serviceName}`;
  const service = services.find((one) => objectKeyText(one) === key);
  if (service === undefined) return noSuchService(key);
  if (ports.length === 0) return `the slice has no ports, as when a pod lacks the port that ${key} names as targetPort`;
  const names = ports.map(
    ({ name, protocol, port }) => `${name || "(no name)"}/${protocol}${port === null ? " without a number" : ""}`,
  );
  return `its ports (${names.join(", ")}) are none of ${key}`;
}
