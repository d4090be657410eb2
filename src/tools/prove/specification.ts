/**
 * What a Service means for packets on a node, as Kubernetes documents it: the reference for all modes. It reads the objects itself
 * and deliberately shares nothing with the planners; with `trace` it shares only the form of a question (question.ts).
 * Its input includes the node's addresses, which of them serve node ports, and how to tell local pods from others. Sources:
 *
 * - Service API: `spec` and `status` of core/v1 Service (https://kubernetes.io/docs/reference/kubernetes-api/service-resources/service-v1/)
 * - virtual IPs and service proxies (https://kubernetes.io/docs/reference/networking/virtual-ips/)
 * - EndpointSlice conditions and hints (https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/)
 * - KEP-1669 (terminating endpoints), KEP-2086 (internal traffic policy), KEP-2433 and KEP-3015 (hints), KEP-1860 (ipMode)
 */
import type { Deviation } from "../../contract/deviations.ts";
import type { LocalTrafficDetector } from "../../model/local-traffic-detector.ts";
import { familyOf, type IpAddress, joinHostPort } from "../../net/ip.ts";
import { prefixPatterns } from "../../trace/facts.ts";
import type { Packet } from "../../trace/packet.ts";
import { fieldsQuestion, type Question, whichOf, within } from "../../trace/question.ts";
import { fits, type Pattern } from "../../trace/value.ts";
import { type Ask, exactly, holds, loopbackOf, only } from "./asking.ts";
import { chosenFate } from "./chosen-fate.ts";
import type { Subject } from "./classes.ts";
import { DROPPED, type Fate, RANGE_UNKNOWN, REFUSED, UNSAID, UNTOUCHED, wayTo } from "./fate.ts";
import { relayedNodePorts } from "./relayed-node-ports.ts";
import {
  externalPolicyOf,
  type Frontend,
  frontendsOf,
  frontendText,
  hasExternal,
  healthPortsOf,
  localOf,
  type SpecifiedNode,
  type StatedEndpoint,
  usable,
} from "./stated-services.ts";

