/**
 * A packet's way through the rules that the daemon has planned. Only the service ports that answer at its destination are
 * planned: what the others have in the kernel is for other packets, and the daemon has other work.
 */
import type { LiveDaemon, LiveFamily } from "../daemon/live-daemon.ts";
import { modeNamed } from "../dataplane/registry.ts";
import { clientPlace } from "../inspect/client-place.ts";
import type { OfflineNode } from "../inspect/offline-node.ts";
import { ownedFrontends } from "../model/frontend.ts";
import type { ServicePort } from "../model/service-port.ts";
import { familyOf, type IpAddress, parseIpAddress, toPort } from "../net/ip.ts";
import { deviceAddresses } from "../trace/dump/device-addresses.ts";
import { dumpsOf } from "../trace/dump/of-rendered.ts";
import type { Dump } from "../trace/dump/recognise.ts";
import { walkDumps } from "../trace/dump/walk-dumps.ts";
import { nodeFacts } from "../trace/facts.ts";
import { outcomesOf } from "../trace/netfilter/tree.ts";
import { TooManyWaysError } from "../trace/netfilter/walk.ts";
import { newPacket } from "../trace/packet.ts";
import { fateShares, oddsText, packetText } from "../trace/report/fate-text.ts";
import type { TraceAnswer } from "./answers.ts";
import { stepsOf } from "./trace-steps.ts";

/** What the user has typed. */
export interface TraceQuestion {
  readonly from: string;
  readonly to: string;
  readonly port: string;
  readonly protocol: string;
  readonly isVerbose: boolean;
}

/** Something in the question cannot be used; the message says what to do. */
export class QuestionError extends Error {
  override readonly name = "QuestionError";
}

/** More would neither be read nor be made in a moment. */
const MAX_ENDS = 2_000;
const POSITIONS = ["pod", "node", "outside"] as const;
const PROTOCOLS = ["tcp", "udp", "sctp"] as const;

/** @param viewOf a family as a node. @throws QuestionError */
export async function traceAnswer(
  daemon: LiveDaemon,
  question: TraceQuestion,
  viewOf: (family: LiveFamily) => Promise<OfflineNode>,
): Promise<TraceAnswer> {
  const { destination, port, protocol } = targetOf(question);
  const family = daemon.families.find((one) => one.family === familyOf(destination));
  if (family === undefined) throw new QuestionError(`This node serves no ${familyOf(destination)}.`);
  const whole = await viewOf(family);
  const ports = portsAt(whole, destination, port);
  const dumps = await plannedDumps(daemon, { ...whole, state: partOf(whole, ports) });
  // Modes with virtual servers have their addresses on a device.
  const addresses = [...whole.hostAddresses, ...deviceAddresses(dumps)];
  const facts = nodeFacts({ addresses });
  const { address, inInterface } = clientOf(question.from, whole, daemon.podCIDRs);
  const isOwn = facts.addressType(address) === "local";
  const packet = newPacket({
    family: whole.family,
    protocol,
    source: address,
    sourcePort: undefined,
    destination,
    destinationPort: port,
    inInterface: inInterface ?? (isOwn ? "" : undefined),
  });
  try {
    const root = walkDumps(dumps, packet, facts, {
      ...{ knowsClients: false, knowsDynamicSets: false },
      ...{ record: question.isVerbose ? "all" : "matches", maxEnds: MAX_ENDS },
    });
    return {
      packet: packetText(packet),
      rules: `the plan of mode ${daemon.mode} for ${daemon.node}, for ${servicesText(ports)}`,
      notes: [`addresses of the node: ${whole.hostAddresses.join(", ") || "none but loopback"}`],
      outcomes: fateShares(outcomesOf(root)).map(({ odds, ...share }) => ({ ...share, odds: oddsText(odds) })),
      steps: stepsOf(root),
    };
  } catch (error) {
    if (error instanceof TooManyWaysError) throw new QuestionError(error.message);
    throw error;
  }
}

function targetOf({ to, port, protocol }: TraceQuestion) {
  const destination = parseIpAddress(to.trim().replace(/^\[(.*)\]$/, "$1"));
  if (destination === undefined)
    throw new QuestionError(`"${to}" is no address: give the one that the packet goes to.`);
  const number = /^\d{1,5}$/.test(port.trim()) ? toPort(Number(port)) : undefined;
  if (number === undefined) throw new QuestionError(`"${port}" is no port: a number from 1 to 65535.`);
  const known = PROTOCOLS.find((one) => one === protocol.toLowerCase());
  if (known === undefined) throw new QuestionError(`The protocol must be ${PROTOCOLS.join(", ")}, not "${protocol}".`);
  return { destination, port: number, protocol: known };
}

function clientOf(from: string, node: OfflineNode, podCIDRs: readonly string[]) {
  const position = POSITIONS.find((one) => one === from.trim().toLowerCase());
  if (position !== undefined) {
    const place = clientPlace(position, node, podCIDRs);
    if (place !== undefined) return place;
    throw new QuestionError("The Node has no podCIDR of this family: give the address of a pod.");
  }
  const address = parseIpAddress(from.trim().replace(/^\[(.*)\]$/, "$1"));
  if (address === undefined) {
    throw new QuestionError(`"${from}" is no client: give an address, or ${POSITIONS.join(", ")}.`);
  }
  if (familyOf(address) !== node.family) throw new QuestionError("Client and destination are of different families.");
  return { address, inInterface: undefined };
}

/** Those that have something at the address, and those with this node port where the address may be the node's. */
function portsAt({ state }: OfflineNode, destination: IpAddress, port: number): ServicePort[] {
  const found: ServicePort[] = [];
  for (const one of state.services.values()) {
    const isThere = ownedFrontends(one).some(({ kind, address, port: own }) =>
      kind === "node-port" ? own === port : address === destination,
    );
    if (isThere) found.push(one);
  }
  return found;
}

function partOf({ state }: OfflineNode, ports: readonly ServicePort[]): OfflineNode["state"] {
  const { endpoints, endpointCount, localReadyCounts } = state;
  // The number of endpoints decides how large clusters are planned, so it is that of the whole.
  const services = new Map(ports.map((port) => [port.name.key, port]));
  return { services, endpoints, endpointCount, localReadyCounts };
}

async function plannedDumps({ config }: LiveDaemon, node: OfflineNode): Promise<readonly Dump[]> {
  const { traceForms = [], loadRenderer } = modeNamed(config.mode);
  if (traceForms.length === 0) throw new QuestionError(`Mode ${config.mode} has no rules that could be walked.`);
  const renderer = await loadRenderer();
  return await dumpsOf(traceForms, (form) => renderer(node, { config, form, service: undefined, missing: new Set() }));
}

function servicesText(ports: readonly ServicePort[]): string {
  if (ports.length === 0) return "no service: none answers there";
  const names = ports.map(({ name }) => name.text);
  return names.length > 5 ? `${names.slice(0, 5).join(", ")} and ${names.length - 5} more` : names.join(", ");
}
