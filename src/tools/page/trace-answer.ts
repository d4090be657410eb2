/**
 * A packet's path through the rules that the daemon plans. It plans only the rules that the packet can meet and counts the others, to
 * leave the daemon time for its own work.
 */

import type { LiveDaemon, LiveFamily } from "../../agent/daemon/inspect-report.ts";
import { runInTurns } from "../../async/turns.ts";
import {
  CLIENT_KINDS,
  type ClientPlace,
  clientPlace,
  podInterface,
  sendingTo,
} from "../../contract/inspect/client-place.ts";
import type { KnownPod } from "../../contract/inspect/known-pods.ts";
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import { frontendText } from "../../model/frontend.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { familyOf, type IpAddress, joinHostPort, parseIpAddress, toPort } from "../../net/ip.ts";
import { isProtocolName, PROTOCOL_NAMES, protocolName } from "../../net/protocol.ts";
import { walkDumps } from "../../trace/dump/walk-dumps.ts";
import { nodeFacts } from "../../trace/facts.ts";
import { type Branch, TooManyWaysError, type TraceEvent, type TraceNode } from "../../trace/netfilter/tree.ts";
import { newPacket } from "../../trace/packet.ts";
import { answerOf } from "../../trace/report/answer.ts";
import { fateText, oddsText, packetText } from "../../trace/report/fate-text.ts";
import { forkOf } from "../../trace/report/flat-fork.ts";
import { stepWords } from "../../trace/report/text.ts";
import { ownersIn } from "../explain/explained-cluster.ts";
import { loopbackNotes } from "../explain/loopback.ts";
import { partForPacket } from "../explain/packet-part.ts";
import { FEW_SERVICES, isPodOf, NoRulesError, plannedRules } from "../explain/planned-rules.ts";
import { parseTarget, withKnownNames } from "../explain/target.ts";
import { QuestionError, type TraceAnswer, type TraceStep, type TraceSteps } from "./answers.ts";
import { podsIn } from "./service-table.ts";

/** The user's input. */
interface TraceQuestion {
  readonly from: string;
  readonly to: string;
  readonly port: string;
  readonly protocol: string;
  readonly isVerbose: boolean;
}

/** More ends would take too long, and are more than anyone reads. */
const MAX_ENDS = 2_000;