/** @param deviations the mode's documented differences. */
export function specification(
  node: SpecifiedNode,
  deviations: ReadonlySet<Deviation>,
): { readonly fates: Subject<Fate>; why(packet: Packet): string; serviceOf(packet: Packet): string | undefined } {
  const isLeft = (address: IpAddress): boolean =>
    deviations.has("others-addresses-left") && node.otherNodes?.has(address) === true;
  const frontends = frontendsOf(node).filter(
    ({ kind, address, served }) =>
      !(deviations.has("sctp-unserved") && served.protocol === "sctp") &&
      (kind === "cluster" || address === undefined || !isLeft(address)),
  );
  const fixed = new Map<string, Frontend>();
  const nodePorts = new Map<string, Frontend>();
  for (const frontend of frontends) {
    const { address, port, served } = frontend;
    const map = address === undefined ? nodePorts : fixed;
    const key = keyOf(served.protocol, address, port);
    if (!map.has(key)) map.set(key, frontend);
  }
  const fixedKeys = Array.from(fixed, ([outcome, { address = "", port, served }]) => ({
    patterns: exactly([address, served.protocol, port]),
    outcome,
  }));
  const nodePortKeys = Array.from(nodePorts, ([outcome, { port, served }]) => ({
    patterns: exactly([served.protocol, port]),
    outcome,
  }));
  const isFrontend = fieldsQuestion(["destination", "protocol", "destinationPort"], fixedKeys);
  const isNodePort = fieldsQuestion(["protocol", "destinationPort"], nodePortKeys);
  const { family } = node;
  const relayed = relayedNodePorts(node, deviations);
  const loopback = loopbackOf(family);
  const isLoopbackAddress = (address: IpAddress) => loopback.some((range) => fits(range, address));
  const answering = node.nodePortAddresses ?? node.addresses;
  const isGuarding = deviations.has("loopback-node-ports") && family === "IPv4";
  const guardsLoopback = isGuarding && answering.some(isLoopbackAddress);
  const answersLoopback = guardsLoopback || deviations.has("loopback-served");
  const answersNodePorts = within("destination", [
    ...exactly(answering.filter((address) => answersLoopback || !isLoopbackAddress(address))),
    ...(answersLoopback && node.nodePortAddresses === undefined ? loopback : []),
  ]);
  const isOwnAddress = within("destination", [...exactly(node.addresses), ...loopback]);
  const isLoopback = within("destination", loopback);
  const fromLoopback = within("source", loopback);
  const clusterIPs = new Set(
    frontends.flatMap(({ kind, address }) => (kind === "cluster" && address !== undefined ? [address] : [])),
  );
  const clusterEnds = fieldsQuestion(
    ["source", "protocol", "destinationPort"],
    fixedKeys.filter(({ outcome }) => fixed.get(outcome)?.kind === "cluster"),
  );
  const isClusterIP = whichOf("destination", [...clusterIPs]);
  const isBound = whichOf("destination", [
    ...new Set(
      frontends.flatMap(({ address }) => (address === undefined || node.addresses.includes(address) ? [] : [address])),
    ),
  ]);
  const healthPorts = frontends.flatMap(({ served }) => healthPortsOf(served.service));
  const isHealthPort = fieldsQuestion(
    ["protocol", "destinationPort"],
    healthPorts.flatMap((port) =>
      ["tcp", "udp"].map((protocol) => ({ patterns: exactly([protocol, port]), outcome: "" })),
    ),
  );
  const isInServiceCIDR = within(
    "destination",
    node.serviceCIDRs.flatMap((text) => prefixPatterns(text, family)),
  );
  const meaning = new Meaning(
    node,
    deviations,
    clusterIPs,
    clusterEnds,
    localEnds(frontends, node, deviations.has("hairpin-of-unused")),
    deviations.has("unserved-node-ports-masqueraded") ? isMarkedByNumber : undefined,
  );

  const serviceOf = (packet: Packet): string | undefined => {
    const service = frontendFor(packet, () => {})?.served.service;
    return service === undefined ? undefined : `${service.namespace}/${service.name}`;
  };
  return { fates: { fateOf }, why, serviceOf };

  function fateOf(packet: Packet, ask: Ask): Fate {
    const asked = frontendFor(packet, ask);
    const found = asked && (openedFor(asked, packet, ask) ?? asked);
    const fate = found === undefined ? otherwise(packet, ask) : meaning.fateOf(found, packet, ask);
    const isUnserved = fate.has(UNTOUCHED) || fate.has(REFUSED);
    const isGuarded = isUnserved && guardsLoopback && holds(isLoopback, packet, ask);
    if (!isGuarded || holds(fromLoopback, packet, ask)) return fate;
    // Whether the guard or the port's rule comes first depends on who started first, kubelet or the proxy.
    return only(fate.has(REFUSED) || holds(isHealthPort, packet, ask) ? UNSAID : DROPPED);
  }

  function why(packet: Packet): string {
    const found = frontendFor(packet, () => {});
    return found === undefined ? "no Service answers there" : frontendText(found);
  }

  function frontendFor(packet: Packet, ask: Ask): Frontend | undefined {
    const { protocol, destination, destinationPort = 0 } = packet;
    ask(isFrontend, packet);
    return fixed.get(keyOf(protocol, destination, destinationPort)) ?? nodePortFor(packet, ask);
  }

  /** The node port that answers where source ranges bar a client from a load-balancer IP of the node itself. */
  function openedFor(frontend: Frontend, packet: Packet, ask: Ask): Frontend | undefined {
    const isOpened = deviations.has("node-port-opens-balancer") && meaning.bars(frontend, packet, ask);
    return isOpened ? nodePortFor(packet, ask) : undefined;
  }

  function nodePortFor(packet: Packet, ask: Ask): Frontend | undefined {
    return holds(answersNodePorts, packet, ask) ? nodePortOfNumber(packet, ask) : undefined;
  }

  function nodePortOfNumber(packet: Packet, ask: Ask): Frontend | undefined {
    ask(isNodePort, packet);
    return nodePorts.get(keyOf(packet.protocol, undefined, packet.destinationPort ?? 0));
  }

  /** Whether rules masquerade the packet because of its port alone, at any address. */
  function isMarkedByNumber(packet: Packet, ask: Ask): boolean {
    const nodePort = nodePortOfNumber(packet, ask);
    if (nodePort === undefined || packet.protocol === "sctp") return false;
    return externalPolicyOf(nodePort.served.service) === "Cluster";
  }

  function otherwise(packet: Packet, ask: Ask): Fate {
    if (relayed !== undefined && holds(isLoopback, packet, ask)) {
      const nodePort = nodePortOfNumber(packet, ask);
      if (nodePort !== undefined) return relayed(nodePort, packet, ask);
    }
    if (deviations.has("proxy-ports-answer") && node.ownSockets?.some((one) => holds(one, packet, ask)))
      return only(UNSAID);
    if (deviations.has("refused-at-every-address") && holds(isOwnAddress, packet, ask)) {
      const nodePort = nodePortOfNumber(packet, ask);
      if (nodePort !== undefined && !meaning.hasEndpoints(nodePort)) return only(REFUSED);
      if (nodePort !== undefined && meaning.lacksLocal(nodePort)) return only(DROPPED);
    }
    if (deviations.has("bound-ports-refused") && holds(isBound, packet, ask) && !holds(isHealthPort, packet, ask)) {
      return only(REFUSED);
    }
    if (
      deviations.has("unserved-node-ports-masqueraded") &&
      meaning.isOwn(packet, ask) &&
      holds(isOwnAddress, packet, ask) &&
      isMarkedByNumber(packet, ask)
    ) {
      return only(wayTo(undefined, !holds(fromLoopback, packet, ask)));
    }
    if (deviations.has("other-ports-refused")) {
      ask(isClusterIP, packet);
      if (clusterIPs.has(packet.destination)) return only(REFUSED);
    }
    const isMarked = meaning.isMarkedBySource(packet, ask) || meaning.isOwnToItself(packet, ask);
    const dropsUnallocated = deviations.has("unallocated-dropped");
    if (dropsUnallocated && node.serviceCIDRs.length === 0 && !isMarked && !holds(isOwnAddress, packet, ask))
      return only(RANGE_UNKNOWN);
    return only(dropsUnallocated && holds(isInServiceCIDR, packet, ask) ? DROPPED : wayTo(undefined, isMarked));
  }
}

