/**
 * What each client must get from each address: sends its packet through the proxy's plan for the same objects (`trace`), with the
 * addresses of the demo's network.
 */

import type { KubeProxyConfig } from "../src/contract/config/config.ts";
import { offlineNode } from "../src/contract/inspect/offline-node.ts";
import { checkedSettings } from "../src/lib/plan-settings.ts";
import { nodePortIPs } from "../src/model/node-port-addresses.ts";
import type { ClusterRecords } from "../src/model/objects.ts";
import { familyOf, IP_FAMILIES, type IpFamily, joinHostPort } from "../src/net/ip.ts";
import { protocolName } from "../src/net/protocol.ts";
import type { Walk } from "../src/tools/explain/encounters.ts";
import { walkOf } from "../src/tools/explain/planned-rules.ts";
import type { Outcome } from "../src/trace/netfilter/tree.ts";
import { fateText } from "../src/trace/report/fate-text.ts";
import { nodeA } from "../testkit/net/topology-spec.ts";
import type { ClusterView } from "./cluster-view.ts";
import { type NetworkFacts, networkFacts } from "./demo-network.ts";
import type { Expectation } from "./judgement.ts";
import { addressOf, demoNode, type PlayedNode } from "./played-node.ts";
import { configOf, type ProxyStart } from "./proxy-process.ts";
import type { Position, Target } from "./targets.ts";

/** The plan for a cluster, from the view of the demo's clients. */
export class PlannedAnswers {
  readonly #walks: Readonly<Record<IpFamily, Walk>>;
  readonly #facts: Readonly<Record<IpFamily, NetworkFacts>>;
  /** Pod names by `TCP 10.180.0.11:8080`. */
  readonly #pods: ReadonlyMap<string, string>;

  private constructor(view: ClusterView, node: PlayedNode, walks: Readonly<Record<IpFamily, Walk>>) {
    this.#walks = walks;
    this.#facts = networkFacts(node, view.sockets);
    this.#pods = new Map(
      view.sockets.map(({ protocol, address, port, pod }) => [`${protocol} ${joinHostPort(address, port)}`, pod]),
    );
  }

  static async of(
    view: ClusterView,
    start: Pick<ProxyStart, "mode" | "chosen">,
    node: PlayedNode,
  ): Promise<PlannedAnswers> {
    const { config } = await checkedSettings({ config: configOf(start), node: node.name });
    const [IPv4, IPv6] = await Promise.all(IP_FAMILIES.map((family) => walkIn(family, view.cluster, config, node)));
    if (IPv4 === undefined || IPv6 === undefined) throw new RangeError("there are two families");
    return new PlannedAnswers(view, node, { IPv4, IPv6 });
  }

  /** Whether a rule or socket redirects packets to the address. */
  isLed(target: Target): boolean {
    return this.#outcomes(target, "node").some(({ fate, packet }) => fate.kind !== "delivered" || isElsewhere(packet));
  }

  answerTo(target: Target, position: Position): Expectation {
    const { service, port, family } = target;
    const facts = this.#facts[family];
    const outcomes = this.#outcomes(target, position);
    const peers = new Map<string, NonNullable<ReturnType<NetworkFacts["masqueradeAddress"]>> | undefined>();
    let isKept = false;
    for (const { fate, packet } of outcomes) {
      const pod = this.#pods.get(`${port.protocol} ${joinHostPort(packet.destination, packet.destinationPort ?? 0)}`);
      if (pod === undefined || (fate.kind !== "sent" && fate.kind !== "delivered")) continue;
      if (fate.kind === "sent" && fate.isAnswerLost === true) continue;
      isKept = !packet.isSourceTranslated;
      // A socket of the node that connects directly to the endpoint gets the outgoing interface's address, as masquerading does.
      const isAtSocket = position === "node" && packet.original.destination === packet.destination;
      const seen = isKept && !isAtSocket ? packet.source : facts.masqueradeAddress(packet.destination);
      peers.set(pod, facts.isOnNode(packet.destination) ? undefined : seen);
    }
    if (peers.size > 0) {
      return { kind: "answer", peers, source: isKept ? "kept" : "masqueraded", isSticky: service.isSticky };
    }
    const [first] = outcomes;
    if (first === undefined) throw new RangeError("a packet has an end");
    // In the demo, no process listens at the node's own addresses.
    const kind = first.fate.kind === "refused" || first.fate.kind === "delivered" ? "refused" : "dropped";
    return { kind, why: fateText(first) };
  }

  #outcomes({ address, number, port, family }: Target, position: Position): readonly Outcome[] {
    const { sources } = this.#facts[family];
    return [
      ...this.#walks[family]({
        family,
        protocol: protocolName(port.protocol),
        source: sources[position],
        sourcePort: undefined,
        destination: address,
        destinationPort: number,
        inInterface: { pod: undefined, node: "", client: "eth0" }[position],
        origin: position === "client" ? "elsewhere" : "socket",
      }),
    ];
  }
}

function isElsewhere({ destination, original }: Outcome["packet"]): boolean {
  return destination !== original.destination;
}

async function walkIn(
  family: IpFamily,
  cluster: ClusterRecords,
  config: KubeProxyConfig,
  { addresses, extra }: PlayedNode,
): Promise<Walk> {
  const node = offlineNode(cluster, config, family, () => {});
  const { bridge } = nodeA;
  const own = [
    ...[...node.hostAddresses, demoNode.addresses[family], addresses[family], ...extra],
    addressOf(family === "IPv4" ? bridge.ipv4 : bridge.ipv6),
  ].filter((address) => familyOf(address) === family);
  const hostAddresses = [...new Set(own)];
  const planned = { ...node, hostAddresses, nodePortIPs: nodePortIPs(node.nodePortAddresses, own) };
  return await walkOf(planned, config, true);
}
