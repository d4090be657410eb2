/** `kube-proxy render` in ebpf mode: the packet path, what the maps would lead to, and the programs. */

import type { OfflineNode } from "../../inspect/offline-node.ts";
import { mapsOf } from "../../kernel/bpf/program.ts";
import { leadingMaps, memoryMaps } from "../../kernel/bpf/socket-balancer/maps.ts";
import { socketPrograms } from "../../kernel/bpf/socket-balancer/programs.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { joinHostPort } from "../../net/ip.ts";
import type { NftablesPlanData } from "../nftables/cluster-plan.ts";
import { LOCALHOST } from "../nftables/localhost-relay.ts";
import { renderNftables } from "../nftables/render.ts";
import type { ModeRenderer, RenderRequest } from "../rendering.ts";
import { destinationsOf } from "./installed.ts";
import { ledAtLocalhost, packetPathConfig } from "./packet-path.ts";
import { planSocket, type SocketPlan, type Treatment } from "./socket-plan.ts";

export const renderEbpf: ModeRenderer<NftablesPlanData> = async (node, request) => {
  const { form } = request;
  if (form === "sockets") return { kind: "text", text: socketLines(node, request), tool: `sockets, ${node.family}` };
  if (form === "programs") return { kind: "text", text: programText(node, request), tool: `programs, ${node.family}` };
  return renderNftables(node, { ...request, config: packetPathConfig(request.config) });
};

/** A line for each frontend, in the order of the service ports' names: what a socket of this node that asks for it meets. */
function socketLines(node: OfflineNode, { service, config }: RenderRequest): string {
  const { state, name, zone } = node;
  if (config.masqueradeAll) return "masqueradeAll: everything takes the rules\n";
  const facts = { nodeName: name, zone };
  const atLocalhost = ledAtLocalhost(config, node.nodePortAddresses);
  const lines: string[] = [];
  for (const [key, port] of state.services) {
    if (service !== undefined && port.name.service !== service) continue;
    const plan = planSocket(port, state.endpoints.get(key) ?? [], facts);
    for (const { kind, address, port: number } of destinationsOf(port)) {
      const treatment = plan.treatments[kind];
      const line = (place: string, outcome: string): void =>
        void lines.push(`${port.protocol} ${place} ${outcome} # ${port.name.text}\n`);
      const place = address === undefined ? `*:${number}` : joinHostPort(address, number);
      line(place, outcomeText(treatment, plan, port));
      const isLed = treatment === "cluster" || (treatment === "cluster-for-host" && atLocalhost === "all");
      if (address !== undefined || atLocalhost === "none" || !isLed) continue;
      line(joinHostPort(LOCALHOST[node.family], number), outcomeText("cluster-for-host", plan, port));
    }
  }
  return lines.sort().join("");
}

function outcomeText(treatment: Treatment, { cluster, local }: SocketPlan, { protocol }: ServicePort): string {
  const list = (treatment === "local" ? local : cluster).map(({ text }) => text).join(" ");
  switch (treatment) {
    case "pass":
      return "takes the rules";
    case "refuse":
      // A datagram is refused by the rules.
      return protocol === "TCP" ? "is refused" : "takes the rules";
    case "cluster-for-host":
      return `leads the host to ${list}, and pods take the rules`;
    default:
      return `leads to ${list}`;
  }
}

/** The programs, each with its hook, its size and its maps: socket.bpf.c has what they do. */
function programText({ family }: OfflineNode, { config, service }: RenderRequest): string {
  if (service !== undefined) throw new Error("--output programs is the same for every Service: leave --service out");
  const maps = { ...leadingMaps(family, { frontends: 1024, slots: 4096, backends: 4096 }), ...memoryMaps(family) };
  const { hostNamespaceOnly: isForHostOnly, holdNodePorts: holdsNodePorts } = config.ebpf;
  const options = { hostCookie: 1n, isForHostOnly, holdsNodePorts, connectedUdp: "all" as const };
  return socketPrograms(family, maps, options)
    .map(([hook, program]) => {
      const names = mapsOf(program).map(({ name }) => name);
      return `${hook} ${program.name}\n  ${program.code.length / 8} instructions; ${names.join(" ")}\n`;
    })
    .join("");
}