/** The fate of packets to a Service. */
class Meaning {
  readonly #node: SpecifiedNode;
  readonly #deviations: ReadonlySet<Deviation>;
  readonly #isLocalPod: Question | undefined;
  readonly #fromLoopback: Question;
  readonly #clusterIPs: ReadonlySet<IpAddress>;
  readonly #markedSources: Question | undefined;
  readonly #localEnds: LocalEnds;
  /** Matches packets from an endpoint of this node to itself. */
  readonly #toItself: Question;
  readonly #isMarkedByNumber: ((packet: Packet, ask: Ask) => boolean) | undefined;

  constructor(
    node: SpecifiedNode,
    deviations: ReadonlySet<Deviation>,
    clusterIPs: ReadonlySet<IpAddress>,
    clusterEnds: Question,
    ends: LocalEnds,
    isMarkedByNumber: ((packet: Packet, ask: Ask) => boolean) | undefined,
  ) {
    const marksBySource = deviations.has("masqueraded-by-source") && node.detector.kind === "none";
    this.#markedSources = marksBySource && !node.masqueradesAll ? clusterEnds : undefined;
    this.#node = node;
    this.#clusterIPs = clusterIPs;
    this.#localEnds = ends;
    const keys = Array.from(ends.values(), (patterns) => ({ patterns, outcome: "" }));
    this.#toItself = fieldsQuestion(["source", "destination", "protocol", "destinationPort"], keys);
    this.#isMarkedByNumber = isMarkedByNumber;
    this.#deviations = deviations;
    this.#fromLoopback = within("source", loopbackOf(node.family));
    this.#isLocalPod = localPodQuestion(node.detector);
  }

  isMarkedBySource(packet: Packet, ask: Ask): boolean {
    return this.#markedSources !== undefined && holds(this.#markedSources, packet, ask);
  }

