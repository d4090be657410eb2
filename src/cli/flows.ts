/** `kube-proxy flows`: who talks to which Service on this node, from connection tracking, with names. */
import { readFileSync, readlinkSync } from "node:fs";
import type { ServiceLine, StatusReport } from "../daemon/inspect-report.ts";
import { isProxyMode, modeNamed } from "../dataplane/registry.ts";
import type { CountedPort } from "../dataplane/traffic.ts";
import { countedPort } from "../explain/counted-ports.ts";
import {
  FLOW_HEAD,
  type FlowChoice,
  FlowNamer,
  type FlowNames,
  flowCells,
  type NamedFlow,
  namesOfObjects,
} from "../explain/flows.ts";
import { safe } from "../explain/safe-text.ts";
import { tableText } from "../explain/table.ts";
import type { ConntrackTable, FlowFilter, TrackedFlow } from "../kernel/conntrack/conntrack.ts";
import { followFlows, openConntrack } from "../kernel/conntrack/netlink-conntrack.ts";
import { localAddresses } from "../kernel/route/addresses.ts";
import { escapeJson } from "../logging/escape.ts";
import { messageOf } from "../logging/message-of.ts";
import { familyOf, IP_FAMILIES, type IpAddress, parseIpAddress } from "../net/ip.ts";
import { DEFAULT_INSPECT_SOCKET } from "../program/program-identity.ts";
import { EXIT_SUCCESS, UsageError } from "./exit.ts";
import { askDaemon, NODES_FLAGS_HELP, SOCKET_FLAG_HELP } from "./inspect-socket-client.ts";
import { OBJECTS_FLAGS, readObjects } from "./objects-input.ts";
import { inspecting, type Output } from "./output.ts";
import { painted } from "./paint.ts";
import { parseWords } from "./subcommand-options.ts";

export const FLOWS_USAGE = `Usage: kube-proxy flows [NAMESPACE/NAME[:PORT]] [options]

Who talks to which Service through this node: client, what it asked for, the endpoint that answers, state, age, packets and bytes,
of each connection that the kernel tracks. Reads connection tracking itself, as root in the daemon's network namespace; the
daemon is only asked which Services there are, and works no more for it.

      --from POD|IP    only from this client: an address, or NAMESPACE/NAME of a pod that slices or Pods name
      --to POD|IP      only to this endpoint
      --state STATE    only in this state: ESTABLISHED, SYN_SENT, …; with --watch also answered, refused, "never answered"
      --stale          only to endpoints that no slice of the Service has
      --watch          goes on: connections as they begin, and as they end, with how
      --count NUMBER   end after so many lines
  -f, --filename DIR|FILE|-
                       Services and EndpointSlices, and Pods for their names, from manifests; asks no daemon (repeatable)
${SOCKET_FLAG_HELP}
${NODES_FLAGS_HELP}
  -o, --output FORM    text, json: a line for each connection (default text)
  -h, --help           this text

A connection ends when the kernel forgets it, a minute or two after its last packet. It was answered, refused (by a reset)
or never answered. What the kernel does not count (nf_conntrack_acct) or keep (nf_conntrack_timestamp) is a question mark.
In ebpf mode connections that begin on the node are led without connection tracking, and not listed.

Examples:
  kube-proxy flows shop/web
  kube-proxy flows --from 10.180.0.9 --watch
  kube-proxy flows --stale -o json

Exit status: 0; 2 when there is no such Service, or the kernel or the daemon does not answer.
`;

/** Where flows come from; tests give others. */
export interface FlowSource {
  readonly open: () => Pick<ConntrackTable, "readFlows"> & { close(): Promise<void> };
  readonly follow: typeof followFlows;
  readonly ownAddresses: () => Promise<ReadonlySet<IpAddress>>;
}

const KERNEL: FlowSource = {
  open: openConntrack,
  follow: followFlows,
  ownAddresses: async () => new Set((await Promise.all(IP_FAMILIES.map((family) => localAddresses(family)))).flat()),
};

