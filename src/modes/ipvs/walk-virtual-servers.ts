/**
 * IPVS virtual servers as base chains: when a packet for one of them enters or leaves the node, IPVS picks a real
 * server and forwards the packet itself (reference ipvs.md §2). Read from the output of `ipvsadm -S -n`.
 */
import { counted } from "../../logging/counted.ts";
import { type IpAddress, parseHostPort } from "../../net/ip.ts";

import type { Dump, DumpReader } from "../../trace/dump/recognise.ts";
import type { NodeFacts } from "../../trace/facts.ts";
import type { RememberedLists } from "../../trace/iptables/surroundings.ts";
import { destinationChain, placeQuestions, stickyChoice } from "../../trace/netfilter/destinations.ts";
import type { BaseChain, Rule, Stage, StepResult } from "../../trace/netfilter/program.ts";
import { endText, type Packet, type VirtualServerName } from "../../trace/packet.ts";

interface RealServer {
  readonly address: IpAddress;
  readonly port: number;
  readonly weight: number;
  /** Whether its packets are translated: others keep their destination and are not traced further. */
  readonly isTranslated: boolean;
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

/** Reads the output of `ipvsadm -S -n` for `trace`. Its addresses are the node's: other packets never reach a virtual server. */
export function virtualServerDump(text: string): Dump {
  const servers = readServers(text);
  // Any packet may carry the mark.
  const hasMarks = /^-A -f /m.test(text);
  return {
    ...{
      kind: "chains",
      tool: "ipvsadm",
      text,
      addresses: [...new Set(Array.from(servers.values(), ({ address }) => address))],
    },
    chains: (facts, clients) => (servers.size === 0 ? [] : ipvsChains(servers, hasMarks, facts, clients)),
  };
}

export const virtualServerReader: DumpReader = {
  prints: "ipvsadm -S -n",
  read: (text) => (/^-A (?:-[tuf]|--sctp-service) /m.test(text) ? virtualServerDump(text) : undefined),
};

/** One rule for each virtual server; a packet meets only its own. @param clients known from before; undefined if unknown. */
function ipvsChains(
  servers: ReadonlyMap<string, VirtualServer>,
  hasMarks: boolean,
  facts: NodeFacts,
  clients: RememberedLists | undefined,
): BaseChain[] {
  const [asked] = placeQuestions(servers.keys());
  return HOOKS.map(([stage, priority]) =>
    destinationChain({
      ...{ table: "ipvs", stage, priority, entries: servers },
      name: hasMarks ? "virtual servers, some of them by marks," : "virtual servers",
      asks: hasMarks ? undefined : () => [asked],
      placeOf({ virtualServer, protocol, destination: address, destinationPort: port }) {
        // Packets that IPVS has forwarded do not enter it again.
        return virtualServer !== undefined || port === undefined ? undefined : keyOf({ protocol, address, port });
      },
      ruleOf: (_place, server) => serverRule(server, facts, clients),
    }),
  );
}

const keyOf = ({ protocol, address, port }: VirtualServerName): string => `${protocol} ${endText(address, port)}`;

function readServers(text: string): ReadonlyMap<string, VirtualServer> {
  const servers = new Map<string, VirtualServer>();
  for (const line of text.split("\n")) {
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
      const isTranslated = words.includes("-m");
      if (real !== undefined) servers.get(keyOf(name))?.servers.push({ ...real, weight, isTranslated });
    }
  }
  return servers;
}

function serverName(option: string | undefined, end: string | undefined): VirtualServerName | undefined {
  const protocol = PROTOCOLS[option ?? ""];
  const found = parseHostPort(end ?? "");
  return protocol === undefined || found === undefined ? undefined : { protocol, ...found };
}

function serverRule(server: VirtualServer, facts: NodeFacts, clients: RememberedLists | undefined): Rule {
  const text = `${server.text}, and ${counted(server.servers.length, "real server")}`;
  const run = (packet: Packet): StepResult => choice(server, packet, facts, clients);
  return { text, steps: [{ text, asks: [], isAction: true, run }] };
}

function choice(
  server: VirtualServer,
  packet: Packet,
  facts: NodeFacts,
  clients: RememberedLists | undefined,
): StepResult {
  const usable = server.servers.filter(({ weight }) => weight > 0);
  const isWeighted = server.scheduler.startsWith("w") || server.scheduler === "mh";
  const total = usable.reduce((sum, { weight }) => sum + (isWeighted ? weight : 1), 0);
  if (total === 0) return { kind: "verdict", verdict: { kind: "reject" } };
  const ends = usable.map((real) => ({
    end: endText(real.address, real.port),
    odds: (isWeighted ? real.weight : 1) / total,
    result: sentTo(real, server, packet, facts),
  }));
  if (!server.isPersistent) return { kind: "choice", options: ends };
  const [set, client] = [keyOf(server), packet.source];
  const question = `${client} has used ${set} before, within its time of persistence`;
  return stickyChoice(clients, { set, client, question, ends });
}

type SentTo = StepResult & { kind: "verdict" | "lost" };

/** A real server on this node gets the packet directly; others get it through the node's output hook. */
function sentTo(
  { address, port, isTranslated }: RealServer,
  server: VirtualServer,
  packet: Packet,
  facts: NodeFacts,
): SentTo {
  if (!isTranslated)
    return { kind: "lost", because: `the real server ${endText(address, port)} gets the packet as it is` };
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
    packet: { ...changed, inInterface: "", bridgePort: "" },
    said,
  };
}