  isOwnToItself(packet: Packet, ask: Ask): boolean {
    if (!this.#deviations.has("own-endpoint-masqueraded")) return false;
    return this.isOwn(packet, ask) && holds(this.#toItself, packet, ask);
  }

  isOwn(packet: Packet, ask: Ask): boolean {
    return holds(FROM_NODE, packet, ask);
  }

  hasEndpoints({ served: { endpoints } }: Frontend): boolean {
    return usable(endpoints, this.#node).length > 0 || localOf(endpoints).length > 0;
  }

  /** Whether this node has no endpoint for external clients, whose policy is Local. */
  lacksLocal({ served: { service, endpoints } }: Frontend): boolean {
    return externalPolicyOf(service) === "Local" && localOf(endpoints).length === 0;
  }

  /** Whether only source ranges keep the packet from the endpoints. */
  bars(frontend: Frontend, packet: Packet, ask: Ask): boolean {
    return !this.#isOpened(frontend) && this.hasEndpoints(frontend) && this.#isBarred(frontend, packet, ask);
  }

  #isOpened({ served, address }: Frontend): boolean {
    return this.#deviations.has("external-opens-balancer") && hasExternal(served.service, address);
  }

  fateOf(frontend: Frontend, packet: Packet, ask: Ask): Fate {
    const { kind, address, served } = frontend;
    const { service, endpoints } = served;
    const isInternal = kind === "cluster";
    const isOwn = this.isOwn(packet, ask);
    const anywhere = usable(endpoints, this.#node);
    const local = localOf(endpoints);
    const hasNone = !this.hasEndpoints(frontend);
    // A later rule drops what no other has taken.
    const left = this.lacksLocal(frontend) ? DROPPED : UNTOUCHED;
    const isBarred = this.#isBarred(frontend, packet, ask);
    const asExternal = () => this.fateOf({ ...frontend, kind: "external" }, packet, ask);
    if (isBarred && this.#isOpened(frontend)) return asExternal();
    const sourcesFirst =
      this.#deviations.has("sources-first") || (!isOwn && this.#deviations.has("own-barred-at-balancer"));
    if (isBarred && !(hasNone && !sourcesFirst)) return only(this.#deviations.has("barred-left") ? left : DROPPED);
    if (hasNone) {
      // Packets to the node's own addresses come in again by loopback, and are treated like all others.
      const isElsewhere = address !== undefined && !this.#node.addresses.includes(address);
      const passes = !isInternal && isElsewhere && isOwn && this.#deviations.has("own-not-refused");
      return only(passes ? UNTOUCHED : REFUSED);
    }
    if (kind === "external" && address !== undefined && this.#isLeft(address, isOwn, packet, ask)) return only(left);
    const isPod = this.#isLocalPod !== undefined && holds(this.#isLocalPod, packet, ask);
    const decidesExternal = isInternal && this.#deviations.has("own-external-decides") && hasExternal(service, address);
    const policy = isInternal && !decidesExternal ? service.internalTrafficPolicy : externalPolicyOf(service);
    // Clients on the node reach endpoints of the whole cluster: the policy is for external traffic.
    const isBinding = isInternal || this.#deviations.has("local-binds-node") || !(isPod || isOwn);
    const isRestricted = policy === "Local" && isBinding;
    const fallsBack = local.length === 0 && served.isExternal && this.#deviations.has("local-falls-back");
    const chosen = isRestricted && !fallsBack ? local : anywhere;
    if (chosen.length === 0) {
      const isExternalToo = isInternal && this.#deviations.has("own-external-serves") && hasExternal(service, address);
      const fate = isExternalToo && asExternal();
      if (fate && !fate.has(UNTOUCHED)) return fate;
      return only(isRestricted && !this.#deviations.has("local-falls-back") ? DROPPED : REFUSED);
    }
    const isAsClusterIP =
      this.#deviations.has("cluster-address-masqueraded") && address !== undefined && this.#clusterIPs.has(address);
    const suffix = service.sessionAffinity === "ClientIP" && chosen.length > 1 ? ", always" : "";
    const fateWith = (isSeen: (endpoint: StatedEndpoint) => boolean): Fate =>
      chosenFate(chosen, service, this.#node, this.#deviations, (one) => wayTo(one.end, isSeen(one)) + suffix);
    if (this.#isAtSocket(frontend, policy, packet)) return fateWith(() => false);
    const isKept = this.#deviations.has("loopback-source-kept") && holds(this.#fromLoopback, packet, ask);
    const isMasqueraded =
      !isKept &&
      (this.#isMasqueraded(isInternal, policy, isPod, isOwn) ||
        this.isMarkedBySource(packet, ask) ||
        (kind !== "external" && !hasExternal(service, address) && this.#isMarkedByNumber?.(packet, ask) === true) ||
        (decidesExternal && this.#isMasqueraded(false, externalPolicyOf(service), isPod, isOwn)) ||
        (isAsClusterIP && this.#isMasqueraded(true, policy, isPod, isOwn)));
    // A pod that reaches itself must not see its own address as source; hairpins on other nodes do not pass here.
    const isHairpin = ({ address: own, end }: StatedEndpoint) =>
      own === packet.source &&
      (this.#localEnds.has(`${served.protocol} ${end}`) || this.#deviations.has("hairpin-anywhere"));
    const addresses = chosen.map((endpoint) => endpoint.address);
    if (!isMasqueraded) ask(whichOf("source", addresses), packet);
    // Packets from outside to a process of the node are delivered before their source is translated.
    const isDelivered = (endpoint: StatedEndpoint) =>
      !isOwn && this.#node.addresses.some((own) => own === endpoint.address);
    const isTranslated = (endpoint: StatedEndpoint) => (isMasqueraded || isHairpin(endpoint)) && !isDelivered(endpoint);
    return fateWith((endpoint) => this.#deviations.has("proxy-connects") || isTranslated(endpoint));
  }

  /** Whether the packet is left to the machine that has the external address. */
  #isLeft(address: IpAddress, isOwn: boolean, packet: Packet, ask: Ask): boolean {
    if (this.#node.addresses.includes(address)) return false;
    if (isOwn) return this.#deviations.has("own-external-left");
    return this.#deviations.has("bridged-external-left") && !holds(WITHOUT_BRIDGE, packet, ask);
  }

  /** Whether the endpoint is chosen at the socket, before it has a source address; at the node's own addresses, rules decide. */
  #isAtSocket({ kind, address, served }: Frontend, policy: string, packet: Packet): boolean {
    if (!this.#deviations.has("decided-at-socket") || packet.origin !== "socket") return false;
    if (served.service.balancing !== undefined) return false;
    if (address !== undefined && this.#node.addresses.includes(address)) return false;
    if (this.#node.masqueradesAll || (kind === "load-balancer" && served.ranges !== undefined)) return false;
    const isForHost = kind !== "cluster" && policy === "Local";
    if (packet.inInterface !== "" && (isForHost || this.#deviations.has("pods-not-at-socket"))) return false;
    return packet.protocol === "tcp" || (packet.protocol === "udp" && kind !== "node-port");
  }

  /** Whether the endpoint sees the node's address; not from pods to cluster IPs, nor where the policy is Local. */
  #isMasqueraded(isInternal: boolean, policy: string, isPod: boolean, isOwn: boolean): boolean {
    if (isInternal) return this.#node.masqueradesAll || (this.#isLocalPod !== undefined && !isPod);
    return policy === "Cluster" || (isOwn && !isPod && !this.#deviations.has("local-binds-node"));
  }

  /** If the node's own address is in the ranges, the load balancer's addresses are allowed too: the node may own them. */
  #isBarred({ kind, address, served: { ranges, balancers } }: Frontend, packet: Packet, ask: Ask): boolean {
    if (kind !== "load-balancer" || address === undefined || ranges === undefined) return false;
    const isNodeListed = ranges.some((range) => fits(range, this.#node.nodeIP));
    if (this.#deviations.has("own-barred-at-balancer") && this.isOwn(packet, ask)) {
      return !isNodeListed && holds(whichOf("source", [address]), packet, ask);
    }
    const own = exactly(this.#deviations.has("barred-left") ? [address] : balancers);
    return !holds(within("source", [...ranges, ...(isNodeListed ? own : [])]), packet, ask);
  }
}

/** By `protocol end`: the source, destination, protocol and port of a packet from the endpoint to itself. */
type LocalEnds = ReadonlyMap<string, readonly Pattern[]>;

/** A pod is on this node if the slices of one Service say so, even if those of another do not. */
function localEnds(frontends: readonly Frontend[], node: SpecifiedNode, withUnused: boolean): LocalEnds {
  const used = frontends.flatMap(({ served: { protocol, service, endpoints } }) => {
    const isNarrowed = service.internalTrafficPolicy === "Local" || externalPolicyOf(service) === "Local";
    const offered = withUnused ? endpoints : [...usable(endpoints, node), ...(isNarrowed ? localOf(endpoints) : [])];
    return offered.map((endpoint) => ({ ...endpoint, protocol }));
  });
  const entries = used.flatMap(({ isLocal, protocol, address, port, end }) =>
    isLocal ? [[`${protocol} ${end}`, exactly([address, address, protocol, port])] as const] : [],
  );
  return new Map(entries);
}

const WITHOUT_BRIDGE = whichOf("bridgePort", [""]);
const FROM_NODE = whichOf("inInterface", [""]);

function localPodQuestion(detector: LocalTrafficDetector): Question | undefined {
  switch (detector.kind) {
    case "none":
      return undefined;
    case "cidr":
      return within("source", prefixPatterns(detector.cidr, familyOf(detector.cidr)));
    case "interface":
      return within("inInterface", [{ kind: "exact", value: detector.name }]);
    case "interface-prefix":
      return within("inInterface", [{ kind: "beginning", text: detector.prefix }]);
  }
}

/** @param address undefined: every address that serves node ports. */
const keyOf = (protocol: string, address = "*", port: number): string => `${protocol} ${joinHostPort(address, port)}`;
