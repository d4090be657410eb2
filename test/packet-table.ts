/**
 * The tests' own packet model: what each client must get from each address of a Service, from the table of reference
 * iptables-operation.md §15 and, for the other modes, userspace.md §1.3, ipvs.md §3, §4, §7 and ebpf.md §1.4. It shares no code and no
 * mistake with planners and walkers. Pure.
 */
import type { ClusterView, DemoEndpoint } from "../demo/cluster-view.ts";
import type { NetworkFacts } from "../demo/demo-network.ts";
import type { Expectation } from "../demo/judgement.ts";
import type { Position, Target } from "../demo/targets.ts";
import type { ProxyMode } from "../src/modes/registry.ts";
import { cidrContains, type IpAddress, isZeroCidr, parseCidr } from "../src/net/ip.ts";
import { type ModeTraits, traitsOfMode } from "./mode-traits.ts";

interface EndpointSets {
  readonly cluster: readonly DemoEndpoint[];
  readonly local: readonly DemoEndpoint[];
  readonly hasAny: boolean;
}

/** The ready ones; when there is none, those that terminate but still serve. */
function usable(endpoints: readonly DemoEndpoint[]): readonly DemoEndpoint[] {
  const ready = endpoints.filter(({ isReady }) => isReady);
  return ready.length > 0 ? ready : endpoints.filter(({ isServingTerminating }) => isServingTerminating);
}

/** Hints count only when every ready endpoint has one and one of them is for us; node hints come before zone hints. */
function preferNearby(
  ready: readonly DemoEndpoint[],
  nodeName: string,
  zone: string | undefined,
): readonly DemoEndpoint[] {
  const choices = [
    { hintsOf: (endpoint: DemoEndpoint) => endpoint.nodeHints, ours: nodeName },
    { hintsOf: (endpoint: DemoEndpoint) => endpoint.zoneHints, ours: zone ?? "" },
  ];
  for (const { hintsOf, ours } of choices) {
    const near = ready.filter((endpoint) => hintsOf(endpoint).includes(ours));
    if (near.length > 0 && ready.every((endpoint) => hintsOf(endpoint).length > 0)) return near;
  }
  return ready;
}

function endpointSets(view: ClusterView, target: Target, nodeName: string): EndpointSets {
  const all = view.endpointsOf(target.service, target.port, target.family);
  const ready = all.filter(({ isReady }) => isReady);
  const zone = view.zones.get(nodeName);
  return {
    cluster: ready.length > 0 ? preferNearby(ready, nodeName, zone) : usable(all),
    local: usable(all.filter((endpoint) => endpoint.nodeName === nodeName)),
    hasAny: usable(all).length > 0,
  };
}

function isSourceAllowed(target: Target, source: IpAddress): boolean {
  const ranges = target.service.sourceRanges.map((text) => parseCidr(text.trim()));
  const ours = ranges.filter((range) => range !== undefined && range.includes(":") === (target.family === "IPv6"));
  if (ours.length === 0 || ours.some((range) => range !== undefined && isZeroCidr(range))) return true;
  return ours.some((range) => range !== undefined && cidrContains(range, source));
}

