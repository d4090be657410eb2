/** `kube-proxy render` in ebpf mode: the packet path, the planned redirects at the socket, and the programs. */

import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import type { LedSocket } from "../../contract/inspection.ts";
import type { ModeRenderer, RenderRequest } from "../../contract/rendering.ts";
import { mapsOf } from "../../kernel/bpf/map-definition.ts";
import { type NftablesPlanData, renderNftables } from "../nftables/cluster-plan.ts";
import { destinationsOf } from "./installed.ts";
import { placeText, plannedPlaces } from "./live-sockets.ts";
import { packetPathConfig } from "./packet-path.ts";
import { countingMaps, leadingMaps, memoryMaps } from "./socket-balancer/maps.ts";
import { socketPrograms } from "./socket-balancer/programs.ts";

export const renderEbpf: ModeRenderer<NftablesPlanData> = async (node, request) => {
  const { form } = request;
  if (form === "sockets") return { kind: "text", text: socketLines(node, request), tool: `sockets, ${node.family}` };
  if (form === "programs") return { kind: "text", text: programText(node, request), tool: `programs, ${node.family}` };
  return renderNftables(node, { ...request, config: packetPathConfig(request.config) });
};

/** One line per frontend, sorted: what happens to a socket of this node that connects to it. */
function socketLines(node: OfflineNode, { service, config }: RenderRequest): string {
  if (config.masqueradeAll) return "masqueradeAll: everything takes the rules\n";
  const outcomes = new Map<string, string>();
  const asked = new Set<string>();
  for (const port of node.state.services.values()) {
    if (service !== undefined && port.name.service !== service) continue;
    asked.add(port.name.text);
    for (const { address, port: number } of destinationsOf(port)) {
      outcomes.set(`${port.protocol} ${placeText(address, number)}`, `takes the rules # ${port.name.text}`);
    }
  }
  for (const [place, led] of plannedPlaces(node, config)) {
    if (asked.has(led.servicePort)) outcomes.set(place, `${outcomeText(led)} # ${led.servicePort}`);
  }
  return [...outcomes]
    .map(([place, outcome]) => `${place} ${outcome}\n`)
    .sort()
    .join("");
}

function outcomeText({ clients, isRefused, endpoints }: LedSocket): string {
  if (clients === "none") return "takes the rules";
  if (isRefused) return "is refused";
  const list = endpoints.join(" ");
  return clients === "host" ? `leads the host to ${list}, and pods take the rules` : `leads to ${list}`;
}

/** The programs, each with its hook, size and maps; socket.bpf.c describes what they do. */
function programText({ family }: OfflineNode, { config, service }: RenderRequest): string {
  if (service !== undefined) throw new Error("--output programs is the same for every Service: leave --service out");
  const leading = leadingMaps(family, { frontends: 1024, slots: 4096, backends: 4096 });
  const maps = { ...leading, ...memoryMaps(family), ...countingMaps(family, 1) };
  const options = { hostCookie: 1n, holdsNodePorts: config.ebpf.holdNodePorts };
  return socketPrograms(family, maps, options)
    .map(([hook, program]) => {
      const names = mapsOf(program).map(({ name }) => name);
      return `${hook} ${program.name}\n  ${program.code.length / 8} instructions; ${names.join(" ")}\n`;
    })
    .join("");
}
