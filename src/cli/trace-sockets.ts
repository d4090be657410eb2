/** What the pinned maps of this node decide before there is a packet, for `kube-proxy trace` over its kernel. */
import type { KubeProxyConfig } from "../config/config.ts";
import type { LiveSockets } from "../dataplane/inspection.ts";
import { MODES } from "../dataplane/registry.ts";
import { socketText } from "../explain/socket-words.ts";
import { nodeNameIn } from "../inspect/offline-node.ts";
import { type IpAddress, type IpFamily, joinHostPort } from "../net/ip.ts";
import type { PacketQuestion } from "../trace/packet.ts";
import type { TracedRules } from "./trace-rules.ts";

/** Rules of this kernel with the step of sockets before them, where maps are pinned. */
export async function withLiveSockets(
  rules: TracedRules,
  family: IpFamily,
  config: KubeProxyConfig,
): Promise<TracedRules> {
  let { notes } = rules;
  for (const { name, traits, loadInspection } of MODES) {
    if (traits.decidesAtSocket.length === 0) continue;
    const sockets = await (await loadInspection()).loadSockets?.();
    const live = await sockets?.live(family, config);
    if (live?.ok === true) {
      const ownName = nodeNameIn([], config);
      const isHere = ({ inInterface }: PacketQuestion, fromNode: string | undefined) =>
        inInterface === "" || fromNode === ownName;
      return {
        ...rules,
        atSocket: (question, fromNode) =>
          isHere(question, fromNode) ? liveStep(live, question, rules.addresses) : undefined,
      };
    }
    // Of a mode that was not asked for, nothing is missed.
    if (live?.ok === false && config.mode === name) {
      notes = [...notes, `where sockets are led could not be read: ${live.reason}`];
    }
  }
  return { ...rules, notes };
}

/** In words; undefined where nothing is decided. @param own the node's addresses, at which node ports answer. Pure. */
export function liveStep(
  { sockets }: Pick<Extract<LiveSockets, { ok: true }>, "sockets">,
  { protocol, destination, destinationPort = 0, state = "new", inInterface }: PacketQuestion,
  own: readonly IpAddress[],
): string | undefined {
  if (state !== "new") return undefined;
  const word = protocol.toUpperCase();
  const place = joinHostPort(destination, destinationPort);
  const led =
    sockets.get(`${word} ${place}`) ??
    (own.includes(destination) ? sockets.get(`${word} *:${destinationPort}`) : undefined);
  if (led === undefined) return undefined;
  const isOfOthers = led.clients === "none" || (led.clients === "host" && inInterface !== "");
  const isLeft = isOfOthers || (led.isRefused && word !== "TCP");
  if (isLeft) return `at connect() nothing is decided for ${place}: its packets take the rules`;
  const outcome = led.isRefused ? "is refused" : socketText(led);
  return `decided at connect(): for a socket of this node, by the pinned maps, ${place} ${outcome}; the rules below are for what has no socket here`;
}