/** More frontends are not asked for one by one: the table is read once. */
const SINGLE_DUMPS = 8;
/** Lines of a table, which is made as a whole. */
const MOST_ROWS = 10_000;
/** How often a daemon is asked which Services there are now. */
const REFRESH_MS = 5_000;
/** Lines that come within this time are written together. */
const GATHER_MS = 20;
/** Beginnings that are remembered, for ages. */
const MOST_REMEMBERED = 1_000_000;

interface FlowsOptions {
  readonly choice: FlowChoice;
  readonly socket: string;
  readonly filename: readonly string[] | undefined;
  readonly isWatching: boolean;
  /** Infinity: no end. */
  readonly count: number;
  readonly isJson: boolean;
}

/** Runs `flows`. @returns the exit status. */
export async function flows(
  argv: readonly string[],
  output: Output,
  input: NodeJS.ReadableStream = process.stdin,
  source: FlowSource = KERNEL,
): Promise<number> {
  return await inspecting(output, async () => {
    const options = readOptions(argv);
    if (options === "help") {
      output.out(FLOWS_USAGE);
      return EXIT_SUCCESS;
    }
    const readNames = namesReader(options, output, input, source);
    const namer = new FlowNamer(await readNames(), options.choice);
    const { service } = options.choice;
    if (service !== undefined && namer.frontends.length === 0) throw new UsageError(`there is no Service "${service}"`);
    if (source === KERNEL) for (const note of kernelNotes()) output.err(safe(`note: ${note}\n`));
    try {
      await (options.isWatching
        ? watch(options, namer, readNames, output, source)
        : list(options, namer, output, source));
    } catch (error) {
      if (error instanceof UsageError) throw error;
      throw new UsageError(`connection tracking cannot be read: ${messageOf(error)}`, "It takes root on the node.");
    }
    return EXIT_SUCCESS;
  });
}

/** What there is now. */
async function list(options: FlowsOptions, namer: FlowNamer, output: Output, source: FlowSource): Promise<void> {
  const { isJson, count } = options;
  const table = source.open();
  const rows: (readonly string[])[] = [FLOW_HEAD];
  let told = 0;
  try {
    await readAll(table, namer, (flow) => {
      const named = told < count ? namer.name(flow, Date.now()) : undefined;
      if (named === undefined) return;
      told += 1;
      if (isJson) output.out(jsonLine(named));
      else if (rows.length <= MOST_ROWS) rows.push(flowCells(named));
    });
  } finally {
    await table.close();
  }
  if (isJson) return;
  output.out(painted(safe(tableText(rows, "", output.terminal?.width)), output.terminal));
  if (told > MOST_ROWS) output.err(`note: ${told - MOST_ROWS} more; -o json prints all.\n`);
}

/** Each once, also where the kernel says that its table changed meanwhile. */
async function readAll(
  table: Pick<ConntrackTable, "readFlows">,
  namer: FlowNamer,
  visit: (flow: TrackedFlow) => void,
): Promise<void> {
  for (const filter of filtersFor(namer)) {
    for (const family of filter.address === undefined ? IP_FAMILIES : [familyOf(filter.address)]) {
      const seen = new Set<number>();
      await table.readFlows(family, filter, () => (flow) => {
        if (namer.portOf(flow) === undefined || (flow.id !== undefined && seen.has(flow.id))) return;
        if (flow.id !== undefined) seen.add(flow.id);
        visit(flow);
      });
    }
  }
}

/** The kernel looks through its table once for each, and gives what fits. */
function filtersFor(namer: FlowNamer): readonly FlowFilter[] {
  const filters = namer.frontends.map(({ protocol, address, port }) => ({
    ...{ protocol, port },
    ...(address !== undefined && { address }),
  }));
  return filters.length <= SINGLE_DUMPS ? filters : [{}];
}

