/** The rules that a mode plans for a node, ready to be walked: for `trace`, and for the page of a daemon. */
import type { KubeProxyConfig } from "../config/config.ts";
import { modeNamed } from "../dataplane/registry.ts";
import type { OfflineNode } from "../inspect/offline-node.ts";
import { messageOf } from "../logging/message-of.ts";
import { cidrContains, joinHostPort, parseCidr } from "../net/ip.ts";
import { dumpsOf } from "../trace/dump/of-rendered.ts";
import type { Dump } from "../trace/dump/recognise.ts";
import type { PacketQuestion } from "../trace/packet.ts";

/** The mode, so configured, has no rules, or none that can be walked; the message says which. */
export class NoRulesError extends Error {
  override readonly name = "NoRulesError";
}

export interface PlannedRules {
  /** In words. */
  readonly name: string;
  readonly dumps: readonly Dump[];
  /** What becomes of a socket of this node before there is a packet, in words; undefined: nothing. */
  atSocket(question: PacketQuestion): string | undefined;
}

/** Up to so many Services or service ports everything is planned: a part would have most of them, and this costs nothing to find. */
export const FEW_SERVICES = 50;
/** The form of modes that lead sockets: a line for each frontend. */
const SOCKETS = "sockets";

/** @param podCIDRs of the node. @throws NoRulesError */
export async function plannedRules(
  node: OfflineNode,
  config: KubeProxyConfig,
  podCIDRs: readonly string[],
): Promise<PlannedRules> {
  const { traceForms = [], renderForms, loadRenderer } = modeNamed(config.mode);
  if (traceForms.length === 0) throw new NoRulesError(`mode ${config.mode} has no rules that could be walked`);
  const renderer = await loadRenderer();
  const render = (form: string) =>
    renderer(node, { config, form, service: undefined, missing: new Set() }).catch(refuse);
  const dumps = await dumpsOf(traceForms, render);
  const sockets = renderForms.some((form) => form === SOCKETS) ? await render(SOCKETS) : undefined;
  return {
    name: `the plan of mode ${config.mode} for ${node.name}`,
    dumps,
    atSocket: (question) =>
      sockets?.kind === "text" && isOnNode(question, node, podCIDRs)
        ? socketStep(sockets.text, question, node.hostAddresses)
        : undefined,
  };
}

function refuse(error: unknown): never {
  throw new NoRulesError(messageOf(error));
}

/** Whether a process or pod of this node asks. */
function isOnNode(
  { inInterface, source }: PacketQuestion,
  { detector }: OfflineNode,
  podCIDRs: readonly string[],
): boolean {
  const own = podCIDRs.flatMap((text) => parseCidr(text) ?? []);
  // Where the Node does not say which are its own, those of the cluster.
  const cidrs = own.length > 0 ? own : detector.kind === "cidr" ? [detector.cidr] : [];
  return inInterface === "" || cidrs.some((cidr) => cidrContains(cidr, source));
}

/** @param lines `TCP 10.96.0.1:80 leads to … # NAME`; a node port's address is `*`. */
function socketStep(lines: string, question: PacketQuestion, own: readonly string[]): string | undefined {
  const { protocol, destination, destinationPort = 0, state = "new" } = question;
  if (state !== "new") return undefined;
  const word = protocol.toUpperCase();
  const places = [
    joinHostPort(destination, destinationPort),
    ...(own.includes(destination) ? [`*:${destinationPort}`] : []),
  ];
  for (const place of places) {
    const start = `${word} ${place} `;
    const line = lines.split("\n").find((one) => one.startsWith(start));
    if (line === undefined) continue;
    const [outcome = "", name = ""] = line.slice(start.length).split(" # ");
    if (outcome === "takes the rules") return `at connect() nothing is decided for ${name}: its packets take the rules`;
    return `decided at connect(): for a socket of this node, ${name} ${outcome}; the rules below are for what has no socket here`;
  }
  return undefined;
}
