/**
 * One Service → the service ports of one address family (reference services.md §3). Keeps only numbers and canonical
 * addresses of the record.
 */

import type { Facts } from "../logging/logger.ts";
import {
  type Cidr,
  familyOf,
  hostCidr,
  type IpAddress,
  type IpFamily,
  isZeroCidr,
  parseCidr,
  parseIpAddress,
  type SpecialAddress,
  specialAddress,
  unspecifiedAddress,
} from "../net/ip.ts";
import { objectKeyText, type ServiceRecord } from "./objects.ts";
import type { ServicePort } from "./service-port.ts";
import { servicePortName } from "./service-port-name.ts";

/**
 * Called for each part of a bad object that is skipped, with a constant sentence and the varying facts; the rest of the
 * object is used. Must not throw.
 */
export type OnProblem = (message: string, facts: Facts) => void;

interface ServicePortsOptions {
  /** Feature gate AllowServiceExternalIPs. */
  readonly allowExternalIPs: boolean;
  /** Called for each skipped value. */
  readonly onProblem?: OnProblem | undefined;
}

/** Ports of one service by {@link ServicePortName.key}. */
export type ServicePortMap = ReadonlyMap<string, ServicePort>;

// Shared by the ports of most services, which have none of these.
const NO_ADDRESSES: readonly IpAddress[] = Object.freeze([]);
const NO_CIDRS: readonly Cidr[] = Object.freeze([]);
const PRESERVES: Pick<ServicePort, "preservesDestination"> = { preservesDestination: true };

/**
 * Computes the service ports of one service for one family (services.md §3.1–§3.3).
 *
 * @returns the ports by key; `undefined` if this family does not serve the service (headless, ExternalName, other
 * family), as opposed to an empty map for a service without ports.
 */
export function servicePortsOf(
  service: ServiceRecord,
  family: IpFamily,
  options: ServicePortsOptions,
): ServicePortMap | undefined {
  if (service.clusterIP === "" || service.clusterIP === "None" || service.type === "ExternalName") return undefined;
  const report: OnProblem = (message, facts) =>
    options.onProblem?.(message, { service: objectKeyText(service), ...facts });
  const clusterIP = clusterIPOf(service, family, report);
  if (clusterIP === undefined) return undefined;

  const storedExternalIPs = addressesOf(service.externalIPs, family, EXTERNAL_IPS, report);
  const loadBalancerVIPs = vipsOf(service, family, report);
  const sourceRanges = sourceRangesOf(service.loadBalancerSourceRanges, family, report);
  const isSticky = service.sessionAffinity === "ClientIP";
  const ports = new Map<string, ServicePort>();
  for (const spec of service.ports) {
    const name = servicePortName(service.namespace, service.name, spec.name, spec.protocol);
    ports.set(name.key, {
      name,
      clusterIP,
      port: spec.port,
      protocol: spec.protocol,
      nodePort: spec.nodePort,
      externalIPs: options.allowExternalIPs ? storedExternalIPs : NO_ADDRESSES,
      loadBalancerVIPs,
      loadBalancerSourceRanges: sourceRanges,
      sessionAffinity: service.sessionAffinity,
      stickyMaxAgeSeconds: isSticky ? service.sessionAffinityTimeoutSeconds : 0,
      externalPolicyLocal: service.externalTrafficPolicy === "Local" && isExternallyAccessibleBySpec(service),
      internalPolicyLocal: service.internalTrafficPolicy === "Local",
      healthCheckNodePort: needsHealthCheckNodePort(service) ? service.healthCheckNodePort : 0,
      isExternallyAccessible: spec.nodePort !== 0 || loadBalancerVIPs.length > 0 || storedExternalIPs.length > 0,
      ...(service.preservesDestination === true && PRESERVES),
      ...(service.endTCP !== undefined && spec.protocol === "TCP" && { endTCP: service.endTCP }),
      ...(service.balancing !== undefined && { balancing: service.balancing }),
      ...(service.leaveUnanswered !== undefined &&
        spec.protocol === "TCP" && { leaveUnanswered: service.leaveUnanswered }),
    });
  }
  if (needsHealthCheckNodePort(service) && service.healthCheckNodePort === 0) {
    report("service has externalTrafficPolicy Local but no health-check node port; load balancers cannot probe it", {
      field: "spec.healthCheckNodePort",
    });
  }
  return ports;
}

