/** What this host's kernel has counted for service ports: the mode's own counters, and connections from conntrack. */

import type { ModeInspection } from "../dataplane/inspection.ts";
import { addTo, type Count, type CountedPort, type ModeCounters } from "../dataplane/traffic.ts";
import type { TrackedFlow } from "../kernel/conntrack/conntrack.ts";
import { openConntrack } from "../kernel/conntrack/netlink-conntrack.ts";
import { statisticsNotes } from "../kernel/conntrack/statistics.ts";
import { messageOf } from "../logging/message-of.ts";
import type { Flow } from "../net/flow.ts";
import { type IpFamily, joinHostPort } from "../net/ip.ts";
import { countedPort } from "./counted-ports.ts";
import type { PortExplanation } from "./explanation.ts";

/** The same explanations with what this host's kernel has counted. */
export async function withTraffic(
  inspection: Pick<ModeInspection, "loadCounters">,
  explanations: readonly PortExplanation[],
  readFlows?: FlowReader,
): Promise<PortExplanation[]> {
  const ports = explanations.map(({ frontends, endpoints, ...own }) => {
    const places = frontends.map(({ address, port }) => (address === null ? `*:${port}` : joinHostPort(address, port)));
    return countedPort({ ...own, frontends: places, endpoints: endpoints.map(({ address }) => address) });
  });
  const trafficNotes = await readTraffic(
    inspection,
    ports.filter((port) => port !== undefined),
    readFlows,
  );
  return explanations.map((own, index) => ({
    ...own,
    // Another service port has it, and its connections.
    frontends: own.frontends.map((one, at) =>
      one.owner === null ? { ...one, ...ports[index]?.frontends[at]?.count } : one,
    ),
    endpoints: own.endpoints.map((one, at) => ({ ...one, ...ports[index]?.endpoints[at]?.count })),
    trafficNotes,
  }));
}

/** Reads one dump of the connection tracking table for each family, as `ConntrackTable.readFlows` does. */
export type FlowReader = (
  families: readonly IpFamily[],
  begin: (family: IpFamily) => (flow: TrackedFlow) => void,
) => Promise<boolean>;

/** That of this process's network namespace: the connections whose destination was translated. */
export const readTranslatedFlows: FlowReader = async (families, begin) => {
  await using table = openConntrack();
  let isComplete = true;
  for (const family of families) {
    const wasComplete = await table.readFlows(family, { isTranslated: true }, () => begin(family));
    isComplete &&= wasComplete;
  }
  return isComplete;
};

/**
 * Fills the counts of these service ports in. What cannot be read stays null.
 *
 * @returns what is not known and why, and what the numbers mean: sentences.
 */
export async function readTraffic(
  inspection: Pick<ModeInspection, "loadCounters">,
  ports: readonly CountedPort[],
  readFlows: FlowReader = readTranslatedFlows,
): Promise<readonly string[]> {
  if (ports.length === 0) return [];
  const notes: string[] = [];
  const counters = await inspection.loadCounters();
  try {
    notes.push(...(await counters.fill(ports)));
  } catch (error) {
    notes.push(`What was counted is not known: ${reasonOf(error)}.`);
  }
  // What the mode's kernel has said of open connections is more exact.
  const asked = ports.filter(({ frontends }) => frontends.some(({ count }) => count.open === null));
  try {
    if (readFlows === readTranslatedFlows) notes.push(...(await tableNotes()));
    const answers = new Map<Count, Answers>();
    const isComplete = await countFlows(asked, counters, readFlows, answers);
    notes.push(...asked.flatMap((port) => silentEndpoints(port, answers)));
    if (!isComplete) notes.push("Connections changed while they were counted: some may be missing.");
  } catch (error) {
    notes.push(`Open connections are not known: conntrack: ${reasonOf(error)}.`);
  }
  return notes;
}

async function tableNotes(): Promise<readonly string[]> {
  await using table = openConntrack();
  return statisticsNotes(await table.statistics());
}

function reasonOf(error: unknown): string {
  const text = messageOf(error);
  return process.getuid?.() === 0 ? text : `${text} (it needs root)`;
}

async function countFlows(
  ports: readonly CountedPort[],
  { isEndpointTracked }: ModeCounters,
  readFlows: FlowReader,
  answers: Map<Count, Answers>,
): Promise<boolean> {
  if (ports.length === 0) return true;
  const families = [...new Set(ports.map(({ family }) => family))];
  return await readFlows(families, (family) => {
    const own = ports.filter((port) => port.family === family);
    const places = new Map<string, Place>();
    for (const { name, frontends, endpoints } of own) {
      const counts = new Map(endpoints.map(({ ip, port, count }) => [`${ip} ${port}`, count] as const));
      // A dump that is repeated begins at zero.
      for (const { count } of frontends) count.open = 0;
      if (isEndpointTracked) for (const { count } of endpoints) count.open = 0;
      for (const { count } of endpoints) answers.set(count, { answered: 0, unanswered: 0 });
      for (const { address, port, count } of frontends) {
        places.set(`${name.protocol} ${address ?? ""} ${port}`, { count, endpoints: counts });
      }
    }
    return (flow) => {
      const count = note(flow, places, isEndpointTracked);
      const own = count && answers.get(count);
      if (own !== undefined && flow.isAnswered !== undefined) own[flow.isAnswered ? "answered" : "unanswered"] += 1;
    };
  });
}

/** Connections to an endpoint that are tracked now. */
interface Answers {
  answered: number;
  unanswered: number;
}

/** Fewer may just have begun. */
const LEAST_UNANSWERED = 3;

/** Endpoints that never answer, while others of the same service port answer: in sentences. */
function silentEndpoints({ name, endpoints }: CountedPort, answers: ReadonlyMap<Count, Answers>): readonly string[] {
  const all = endpoints.map(({ text, count }) => ({ text, answered: 0, unanswered: 0, ...answers.get(count) }));
  if (all.every(({ answered }) => answered === 0)) return [];
  return all
    .filter(({ answered, unanswered }) => answered === 0 && unanswered >= LEAST_UNANSWERED)
    .map(({ text, unanswered }) => {
      return `${text} has answered none of its ${unanswered} connections of ${name.text} from here, while others are answered.`;
    });
}

interface Place {
  readonly count: Count;
  readonly endpoints: ReadonlyMap<string, Count>;
}

/** @returns the count of the endpoint, where it is known. */
function note(flow: Flow, places: ReadonlyMap<string, Place>, isEndpointTracked: boolean): Count | undefined {
  const { protocol, destinationIP, destinationPort, replySourceIP, replySourcePort } = flow;
  const endpoint = `${replySourceIP} ${replySourcePort}`;
  const atAddress = places.get(`${protocol} ${destinationIP} ${destinationPort}`);
  const atNodePort = atAddress === undefined ? places.get(`${protocol}  ${destinationPort}`) : undefined;
  const place = atAddress ?? atNodePort;
  if (place === undefined) return undefined;
  const count = place.endpoints.get(endpoint);
  // Any address may have the number of a node port: only who answers tells.
  if (atNodePort !== undefined && isEndpointTracked && count === undefined) return undefined;
  addTo(place.count, "open", 1);
  if (!isEndpointTracked || count === undefined) return undefined;
  addTo(count, "open", 1);
  return count;
}