/** Beginnings and ends until the count is reached or the program is ended. */
async function watch(
  options: FlowsOptions,
  first: FlowNamer,
  readNames: () => Promise<FlowNames>,
  output: Output,
  source: FlowSource,
): Promise<void> {
  const stop = new AbortController();
  const begun = new Map<number, number>();
  let namer = first;
  let left = options.count;
  let lost = 0;
  // A line at a time costs more than all else.
  let gathered: string[] = [];
  let flushing: NodeJS.Timeout | undefined;
  const flush = (): void => {
    flushing = undefined;
    if (gathered.length > 0) output.out(gathered.join(""));
    gathered = [];
  };
  const tell = (flow: TrackedFlow, startMs: number | undefined, hasEnded: boolean): void => {
    const named = left > 0 ? namer.name(flow, Date.now(), startMs ?? flow.startMs, hasEnded) : undefined;
    if (named === undefined) return;
    gathered.push(options.isJson ? jsonLine(named) : safe(`${lineText(named)}\n`));
    left -= 1;
    if (left <= 0) stop.abort();
    flushing ??= setTimeout(flush, GATHER_MS);
  };
  /** Prints what began unseen; of what ended unseen the kernel knows nothing any more. */
  const rebuild = async (): Promise<void> => {
    const table = source.open();
    const live = new Set<number>();
    let missed = 0;
    try {
      await readAll(table, namer, (flow) => {
        if (flow.id === undefined) return;
        live.add(flow.id);
        if (begun.has(flow.id)) return;
        missed += 1;
        begun.set(flow.id, Date.now());
        tell(flow, undefined, false);
      });
      for (const id of begun.keys()) if (!live.has(id)) begun.delete(id);
      output.err(`note: the kernel lost messages ${lost} times; ${missed} connections are taken from its table.\n`);
    } catch (error) {
      output.err(safe(`note: the kernel lost messages, and its table cannot be read: ${messageOf(error)}\n`));
    } finally {
      lost = 0;
      await table.close();
    }
  };
  const following = source.follow({
    onBegin: (flow) => {
      if (namer.portOf(flow) === undefined) return;
      if (flow.id !== undefined && begun.size < MOST_REMEMBERED) begun.set(flow.id, Date.now());
      tell(flow, undefined, false);
    },
    onEnd: (flow) => {
      const startMs = flow.id === undefined ? undefined : begun.get(flow.id);
      if (flow.id !== undefined) begun.delete(flow.id);
      tell(flow, startMs, true);
    },
    onLost: () => {
      lost += 1;
      if (lost === 1) void rebuild();
    },
    signal: stop.signal,
  });
  const refreshing = setInterval(() => {
    readNames().then(
      (names) => {
        namer = new FlowNamer(names, options.choice);
      },
      // The daemon is starting again, perhaps: what was known stays true until it answers.
      () => {},
    );
  }, REFRESH_MS);
  try {
    await following;
  } finally {
    clearInterval(refreshing);
    clearTimeout(flushing);
    flush();
  }
}

function lineText(flow: NamedFlow): string {
  const [port = "", client = "", frontend = "", endpoint = "", state = "", age = "", sent = "", received = ""] =
    flowCells(flow);
  const way = `${port}  ${client} → ${frontend} → ${endpoint}`;
  const time = new Date().toISOString().slice(11, 23);
  if (flow.ended === null) return `${time}  begins  ${way}  ${state}`;
  return `${time}  ends    ${way}  ${state}  after ${age}  sent ${sent}  received ${received}`;
}

function jsonLine(flow: NamedFlow): string {
  return `${escapeJson(JSON.stringify(flow))}\n`;
}

