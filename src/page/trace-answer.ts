/**
 * A packet's path through the rules that the daemon plans. It plans only the rules that the packet can meet and counts the others, to
 * leave the daemon time for its own work.
 */
import { runInTurns } from "../async/steps.ts";
import type { LiveDaemon, LiveFamily } from "../daemon/inspect-report.ts";
import { loopbackNotes } from "../explain/loopback.ts";
import { partForPacket } from "../explain/packet-part.ts";
import { FEW_SERVICES, isPodOf, NoRulesError, plannedRules } from "../explain/planned-rules.ts";
import { parseTarget, withKnownNames } from "../explain/target.ts";
import { type ClientPlace, clientPlace, podInterface, sendingTo } from "../inspect/client-place.ts";
import type { OfflineNode } from "../inspect/offline-node.ts";
import { ownedFrontends } from "../model/frontend.ts";
import type { ServicePort } from "../model/service-port.ts";
import { familyOf, type IpAddress, parseIpAddress, toPort } from "../net/ip.ts";
import { protocolName } from "../net/protocol.ts";
import { walkDumps } from "../trace/dump/walk-dumps.ts";
import { nodeFacts } from "../trace/facts.ts";
import { type Branch, TooManyWaysError, type TraceEvent, type TraceNode } from "../trace/netfilter/tree.ts";
import { newPacket, type PacketQuestion } from "../trace/packet.ts";
import { answerOf } from "../trace/report/answer.ts";
import { fateText, oddsText, packetText } from "../trace/report/fate-text.ts";
import { flatBranches } from "../trace/report/flat-fork.ts";
import { stepWords } from "../trace/report/text.ts";
import type { TraceAnswer, TraceStep, TraceSteps } from "./answers.ts";

/** The user's input. */
interface TraceQuestion {
  readonly from: string;
  readonly to: string;
  readonly port: string;
  readonly protocol: string;
  readonly isVerbose: boolean;
}

/** Part of the question is not usable; the message says what to do. */
export class QuestionError extends Error {
  override readonly name = "QuestionError";
}

/** More ends would take too long, and are more than anyone reads. */
const MAX_ENDS = 2_000;
const POSITIONS = ["pod", "node", "outside"] as const;
const PROTOCOLS = ["tcp", "udp", "sctp"] as const;

/** @param viewOf a family as a node. @throws QuestionError */
export async function traceAnswer<Family extends Pick<LiveFamily, "family">>(
  daemon: Pick<LiveDaemon, "config" | "podCIDRs"> & { readonly families: readonly Family[] },
  question: TraceQuestion,
  viewOf: (family: Family) => Promise<OfflineNode>,
  signal?: AbortSignal,
): Promise<TraceAnswer> {
  const views = async () => await Promise.all(daemon.families.map(viewOf));
  const { destination, port, protocol } = targetOf(await withAddress(question, views));
  const family = daemon.families.find((one) => one.family === familyOf(destination));
  if (family === undefined) throw new QuestionError(`This node serves no ${familyOf(destination)}.`);
  const whole = await viewOf(family);
  const end = { destination, port, showsEveryRule: question.isVerbose };
  const node = whole.state.services.size > FEW_SERVICES ? await runInTurns(partForPacket(whole, end), signal) : whole;
  const { name, dumps, addresses, services } = await plannedRules(node, daemon.config).catch(refuse);
  const facts = nodeFacts({ addresses, services });
  const isOwn = (ip: IpAddress) => facts.addressType(ip) === "local";
  const { address, inInterface } = sendingTo(
    destination,
    clientOf(question.from, whole, daemon.podCIDRs, isOwn),
    isOwn,
  );
  const isPod = inInterface !== "" && isPodOf(whole, daemon.podCIDRs, address);
  const asked = {
    family: whole.family,
    protocol,
    source: address,
    sourcePort: undefined,
    destination,
    destinationPort: port,
    inInterface: inInterface ?? (isPod ? podInterface(whole) : undefined),
    origin: isPod || inInterface === "" ? "socket" : "elsewhere",
  } as const;
  const packet = newPacket(asked);
  try {
    const root = walkDumps(dumps, packet, facts, {
      ...{ knowsClients: false, knowsDynamicSets: false },
      ...{ record: question.isVerbose ? "all" : "matches", maxEnds: MAX_ENDS },
    });
    return {
      packet: packetText(packet),
      rules: `${name}; ${ownersText(node, asked)}`,
      notes: [
        `addresses of the node: ${whole.hostAddresses.join(", ") || "none but loopback"}`,
        ...(await loopbackNotes(node, daemon.config, { address: destination, port, protocol })),
      ],
      outcomes: answerOf(root).groups.flatMap(({ condition, shares }) =>
        shares.map(({ text, odds }) => ({
          text,
          odds: oddsText(odds),
          assumptions: condition === "" ? [] : [condition],
        })),
      ),
      steps: stepsOf(root),
    };
  } catch (error) {
    if (error instanceof TooManyWaysError) throw new QuestionError(error.message);
    throw error;
  }
}

function refuse(error: unknown): never {
  throw error instanceof NoRulesError ? new QuestionError(`Nothing can be walked here: ${error.message}.`) : error;
}