/** @param viewOf a family as a node. @throws QuestionError */
export async function traceAnswer<Family extends Pick<LiveFamily, "family" | "state">>(
  daemon: Pick<LiveDaemon, "config" | "podCIDRs"> & { readonly families: readonly Family[] },
  question: TraceQuestion,
  viewOf: (family: Family) => Promise<OfflineNode>,
  signal?: AbortSignal,
): Promise<TraceAnswer> {
  const namesOf = async () =>
    namesIn(await podsIn(daemon.families, signal), await Promise.all(daemon.families.map(viewOf)));
  const named = await endsOf(question, namesOf);
  const { destination, port, protocol, nodeName } = named;
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
    clientOf(question.from, named.sources, whole, daemon.podCIDRs, isOwn),
    isOwn,
  );
  const isHere = nodeName ? nodeName === whole.name : isPodOf(whole, daemon.podCIDRs, address);
  const isPod = inInterface !== "" && isHere;
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
    const serving = ownerOf(node, named);
    const owner = serving === undefined ? "no service has this address and port" : `an address of ${serving}`;
    return {
      names: [...named.names, ...(serving === undefined ? [] : [[serving, "service"] as const])],
      packet: packetText(packet),
      ...{ source: address, destination: joinHostPort(destination, port), owner },
      rules: `${name}; ${owner}`,
      notes: [
        ...named.notes,
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

const addressIn = (text: string): IpAddress | undefined => parseIpAddress(text.trim().replace(/^\[(.*)\]$/, "$1"));
const positionIn = (text: string) => CLIENT_KINDS.find((one) => one === text.trim().toLowerCase());

/** The ends as addresses, where names are taken as the commands take them. @throws QuestionError */
async function endsOf(question: TraceQuestion, namesOf: () => Promise<Names>) {
  const { from, to, port } = question;
  const source = addressIn(from);
  const isClientNamed = source === undefined && positionIn(from) === undefined;
  const isNamed = addressIn(to) === undefined || !/^\d*$/.test(port.trim());
  const names = isNamed || isClientNamed ? await namesOf() : undefined;
  const client = isClientNamed && names !== undefined ? endNamed(from, names) : undefined;
  const what = `enter a pod's name, an address, or ${CLIENT_KINDS.join(", ")}`;
  if (isClientNamed && client === undefined)
    throw new QuestionError(`"${from}" is not a client: ${what}.${names?.unknown ?? ""}`);
  const sources = client?.addresses ?? (source && [source]);
  const isReachable = (one: IpAddress) => sources?.some((own) => familyOf(own) === familyOf(one)) ?? true;
  const asked = isNamed && names !== undefined ? destinationIn(question, names, isReachable) : question;
  const ends = [client, "end" in asked ? asked.end : undefined].filter((one) => one !== undefined);
  const notes = ends.map(
    ({ name, addresses, nodeName }) => `${name} is ${addresses.join(" and ")}${nodeName && `, on ${nodeName}`}`,
  );
  const named = ends.flatMap(
    ({ name, nodeName }) =>
      [
        [name, nodeName === "" ? "node" : "pod"],
        [nodeName, "node"],
      ] as const,
  );
  return {
    ...targetOf(asked),
    sources,
    nodeName: client?.nodeName,
    notes,
    names: named.filter(([name]) => name !== ""),
  };
}

type Names = ReturnType<typeof namesIn>;

/** Service ports, and by name the pods and this node; `known` replaces what people call them. */
function namesIn(pods: ReadonlyMap<string, KnownPod>, views: readonly OfflineNode[]) {
  const ports = views.flatMap(({ state }) => [...state.services.values()]);
  const ends = new Map(pods);
  const nodes = views.map(({ name, nodeIP }) => ({ name, addresses: [{ type: "InternalIP", address: nodeIP }] }));
  const services = ports.map(({ name: { service } }) => {
    const [namespace = "", name = ""] = service.split("/");
    return { namespace, name };
  });
  const known = { services, pods: [...pods.keys()], nodes };
  const unknown =
    pods.size === 0 ? " No pod is known: the daemon keeps their names only with --inspect-bind-address." : "";
  for (const { name } of views) ends.set(name, { name, nodeName: "", addresses: views.map(({ nodeIP }) => nodeIP) });
  return { ports, ends, unknown, known: (text: string) => withKnownNames(text.trim().replace(KIND, ""), known) };
}

/** `pod/web-1`, `node/node-a`: no Service. */
const KIND = /^(?:po|pods?|no|nodes?)\//i;

/** The pod or node that a text names, a pod also without its namespace. @throws QuestionError if it could be several */
function endNamed(text: string, { ends, known }: Names): KnownPod | undefined {
  const name = known(text).toLowerCase();
  const alike = [...ends.keys()].filter((one) => one.endsWith(`/${name}`));
  return ends.get(name) ?? ends.get(onlyOne(text, alike) ?? "");
}

/** @throws QuestionError if there are several */
function onlyOne(text: string, names: readonly string[]): string | undefined {
  const all = [...new Set(names)];
  if (all.length < 2) return all[0];
  throw new QuestionError(`"${text}" could be ${all.slice(0, 3).join(", ")}: enter its namespace too.`);
}

/** @param isReachable whether the client has an address of this family. @throws QuestionError */
function destinationIn(question: TraceQuestion, names: Names, isReachable: (address: IpAddress) => boolean) {
  const { to, port: typedPort } = question;
  const target = parseTarget(names.known(to), undefined);
  if (target === undefined || target.kind === "node-port") return question;
  const wanted = target.port === undefined ? typedPort.trim().toLowerCase() : String(target.port);
  const protocol = target.protocol?.toLowerCase() ?? question.protocol;
  const isOf = ({ name: { service }, clusterIP }: ServicePort) =>
    target.kind === "address"
      ? clusterIP === target.address
      : service === (target.kind === "service" ? target.service : service.replace(/[^/]*$/, target.name));
  const own = KIND.test(to) ? [] : names.ports.filter(isOf);
  const fitting = own.filter(({ name, port }) => wanted === "" || name.port === wanted || String(port) === wanted);
  onlyOne(
    to,
    Array.from(fitting, ({ name }) => name.service),
  );
  const alike = fitting.filter((one) => protocolName(one.protocol) === protocol);
  const found = alike.find(({ clusterIP }) => isReachable(clusterIP)) ?? alike[0] ?? fitting[0];
  if (found !== undefined)
    return { to: found.clusterIP, port: String(found.port), protocol: protocolName(found.protocol) };
  if (target.kind === "address") return { to: target.address, port: wanted, protocol };
  const ports = [...new Set(own.map(({ name, port }) => name.port || String(port)))].join(", ");
  if (own.length > 0) throw new QuestionError(`"${to}" has no port "${wanted}", but ${ports}.`);
  const end = endNamed(target.kind === "service" ? target.service : target.name, names);
  const address = end?.addresses.find(isReachable) ?? end?.addresses[0];
  if (address !== undefined) return { to: address, port: wanted, protocol, end };
  throw new QuestionError(`There is no Service "${to}" here: enter an address, or NAMESPACE/NAME:PORT.`);
}

function targetOf({ to, port, protocol }: Pick<TraceQuestion, "to" | "port" | "protocol">) {
  const destination = addressIn(to);
  if (destination === undefined) throw new QuestionError(`"${to}" is not an address: enter the packet's destination.`);
  const number = /^\d{1,5}$/.test(port.trim()) ? toPort(Number(port)) : undefined;
  if (number === undefined) throw new QuestionError(`"${port}" is not a port: enter a number from 1 to 65535.`);
  const known = protocol.toLowerCase();
  if (isProtocolName(known)) return { destination, port: number, protocol: known };
  throw new QuestionError(`The protocol must be ${PROTOCOL_NAMES.join(", ")}, not "${protocol}".`);
}

/** @param sources the client's addresses; undefined: it is one of a kind. */
function clientOf(
  from: string,
  sources: readonly IpAddress[] | undefined,
  node: OfflineNode,
  podCIDRs: readonly string[],
  isOwn: (address: IpAddress) => boolean,
): ClientPlace {
  const position = positionIn(from);
  const place = position && clientPlace(position, node, podCIDRs);
  if (place !== undefined) return place;
  if (sources === undefined)
    throw new QuestionError("The Node has no podCIDR of this family: give the address of a pod.");
  const address = sources.find((one) => familyOf(one) === node.family);
  if (address === undefined) throw new QuestionError("Client and destination are of different families.");
  return { address, inInterface: isOwn(address) ? "" : undefined };
}

/** The service port whose the destination is. */
function ownerOf(node: OfflineNode, { protocol, destination: address, port }: ReturnType<typeof targetOf>) {
  const { hostAddresses, nodePortIPs } = node;
  const isHere = (nodePortIPs.kind === "all" ? hostAddresses : nodePortIPs.ips).includes(address);
  const owners = ownersIn(node);
  // At an address of the node, a frontend with this address precedes a node port.
  const places = isHere ? [address, undefined] : [address];
  return places.flatMap((one) => owners(frontendText(protocol, one, port)) ?? [])[0];
}

/** The most branches of a fork that the page gets. */
const SHOWN_BRANCHES = 50;

function stepsOf({ events, end }: TraceNode): TraceSteps {
  const steps = events.map(stepOf);
  if (end.kind === "end") {
    const { fate } = end;
    const isGood = fate.kind === "delivered" || (fate.kind === "sent" && fate.isAnswerLost !== true);
    return { steps, fate: fateText(end), isGood, question: null, branches: [] };
  }
  const { isRandom, branches: all } = forkOf(end);
  const reason = isRandom
    ? `One of ${all.length} ways, at random`
    : `It depends on ${end.question ?? "what is not known"}`;
  const branches = all.slice(0, SHOWN_BRANCHES).map(branchOf);
  return { steps, fate: null, isGood: true, question: reason, branches };
}

function branchOf({ odds, label, node }: Branch): TraceSteps["branches"][number] {
  return { odds: odds === undefined ? null : oddsText(odds), label, way: stepsOf(node) };
}

const KINDS: Readonly<Record<TraceEvent["kind"], TraceStep["kind"]>> = {
  ...{ stage: "stage", "base-chain": "chain", "not-asked": "chain", match: "match", "no-match": "no-match" },
  ...{ skipped: "note", remark: "note", policy: "note", routed: "note" },
};

const stepOf = (event: TraceEvent): TraceStep => ({ kind: KINDS[event.kind], ...stepWords(event) });
