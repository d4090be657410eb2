/** What two service ports of a node have in common that differ in names, addresses and numbers alone. Pure. */
import type { Endpoint } from "../model/endpoint.ts";
import { declaredFrontends, frontendKey } from "../model/frontend.ts";
import type { ServicePort } from "../model/service-port.ts";
import { routeServicePort } from "../model/service-port-routing.ts";

/** Of what node it is asked. */
interface KindNode {
  readonly name: string;
  readonly zone: string | undefined;
}

/**
 * Everything that can decide which chains and sets there are, and how many rules in each that all service ports share. Two service
 * ports with one kind have the same there. Called for each of 10,000.
 */
export function kindOfServed(port: ServicePort, endpoints: readonly Endpoint[], { name, zone }: KindNode): string {
  const { categories, hasInternal, hasExternal, usesExternal } = routeServicePort(port, endpoints, {
    nodeName: name,
    zone,
  });
  let states = 0;
  for (const one of endpoints) states |= 1 << stateOf(one);
  const { cluster, local, hasAny } = categories;
  const decided = flags(hasAny, hasInternal, hasExternal, usesExternal, isFilled(cluster), isFilled(local));
  const { externalPolicyLocal, internalPolicyLocal, isExternallyAccessible, preservesDestination, endTCP } = port;
  const policies = flags(
    externalPolicyLocal,
    internalPolicyLocal,
    isExternallyAccessible,
    preservesDestination === true,
    endTCP === "Gone",
    endTCP === "Never",
  );
  const { protocol, externalIPs, loadBalancerVIPs, nodePort, healthCheckNodePort } = port;
  const frontends = `${externalIPs.length} ${loadBalancerVIPs.length} ${flags(nodePort !== 0, healthCheckNodePort !== 0)}`;
  const affinity = `${port.sessionAffinity} ${port.stickyMaxAgeSeconds}`;
  return `${protocol} ${decided} ${states} ${policies} ${frontends} ${affinity} ${port.loadBalancerSourceRanges.join()}${lossesOf(port)}`;
}

/** From 0 to 15. Asked of every endpoint. */
function stateOf({ isLocal, isReady, isServing, isTerminating }: Endpoint): number {
  return (isLocal ? 1 : 0) | (isReady ? 2 : 0) | (isServing ? 4 : 0) | (isTerminating ? 8 : 0);
}

function flags(...all: readonly boolean[]): number {
  let bits = 0;
  for (const [index, one] of all.entries()) if (one) bits |= 1 << index;
  return bits;
}

const isFilled = (list: readonly unknown[] | undefined): boolean => list !== undefined && list.length > 0;

/** Which of its frontends belong to others. One that declares an address twice is like no other. */
function lossesOf(port: ServicePort): string {
  const { lostFrontends, externalIPs, loadBalancerVIPs } = port;
  const isTwice =
    new Set([port.clusterIP, ...externalIPs, ...loadBalancerVIPs]).size <= externalIPs.length + loadBalancerVIPs.length;
  const own = isTwice ? ` ${port.name.key}` : "";
  if (lostFrontends === undefined) return own;
  const lost = declaredFrontends(port).map((one) => (lostFrontends.has(frontendKey(port.protocol, one)) ? "-" : "+"));
  return ` ${lost.join("")}${own}`;
}