/** The question with an address and a number, where a Service and its port were named as in the commands. */
async function withAddress(
  question: TraceQuestion,
  views: () => Promise<readonly OfflineNode[]>,
): Promise<TraceQuestion> {
  const { to, port: typedPort } = question;
  const isPlain = parseIpAddress(to.trim().replace(/^\[(.*)\]$/, "$1")) !== undefined;
  if (isPlain && /^\d*$/.test(typedPort.trim())) return question;
  const ports = (await views()).flatMap(({ state }) => [...state.services.values()]);
  const services = ports.map(({ name: { service } }) => ({
    namespace: service.slice(0, service.indexOf("/")),
    name: service.slice(service.indexOf("/") + 1),
  }));
  const target = parseTarget(withKnownNames(to, { services, nodes: [], pods: [] }), undefined);
  if (target === undefined || target.kind === "node-port") return question;
  const wanted = target.port === undefined ? typedPort.trim().toLowerCase() : String(target.port);
  const isOf = ({ name: { service }, clusterIP }: ServicePort) =>
    target.kind === "address"
      ? clusterIP === target.address
      : service === (target.kind === "service" ? target.service : service.replace(/[^/]*$/, target.name));
  const own = ports.filter(isOf);
  const fitting = own.filter(({ name, port }) => wanted === "" || name.port === wanted || String(port) === wanted);
  const [found = undefined] = fitting;
  if (found === undefined) {
    if (target.kind === "address") return { ...question, to: target.address, port: wanted };
    const names = [...new Set(own.map(({ name, port }) => name.port || String(port)))].join(", ");
    if (own.length > 0) throw new QuestionError(`"${to}" has no port "${wanted}", but ${names}.`);
    throw new QuestionError(`There is no Service "${to}" here: enter an address, or NAMESPACE/NAME:PORT.`);
  }
  return { ...question, to: found.clusterIP, port: String(found.port), protocol: protocolName(found.protocol) };
}

function targetOf({ to, port, protocol }: TraceQuestion) {
  const destination = parseIpAddress(to.trim().replace(/^\[(.*)\]$/, "$1"));
  if (destination === undefined) throw new QuestionError(`"${to}" is not an address: enter the packet's destination.`);
  const number = /^\d{1,5}$/.test(port.trim()) ? toPort(Number(port)) : undefined;
  if (number === undefined) throw new QuestionError(`"${port}" is not a port: enter a number from 1 to 65535.`);
  const known = PROTOCOLS.find((one) => one === protocol.toLowerCase());
  if (known === undefined) throw new QuestionError(`The protocol must be ${PROTOCOLS.join(", ")}, not "${protocol}".`);
  return { destination, port: number, protocol: known };
}

function clientOf(
  from: string,
  node: OfflineNode,
  podCIDRs: readonly string[],
  isOwn: (address: IpAddress) => boolean,
): ClientPlace {
  const position = POSITIONS.find((one) => one === from.trim().toLowerCase());
  if (position !== undefined) {
    const place = clientPlace(position, node, podCIDRs);
    if (place !== undefined) return place;
    throw new QuestionError("The Node has no podCIDR of this family: give the address of a pod.");
  }
  const address = parseIpAddress(from.trim().replace(/^\[(.*)\]$/, "$1"));
  if (address === undefined) {
    throw new QuestionError(`"${from}" is not a client: enter an address, or ${POSITIONS.join(", ")}.`);
  }
  if (familyOf(address) !== node.family) throw new QuestionError("Client and destination are of different families.");
  return { address, inInterface: isOwn(address) ? "" : undefined };
}

/** The owners of the destination. */
function ownersText(
  { state, hostAddresses, nodePortIPs }: OfflineNode,
  { protocol, destination, destinationPort }: Pick<PacketQuestion, "protocol" | "destination" | "destinationPort">,
): string {
  const isHere = (nodePortIPs.kind === "all" ? hostAddresses : nodePortIPs.ips).includes(destination);
  const own = [...state.services.values()].filter((one) => protocolName(one.protocol) === protocol);
  const answeringAt = (wanted: IpAddress | undefined) =>
    own.flatMap((one) => {
      const isMeant = ownedFrontends(one).some(({ address, port }) => port === destinationPort && address === wanted);
      return isMeant ? one.name.text : [];
    });
  // At an address of the node, a frontend with this address precedes a node port.
  const fixed = answeringAt(destination);
  const names = fixed.length > 0 || !isHere ? fixed : answeringAt(undefined);
  return names.length === 0 ? "no service has this address and port" : `an address of ${names.join(" and ")}`;
}

/** The most branches of a fork that the page gets. */
const SHOWN_BRANCHES = 50;

function stepsOf({ events, end }: TraceNode): TraceSteps {
  const steps = events.map(stepOf);
  if (end.kind === "end") {
    const { fate } = end;
    return {
      steps,
      fate: fateText(end),
      isGood: fate.kind === "delivered" || (fate.kind === "sent" && fate.isAnswerLost !== true),
      question: null,
      branches: [],
    };
  }
  const isRandom = end.branches.every(({ odds }) => odds !== undefined);
  const branches = isRandom ? flatBranches(end) : end.branches;
  return {
    steps,
    fate: null,
    isGood: true,
    question: isRandom
      ? `One of ${branches.length} ways, at random`
      : `It depends on ${end.question ?? "what is not known"}`,
    branches: branches.slice(0, SHOWN_BRANCHES).map(branchOf),
  };
}

function branchOf({ odds, label, node }: Branch): TraceSteps["branches"][number] {
  return { odds: odds === undefined ? null : oddsText(odds), label, way: stepsOf(node) };
}

const KINDS: Readonly<Record<TraceEvent["kind"], TraceStep["kind"]>> = {
  ...{ stage: "stage", "base-chain": "chain", "not-asked": "chain", match: "match", "no-match": "no-match" },
  ...{ skipped: "note", remark: "note", policy: "note", routed: "note" },
};

const stepOf = (event: TraceEvent): TraceStep => ({ kind: KINDS[event.kind], ...stepWords(event) });
