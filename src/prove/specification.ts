/**
 * What a Service means to packets on a node, as Kubernetes documents it: the third party that modes are compared with. It reads the
 * objects itself and shares nothing with the planners, on purpose; with `trace` it shares only the form of a question (question.ts).
 * The node's addresses, those that answer for node ports, and what tells its pods from others are given. Sources:
 *
 * - Service API: `spec` and `status` of core/v1 Service (https://kubernetes.io/docs/reference/kubernetes-api/service-resources/service-v1/)
 * - virtual IPs and service proxies (https://kubernetes.io/docs/reference/networking/virtual-ips/)
 * - EndpointSlice conditions and hints (https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/)
 * - KEP-1669 (terminating endpoints), KEP-2086 (internal traffic policy), KEP-2433 and KEP-3015 (hints), KEP-1860 (ipMode)
 */
import type { Deviation } from "../dataplane/deviations.ts";
import type { LocalTrafficDetector } from "../model/local-traffic-detector.ts";
import { familyOf, type IpAddress, joinHostPort } from "../net/ip.ts";
import { prefixPatterns } from "../trace/facts.ts";
import type { Packet } from "../trace/packet.ts";
import { fieldsQuestion, isOneOf, type PacketField, type Question } from "../trace/question.ts";
import { fits, type Pattern } from "../trace/value.ts";
import type { Subject } from "./classes.ts";
import { DROPPED, type Fate, REFUSED, UNTOUCHED, wayTo } from "./fate.ts";
import {
  externalPolicyOf,
  type Frontend,
  frontendsOf,
  hasExternal,
  type Kind,
  localOf,
  type ServedPort,
  type SpecifiedNode,
  type StatedEndpoint,
  usable,
} from "./stated-services.ts";

type Ask = (question: Question, packet: Packet) => void;

