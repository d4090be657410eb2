/** Tracked connections by service port: how many are open, and which endpoints never answer. */
import type { ConntrackTable, TrackedFlow } from "../kernel/conntrack/conntrack.ts";
import type { Flow } from "../net/flow.ts";
import type { IpFamily } from "../net/ip.ts";
import { addTo, type Count, type CountedPort, type ModeCounters } from "./traffic.ts";

/** Reads one dump of the connection tracking table for each family, as `ConntrackTable.readFlows` does. */
export type FlowReader = (
  families: readonly IpFamily[],
  begin: (family: IpFamily) => (flow: TrackedFlow) => void,
) => Promise<boolean>;

type Marking = Pick<ModeCounters, "isMarked">;

/** Makes a reader of the table's flows that the mode may have redirected. */
export function ledFlows(table: Pick<ConntrackTable, "readFlows">, { isMarked }: Marking): FlowReader {
  return async (families, begin) => {
    let isComplete = true;
    for (const family of families) {
      const wasComplete = await table.readFlows(family, { isTranslated: isMarked !== false }, () => begin(family));
      isComplete &&= wasComplete;
    }
    return isComplete;
  };
}

/** Tracked connections to one endpoint. */
interface Answers {
  answered: number;
  unanswered: number;
}

type AllAnswers = ReadonlyMap<Count, Answers>;

/** Counts answered connections, and open ones unless the mode has already given their exact number. */
export async function countFlows(
  ports: readonly CountedPort[],
  { isEndpointTracked }: Pick<ModeCounters, "isEndpointTracked">,
  readFlows: FlowReader,
): Promise<{ readonly answers: AllAnswers; readonly isComplete: boolean }> {
  const answers = new Map<Count, Answers>();
  if (ports.length === 0) return { answers, isComplete: true };
  const isUntold = ({ frontends }: CountedPort): boolean => frontends.some(({ count }) => count.open === null);
  const untold = new Set(ports.filter(isUntold));
  const families = [...new Set(ports.map(({ family }) => family))];
  const isComplete = await readFlows(families, (family) => {
    const own = ports.filter((port) => port.family === family);
    const places = new Map<string, Place>();
    for (const port of own) {
      const { name, frontends, endpoints } = port;
      const counts = new Map(endpoints.map(({ ip, port: number, count }) => [`${ip} ${number}`, count] as const));
      const countsOpen = untold.has(port);
      // A repeated dump restarts at zero.
      if (countsOpen) for (const { count } of frontends) count.open = 0;
      if (countsOpen && isEndpointTracked) for (const { count } of endpoints) count.open = 0;
      for (const { count } of endpoints) answers.set(count, { answered: 0, unanswered: 0 });
      for (const { address, port: number, count } of frontends) {
        places.set(`${name.protocol} ${address ?? ""} ${number}`, { count, endpoints: counts, countsOpen });
      }
    }
    return (flow) => {
      const count = note(flow, places, isEndpointTracked);
      const own = count && answers.get(count);
      if (own !== undefined && flow.isAnswered !== undefined) own[flow.isAnswered ? "answered" : "unanswered"] += 1;
    };
  });
  return { answers, isComplete };
}

/** Fewer unanswered connections may just have been opened. */
const LEAST_UNANSWERED = 3;

/** An endpoint that has answered none of its connections, while others of the service port answer. */
export interface SilentEndpoint {
  readonly port: CountedPort;
  /** `ip:port` */
  readonly endpoint: string;
  readonly unanswered: number;
}

export function silentEndpoints(ports: readonly CountedPort[], answers: AllAnswers): readonly SilentEndpoint[] {
  return ports.flatMap((port) => {
    const all = port.endpoints.map(({ text, count }) => ({ text, answered: 0, unanswered: 0, ...answers.get(count) }));
    if (all.every(({ answered }) => answered === 0)) return [];
    return all
      .filter(({ answered, unanswered }) => answered === 0 && unanswered >= LEAST_UNANSWERED)
      .map(({ text, unanswered }) => ({ port, endpoint: text, unanswered }));
  });
}

export function silenceText({ port, endpoint, unanswered }: SilentEndpoint): string {
  return `${endpoint} has answered none of its ${unanswered} connections of ${port.name.text} from here, while others are answered.`;
}

interface Place {
  readonly count: Count;
  readonly endpoints: ReadonlyMap<string, Count>;
  readonly countsOpen: boolean;
}

/** @returns the count of the endpoint, if known. */
function note(flow: Flow, places: ReadonlyMap<string, Place>, isEndpointTracked: boolean): Count | undefined {
  const { protocol, destinationIP, destinationPort, replySourceIP, replySourcePort } = flow;
  const endpoint = `${replySourceIP} ${replySourcePort}`;
  const atAddress = places.get(`${protocol} ${destinationIP} ${destinationPort}`);
  const atNodePort = atAddress === undefined ? places.get(`${protocol}  ${destinationPort}`) : undefined;
  const place = atAddress ?? atNodePort;
  if (place === undefined) return undefined;
  const count = place.endpoints.get(endpoint);
  // Any address may use the number of a node port: only the replying endpoint tells.
  if (atNodePort !== undefined && isEndpointTracked && count === undefined) return undefined;
  if (place.countsOpen) addTo(place.count, "open", 1);
  if (!isEndpointTracked || count === undefined) return undefined;
  if (place.countsOpen) addTo(count, "open", 1);
  return count;
}