/** What a request from `position` to `target` must meet. */
export function expectationOf(
  view: ClusterView,
  target: Target,
  position: Position,
  facts: NetworkFacts,
  mode: ProxyMode,
): Expectation {
  const traits = traitsOfMode(mode);
  const { service, kind } = target;
  const { cluster, local, hasAny } = endpointSets(view, target, facts.nodeName);
  const source = facts.sources[position];
  const barred: Expectation | undefined =
    kind === "load balancer" && !isSourceAllowed(target, source)
      ? { kind: "dropped", why: `${source} is not in loadBalancerSourceRanges` }
      : undefined;
  if (traits.hasVirtualServers) {
    return expectationOfVirtualServer(target, position, facts, { cluster, local, hasAny }, barred);
  }
  if (!hasAny) {
    const isForeign = kind === "external IP" || kind === "load balancer";
    if (isForeign && position === "node" && !traits.refusesNodeAtExternalAddresses) {
      return { kind: "dropped", why: "no endpoint is usable, and the node's own packets are not looked at" };
    }
    return { kind: "refused", why: "no endpoint is usable" };
  }
  if (kind === "external IP" && position !== "client" && traits.carriesTraffic) {
    return { kind: "dropped", why: "only what comes from elsewhere is served at external IPs" };
  }
  if (barred !== undefined) return barred;
  const isInternal = kind === "cluster IP";
  const isLocalOnly = isInternal ? service.internalLocal : service.externalLocal && position === "client";
  const set = isLocalOnly ? local : cluster;
  if (set.length === 0) return { kind: "dropped", why: `no endpoint on ${facts.nodeName}, and the policy is Local` };
  // Cluster IPs keep only pods' addresses; external ones keep all but the node's own, if the policy is Local.
  const mayKeep = isInternal ? position === "pod" : service.externalLocal && position !== "node";
  const isKept = (mayKeep && !traits.carriesTraffic) || isLedFromSocket(target, position, traits);
  return {
    kind: "answer",
    peers: new Map(set.map(({ pod, address }) => [pod, peerAt(facts, address, isKept ? source : undefined)])),
    source: isKept ? "kept" : "masqueraded",
    isSticky: service.isSticky,
  };
}

/** In a pod, before there is a packet: reference ebpf.md §1.4. What depends on the client's address is not. */
function isLedFromSocket({ service, port, kind, family }: Target, position: Position, traits: ModeTraits): boolean {
  if (position !== "pod" || !traits.decidesAtSocket.includes(port.protocol) || kind === "localhost") return false;
  if (kind === "node port" && port.protocol === "UDP") return false;
  const hasRanges = service.sourceRanges.some((range) => range.includes(":") === (family === "IPv6"));
  return kind !== "load balancer" || !hasRanges;
}

/** The source address that an endpoint sees. @param kept the client's, where that is kept */
function peerAt(facts: NetworkFacts, endpoint: IpAddress, kept: IpAddress | undefined): IpAddress | undefined {
  return facts.isOnNode(endpoint) ? undefined : (kept ?? facts.masqueradeAddress(endpoint));
}

/** The same where the kernel's virtual servers answer (reference ipvs.md §3, §4, §7). */
function expectationOfVirtualServer(
  target: Target,
  position: Position,
  facts: NetworkFacts,
  { cluster, local, hasAny }: EndpointSets,
  barred: Expectation | undefined,
): Expectation {
  const { sources, nodeName } = facts;
  const { service, kind, address } = target;
  const isNode = position === "node";
  const isInternal = kind === "cluster IP";
  const isLocalOnly = isInternal ? service.internalLocal : service.externalLocal;
  // A service without external addresses has no list of others to fall back to.
  const isExternal = service.externalIPs.length + service.loadBalancerIPs.length > 0 || target.port.nodePort !== 0;
  const fallback = isExternal || !service.internalLocal ? cluster : [];
  const set = !isLocalOnly ? cluster : local.length > 0 ? local : fallback;
  // The firewall sees what comes from outside before the virtual server does, and what the node sends after it.
  if (barred !== undefined && (!isNode || set.length > 0)) return barred;
  if (set.length === 0)
    return { kind: "refused", why: hasAny ? `no endpoint on ${nodeName}` : "no endpoint is usable" };
  const isKept = isInternal ? position === "pod" : service.externalLocal;
  const isVip = kind === "external IP" || kind === "load balancer";
  if (isKept && local.length === 0 && (position === "client" || (isNode && isVip))) {
    return { kind: "dropped", why: `no endpoint on ${nodeName}, and the answers of others do not come back` };
  }
  const source = isNode && isVip ? address : sources[position];
  return {
    kind: "answer",
    peers: new Map(set.map((one) => [one.pod, peerAt(facts, one.address, isKept ? source : undefined)])),
    source: isKept ? "kept" : "masqueraded",
    isSticky: service.isSticky,
  };
}