/** @param deviations what the mode does otherwise, as documented. */
export function specification(
  node: SpecifiedNode,
  deviations: ReadonlySet<Deviation>,
): { readonly fates: Subject<Fate>; why(packet: Packet): string } {
  const frontends = frontendsOf(node);
  const fixed = new Map<string, Frontend>();
  const nodePorts = new Map<string, Frontend>();
  for (const frontend of frontends) {
    const { address, port, served } = frontend;
    const [map, key] =
      address === undefined
        ? [nodePorts, `${served.protocol} ${port}`]
        : [fixed, keyOf(served.protocol, address, port)];
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
  const loopback = ["127.0.0.0/8", "::1/128"].flatMap((prefix) => prefixPatterns(prefix, family));
  const isLoopbackAddress = (address: IpAddress) => loopback.some((range) => fits(range, address));
  const answering = node.nodePortAddresses ?? node.addresses;
  const answersLoopback =
    deviations.has("loopback-node-ports") && family === "IPv4" && answering.some(isLoopbackAddress);
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
  const isClusterIP = isOneOf("destination", [...clusterIPs]);
  const isInServiceCIDR = within(
    "destination",
    node.serviceCIDRs.flatMap((text) => prefixPatterns(text, family)),
  );
  const meaning = new Meaning(node, deviations, clusterIPs, localEnds(frontends, node));

  return { fates: { fateOf }, why };

  function fateOf(packet: Packet, ask: Ask): Fate {
    const found = frontendFor(packet, ask);
    const fate = found === undefined ? otherwise(packet, ask) : meaning.fateOf(found, packet, ask);
    const isUnserved = fate.has(UNTOUCHED) || fate.has(REFUSED);
    const isGuarded = isUnserved && answersLoopback && holds(isLoopback, packet, ask);
    return isGuarded && !holds(fromLoopback, packet, ask) ? only(DROPPED) : fate;
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

  function nodePortFor(packet: Packet, ask: Ask): Frontend | undefined {
    if (!holds(answersNodePorts, packet, ask)) return undefined;
    ask(isNodePort, packet);
    return nodePorts.get(`${packet.protocol} ${packet.destinationPort}`);
  }

  function otherwise(packet: Packet, ask: Ask): Fate {
    if (deviations.has("refused-at-every-address") && holds(isOwnAddress, packet, ask)) {
      ask(isNodePort, packet);
      const nodePort = nodePorts.get(`${packet.protocol} ${packet.destinationPort}`);
      if (nodePort !== undefined && !meaning.hasEndpoints(nodePort)) return only(REFUSED);
      if (nodePort !== undefined && meaning.lacksLocal(nodePort)) return only(DROPPED);
    }
    if (deviations.has("other-ports-refused")) {
      ask(isClusterIP, packet);
      if (clusterIPs.has(packet.destination)) return only(REFUSED);
    }
    const isUnallocated = deviations.has("unallocated-dropped") && holds(isInServiceCIDR, packet, ask);
    return only(isUnallocated ? DROPPED : UNTOUCHED);
  }
}

function frontendText({ kind, served }: Frontend): string {
  const { name, service, endpoints } = served;
  const policy = kind === "cluster" ? service.internalTrafficPolicy : externalPolicyOf(service);
  const word = kind === "cluster" ? "internalTrafficPolicy" : "externalTrafficPolicy";
  const ready = endpoints.filter((endpoint) => endpoint.ready).length;
  return `${name}, ${KIND_WORDS[kind]}, ${word} ${policy}, ${ready} of ${endpoints.length} endpoints ready`;
}

const KIND_WORDS: Readonly<Record<Kind, string>> = {
  cluster: "cluster IP",
  "load-balancer": "load-balancer IP",
  external: "external IP",
  "node-port": "node port",
};

/** What becomes of a packet that a Service is asked by. */
class Meaning {
  readonly #node: SpecifiedNode;
  readonly #deviations: ReadonlySet<Deviation>;
  readonly #isLocalPod: Question | undefined;
  readonly #isOwn = isOneOf("inInterface", [""]);

  readonly #clusterIPs: ReadonlySet<IpAddress>;
  readonly #localEnds: ReadonlySet<string>;

  constructor(
    node: SpecifiedNode,
    deviations: ReadonlySet<Deviation>,
    clusterIPs: ReadonlySet<IpAddress>,
    ends: ReadonlySet<string>,
  ) {
    this.#node = node;
    this.#clusterIPs = clusterIPs;
    this.#localEnds = ends;
    this.#deviations = deviations;
    this.#isLocalPod = localPodQuestion(node.detector);
  }

  hasEndpoints({ served: { endpoints } }: Pick<Frontend, "served">): boolean {
    return usable(endpoints, this.#node).length > 0 || localOf(endpoints).length > 0;
  }

  /** Whether clients outside are not served here, though others are. */
  lacksLocal({ served: { service, endpoints } }: Frontend): boolean {
    return externalPolicyOf(service) === "Local" && localOf(endpoints).length === 0;
  }

  fateOf({ kind, address, served, port }: Frontend, packet: Packet, ask: Ask): Fate {
    const { service, endpoints } = served;
    const isInternal = kind === "cluster";
    const isOwn = holds(this.#isOwn, packet, ask);
    const anywhere = usable(endpoints, this.#node);
    const local = localOf(endpoints);
    const hasNone = !this.hasEndpoints({ served });
    const isBarred = kind === "load-balancer" && address !== undefined && this.#isBarred(served, address, packet, ask);
    if (isBarred && !(hasNone && !this.#deviations.has("sources-first"))) return only(DROPPED);
    if (hasNone) {
      const passes = !isInternal && kind !== "node-port" && isOwn && this.#deviations.has("own-not-refused");
      return only(passes ? UNTOUCHED : REFUSED);
    }
    const isPod = this.#isLocalPod !== undefined && holds(this.#isLocalPod, packet, ask);
    const policy = isInternal ? service.internalTrafficPolicy : externalPolicyOf(service);
    // Clients on the node reach the whole cluster: the policy is for what comes from outside.
    const isRestricted = policy === "Local" && (isInternal || !(isPod || isOwn));
    const chosen = isRestricted ? local : anywhere;
    if (chosen.length === 0) {
      const isExternalToo = isInternal && this.#deviations.has("own-external-serves") && hasExternal(service, address);
      if (isExternalToo) return this.fateOf({ kind: "external", address, served, port }, packet, ask);
      return only(isRestricted ? DROPPED : REFUSED);
    }
    const isAsClusterIP =
      this.#deviations.has("cluster-address-masqueraded") && address !== undefined && this.#clusterIPs.has(address);
    if (this.#isAtSocket({ kind, served }, policy, packet)) {
      return new Map(chosen.map(({ end }) => [wayTo(end, false), 1 / chosen.length]));
    }
    const isMasqueraded =
      this.#isMasqueraded(isInternal, policy, isPod, isOwn) ||
      (isAsClusterIP && this.#isMasqueraded(true, policy, isPod, isOwn));
    // A pod that is led to itself must not see its own address; those of other nodes do not come by here.
    const isHairpin = ({ address: own, end }: StatedEndpoint) =>
      own === packet.source &&
      (this.#localEnds.has(`${served.protocol} ${end}`) || this.#deviations.has("hairpin-anywhere"));
    const addresses = chosen.map((endpoint) => endpoint.address);
    if (!isMasqueraded) ask(isOneOf("source", addresses), packet);
    const isSticky = service.sessionAffinity === "ClientIP" && chosen.length > 1;
    return new Map(
      chosen.map((endpoint) => {
        const way = wayTo(endpoint.end, isMasqueraded || isHairpin(endpoint));
        return [isSticky ? `${way}, always` : way, 1 / chosen.length];
      }),
    );
  }

  /** Where a socket asks before anything decides by the address that it will have. */
  #isAtSocket({ kind, served }: Pick<Frontend, "kind" | "served">, policy: string, packet: Packet): boolean {
    if (!this.#deviations.has("decided-at-socket") || packet.origin !== "socket") return false;
    if (this.#node.masqueradesAll || (kind === "load-balancer" && served.ranges !== undefined)) return false;
    if (kind !== "cluster" && policy === "Local" && packet.inInterface !== "") return false;
    return packet.protocol === "tcp" || (packet.protocol === "udp" && kind !== "node-port");
  }

  /** Of which source the endpoint sees: a pod's own to cluster IPs, a client's own where the policy is Local. */
  #isMasqueraded(isInternal: boolean, policy: string, isPod: boolean, isOwn: boolean): boolean {
    const { masqueradesAll } = this.#node;
    if (isInternal) return masqueradesAll || (this.#isLocalPod !== undefined && !isPod);
    if (policy === "Cluster") return true;
    return isOwn;
  }

  /** A node whose own address is in the ranges may ask from the load balancer's addresses, which it may have as its own. */
  #isBarred({ service, ranges, balancers }: ServedPort, address: IpAddress, packet: Packet, ask: Ask): boolean {
    if (ranges === undefined) return false;
    if (hasExternal(service, address) && this.#deviations.has("external-opens-balancer")) return false;
    const isNodeListed = ranges.some((range) => fits(range, this.#node.nodeIP));
    return !holds(within("source", isNodeListed ? [...ranges, ...exactly(balancers)] : ranges), packet, ask);
  }
}

/** A pod is on this node when the slices of one Service say so, also where those of another do not. */
function localEnds(frontends: readonly Frontend[], node: SpecifiedNode): ReadonlySet<string> {
  const used = frontends.flatMap(({ served: { protocol, service, endpoints } }) => {
    const isNarrowed = service.internalTrafficPolicy === "Local" || externalPolicyOf(service) === "Local";
    const offered = [...usable(endpoints, node), ...(isNarrowed ? localOf(endpoints) : [])];
    return offered.map((endpoint) => ({ ...endpoint, protocol }));
  });
  return new Set(used.filter(({ isLocal }) => isLocal).map(({ protocol, end }) => `${protocol} ${end}`));
}

function only(way: string): Fate {
  return new Map([[way, 1]]);
}

function exactly(values: readonly (string | number)[]): Pattern[] {
  return values.map((value) => ({ kind: "exact", value }));
}

function within(field: PacketField, ranges: readonly Pattern[]): Question {
  return fieldsQuestion(
    [field],
    ranges.map((range) => ({ patterns: [range], outcome: "" })),
  );
}

/** Asks, and says whether one of the keys is the packet's. */
function holds(question: Question, packet: Packet, ask: Ask): boolean {
  ask(question, packet);
  const values = question.values(packet) ?? [];
  return question.keys.some(({ patterns }) => patterns.every((pattern, index) => fits(pattern, values[index] ?? "")));
}

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

const keyOf = (protocol: string, address: string, port: number): string => `${protocol} ${joinHostPort(address, port)}`;
