/**
 * The virtual servers of IPVS as base chains: where a packet for one of them reaches the node, or leaves it, IPVS chooses a real
 * server and sends the packet on itself (reference ipvs.md §2). Read from what `ipvsadm -S -n` prints.
 */
import { type IpAddress, parseHostPort } from "../../net/ip.ts";
import type { NodeFacts } from "../facts.ts";
import type { BaseChain, Chain, Rule, Stage, StepResult } from "../netfilter/program.ts";
import { endText, type Packet, type VirtualServerName } from "../packet.ts";
import { fieldsQuestion, type Key } from "../question.ts";

interface RealServer {
  readonly address: IpAddress;
  readonly port: number;
  readonly weight: number;
}

interface VirtualServer extends VirtualServerName {
  readonly scheduler: string;
  readonly isPersistent: boolean;
  readonly text: string;
  readonly servers: RealServer[];
}

/** NF_IP_PRI_NAT_SRC - 1 and NF_IP_PRI_NAT_DST + 2 (net/netfilter/ipvs/ip_vs_core.c). */
const HOOKS: readonly (readonly [Stage, number])[] = [
  ["input", 99],
  ["output", -98],
];

const PROTOCOLS: Readonly<Record<string, string>> = { "-t": "tcp", "-u": "udp", "--sctp-service": "sctp" };

/** @param knowsClients whether no client has been here before. Pure. */
export function ipvsChains(texts: readonly string[], facts: NodeFacts, knowsClients: boolean): BaseChain[] {
  const servers = readServers(texts);
  if (servers.length === 0) return [];
  const chain = virtualServerChain(servers, facts, knowsClients);
  return HOOKS.map(([stage, priority]) => {
    return { table: "ipvs", type: "filter", stage, priority, policy: "accept", chain, chainNamed: () => undefined };
  });
}

const keyOf = ({ protocol, address, port }: VirtualServerName): string => `${protocol} ${endText(address, port)}`;

function readServers(texts: readonly string[]): VirtualServer[] {
  const servers = new Map<string, VirtualServer>();
  for (const line of texts.flatMap((text) => text.split("\n"))) {
    const words = line.trim().split(" ");
    const name = serverName(words[1], words[2]);
    if (name === undefined) continue;
    const after = (...options: readonly string[]) => words[words.findIndex((word) => options.includes(word)) + 1] ?? "";
    if (words[0] === "-A") {
      const isPersistent = words.includes("-p");
      servers.set(keyOf(name), { ...name, scheduler: after("-s"), isPersistent, text: line.trim(), servers: [] });
    } else if (words[0] === "-a") {
      const real = parseHostPort(after("-r"));
      const weight = words.includes("-w") ? Number(after("-w")) : 1;
      if (real !== undefined) servers.get(keyOf(name))?.servers.push({ ...real, weight });
    }
  }
  return [...servers.values()];
}

function serverName(option: string | undefined, end: string | undefined): VirtualServerName | undefined {
  const protocol = PROTOCOLS[option ?? ""];
  const found = parseHostPort(end ?? "");
  return protocol === undefined || found === undefined ? undefined : { protocol, ...found };
}

/** One rule for each virtual server; a packet meets its own. */
function virtualServerChain(servers: readonly VirtualServer[], facts: NodeFacts, knowsClients: boolean): Chain {
  const indices = new Map(servers.map((server, index) => [keyOf(server), index]));
  const keys = servers.map((server): Key => {
    const { protocol, address, port } = server;
    return { patterns: [protocol, address, port].map((value) => ({ kind: "exact", value })), outcome: keyOf(server) };
  });
  const asked = [fieldsQuestion(["protocol", "destination", "destinationPort"], keys)];
  return {
    asks: () => asked,
    name: "virtual servers",
    length: servers.length,
    isNumbered: false,
    ruleAt(index) {
      const server = servers[index];
      return server === undefined ? undefined : serverRule(server, facts, knowsClients);
    },
    firstCandidate(from, packet) {
      // What IPVS has sent on does not come to it again.
      if (packet.virtualServer !== undefined || packet.destinationPort === undefined) return servers.length;
      const { protocol, destination: address, destinationPort: port } = packet;
      const index = indices.get(keyOf({ protocol, address, port }));
      return index === undefined || index < from ? servers.length : index;
    },
  };
}

function serverRule(server: VirtualServer, facts: NodeFacts, knowsClients: boolean): Rule {
  const text = `${server.text}, and ${server.servers.length} real servers`;
  return {
    text,
    steps: [
      {
        text,
        asks: [],
        isAction: true,
        run(packet) {
          const chosen = choice(server, packet, facts);
          if (!server.isPersistent || knowsClients) return chosen;
          const question = `${packet.source} has used ${keyOf(server)} before, within its time of persistence`;
          const yes: StepResult = {
            kind: "lost",
            because: "it goes to the real server of the client's earlier connections",
          };
          return { kind: "unknown", question, yes, no: chosen };
        },
      },
    ],
  };
}

function choice(server: VirtualServer, packet: Packet, facts: NodeFacts): StepResult {
  const usable = server.servers.filter(({ weight }) => weight > 0);
  const isWeighted = server.scheduler.startsWith("w");
  const total = usable.reduce((sum, { weight }) => sum + (isWeighted ? weight : 1), 0);
  if (total === 0) return { kind: "verdict", verdict: { kind: "reject", answer: "icmp port-unreachable" } };
  const options = usable.map((real) => {
    return { odds: (isWeighted ? real.weight : 1) / total, result: sentTo(real, server, packet, facts) };
  });
  return { kind: "choice", options };
}

/** A real server on this node gets the packet at once; others by way of the node's own output. */
function sentTo({ address, port }: RealServer, server: VirtualServer, packet: Packet, facts: NodeFacts): StepResult {
  const { protocol, address: virtualAddress, port: virtualPort, scheduler } = server;
  const virtualServer: VirtualServerName = { protocol, address: virtualAddress, port: virtualPort };
  const changed: Packet = { ...packet, destination: address, destinationPort: port, virtualServer };
  const said = `${scheduler}: to the real server ${endText(address, port)}`;
  if (facts.addressType(address) === "local") {
    return { kind: "verdict", verdict: { kind: "accept" }, packet: changed, said };
  }
  return {
    kind: "verdict",
    verdict: { kind: "forward-to", stage: "output" },
    packet: { ...changed, inInterface: "" },
    said,
  };
}