/** @returns what reads which Services there are, from a daemon or from objects. */
function namesReader(
  { socket, filename, choice }: FlowsOptions,
  output: Output,
  input: NodeJS.ReadableStream,
  source: FlowSource,
): () => Promise<FlowNames> {
  if (filename !== undefined) {
    let read: Promise<FlowNames> | undefined;
    return () => {
      read ??= (async () => ({
        ...namesOfObjects(await readObjects({ filename }, output, input)),
        own: await source.ownAddresses(),
        isEndpointTracked: true,
      }))();
      return read;
    };
  }
  const service = choice.service?.replace(/:[^/]*$/, "");
  const path = service === undefined ? "/services" : `/services?${new URLSearchParams({ service })}`;
  return async () => {
    const report = (await askDaemon(socket, "/status")) as Partial<StatusReport> & {
      readonly networkNamespace?: string;
    };
    const { mode = "", networkNamespace } = report;
    if (source === KERNEL && networkNamespace !== undefined && networkNamespace !== readlinkSync("/proc/self/ns/net")) {
      throw new UsageError("the daemon runs in another network namespace: ask in there, with nsenter or kubectl exec");
    }
    const lines = await askDaemon(socket, path);
    if (!Array.isArray(lines))
      throw new UsageError("the daemon's answer is no list of services: it is of another version");
    const inspection = isProxyMode(mode) ? await (await modeNamed(mode).loadInspection()).loadCounters() : undefined;
    return {
      ports: (lines as readonly ServiceLine[]).map(portOfLine).filter((port) => port !== undefined),
      pods: new Map(),
      own: await source.ownAddresses(),
      isEndpointTracked: inspection?.isEndpointTracked ?? true,
    };
  };
}

function portOfLine({ frontends, endpoints, ...line }: ServiceLine): CountedPort | undefined {
  const places = frontends.map(({ at }) => at);
  return countedPort({ ...line, frontends: places, endpoints: endpoints.map(({ address }) => address) });
}

/** What the kernel does not keep. */
function kernelNotes(): readonly string[] {
  try {
    if (readFileSync("/proc/sys/net/netfilter/nf_conntrack_acct", "utf8").trim() !== "0") return [];
    return [
      "Packets and bytes are not counted: sysctl -w net.netfilter.nf_conntrack_acct=1 counts those of later connections.",
    ];
  } catch {
    // The module is not loaded yet; asking for the table loads it.
    return [];
  }
}

function readOptions(argv: readonly string[]): FlowsOptions | "help" {
  const { values, positionals } = parseWords("kube-proxy flows", argv, {
    socket: { type: "string", default: DEFAULT_INSPECT_SOCKET },
    filename: OBJECTS_FLAGS.filename,
    from: { type: "string" },
    to: { type: "string" },
    state: { type: "string" },
    stale: { type: "boolean", default: false },
    watch: { type: "boolean", default: false },
    count: { type: "string" },
    output: { type: "string", short: "o", default: "text" },
    help: { type: "boolean", short: "h" },
  });
  if (values.help === true) return "help";
  const { from, to, state, output, count } = values;
  if (output !== "text" && output !== "json") throw new UsageError(`--output must be text or json, got "${output}"`);
  if (positionals.length > 1)
    throw new UsageError(`unexpected "${positionals.at(-1)}"`, "See 'kube-proxy flows --help'.");
  if (count !== undefined && !/^\d{1,9}$/.test(count)) throw new UsageError(`--count must be a number, got "${count}"`);
  for (const [flag, place] of [
    ["--from", from],
    ["--to", to],
  ] as const) {
    const isPlace = place === undefined || parseIpAddress(place) !== undefined || /^[^/\s]+\/[^/\s]+$/.test(place);
    if (!isPlace) throw new UsageError(`${flag} must be an address, or NAMESPACE/NAME of a pod, got "${place}"`);
  }
  const place = (text: string | undefined) => (text === undefined ? undefined : (parseIpAddress(text) ?? text));
  return {
    choice: { service: positionals[0], from: place(from), to: place(to), state, isStale: values.stale },
    socket: values.socket,
    filename: values.filename,
    isWatching: values.watch,
    count: count === undefined ? Number.POSITIVE_INFINITY : Number(count),
    isJson: output === "json",
  };
}