/** Services.md §3.2: a legacy object without ipFamilies has only one address. */
function clusterIPOf(service: ServiceRecord, family: IpFamily, report: OnProblem): IpAddress | undefined {
  const isLegacy = service.ipFamilies.length === 0;
  const index = service.ipFamilies.indexOf(family);
  const text = isLegacy ? service.clusterIP : service.clusterIPs[index];
  if (text === undefined || text === "" || text === "None") return undefined;
  const address = parseIpAddress(text);
  if (address !== undefined && familyOf(address) === family) return address;
  // An address of the other family is normal in a legacy object, but wrong if ipFamilies lists this family.
  if (address === undefined || !isLegacy) {
    const field = isLegacy ? "spec.clusterIP" : `spec.clusterIPs[${index}]`;
    report("service skipped: cluster IP is not an address of the family it is listed for", {
      field,
      value: text,
      expected: isLegacy ? "an IP address" : `an ${family} address`,
    });
  }
  return undefined;
}

/** A list of addresses, and the special ones that it may contain. */
interface AddressField {
  readonly field: string;
  readonly allows?: SpecialAddress;
}

const EXTERNAL_IPS: AddressField = { field: "spec.externalIPs" };
/** Some load balancers have link-local addresses. */
const INGRESS: AddressField = { field: "status.loadBalancer.ingress", allows: "link-local" };

function addressesOf(
  texts: readonly string[],
  family: IpFamily,
  { field, allows }: AddressField,
  report: OnProblem,
): readonly IpAddress[] {
  let found: IpAddress[] | undefined;
  for (const [index, text] of texts.entries()) {
    if (text.trim() === "") continue;
    const address = parseIpAddress(text);
    if (address === undefined) {
      report("skipped a value that is not an IP address", { field: `${field}[${index}]`, value: text });
    } else if (familyOf(address) === family) {
      const special = specialAddress(address);
      if (special !== undefined && special !== allows) {
        const facts = { field: `${field}[${index}]`, value: text, kind: special };
        report("skipped a special address, which no Service can have; remove it from the Service", facts);
        continue;
      }
      found ??= [];
      found.push(address);
    }
  }
  return found ?? NO_ADDRESSES;
}

function vipsOf(service: ServiceRecord, family: IpFamily, report: OnProblem): readonly IpAddress[] {
  if (service.loadBalancerIngress.length === 0) return NO_ADDRESSES;
  const texts = service.loadBalancerIngress.map((ingress) => (ingress.ipMode === "VIP" ? ingress.ip : ""));
  return addressesOf(texts, family, INGRESS, report);
}

/**
 * A zero prefix allows every client, so its whole list means "no restriction". A list without a valid range does not:
 * a restricted Service must not become open. The API server rejects such lists, but manifests may contain them.
 */
function sourceRangesOf(texts: readonly string[], family: IpFamily, report: OnProblem): readonly Cidr[] {
  let found: Cidr[] | undefined;
  let allowsAll = false;
  let isUnread = false;
  for (const [index, text] of texts.entries()) {
    const trimmed = text.trim();
    if (trimmed === "") continue;
    const cidr = parseCidr(trimmed);
    if (cidr === undefined) {
      report("skipped a value that is not a CIDR", { field: `spec.loadBalancerSourceRanges[${index}]`, value: text });
      isUnread = true;
    } else if (familyOf(cidr) === family) {
      allowsAll ||= isZeroCidr(cidr);
      found ??= [];
      found.push(cidr);
    }
  }
  // A prefix that no client address matches.
  if (found === undefined && isUnread) return [hostCidr(unspecifiedAddress(family))];
  return found === undefined || allowsAll ? NO_CIDRS : found;
}

/** Whether the spec asks for external access, allocated or not (services.md §3.3, externalPolicyLocal). */
function isExternallyAccessibleBySpec(service: ServiceRecord): boolean {
  if (service.type === "LoadBalancer" || service.type === "NodePort") return true;
  return service.type === "ClusterIP" && service.externalIPs.length > 0;
}

function needsHealthCheckNodePort(service: ServiceRecord): boolean {
  return service.type === "LoadBalancer" && service.externalTrafficPolicy === "Local";
}
