/** `kube-proxy flows`: who talks to which Service on this node, from connection tracking, with names. */
import { readFileSync, readlinkSync } from "node:fs";
import { applyEngineOptions } from "../../agent/daemon/engine-options.ts";
import type { ServiceLine, StatusReport } from "../../agent/daemon/inspect-report.ts";
import type { LedFlow } from "../../kernel/conntrack/conntrack.ts";
import { FLOW_STATES } from "../../kernel/conntrack/ctnetlink.ts";
import { followFlows, openConntrack } from "../../kernel/conntrack/netlink-conntrack.ts";
import { NetlinkError } from "../../kernel/netlink/errors.ts";
import { SOCKET_STATES } from "../../kernel/sock-diag/sock-diag.ts";
import { attempt } from "../../logging/attempt.ts";
import { messageOf } from "../../logging/message-of.ts";
import type { NodeRecord } from "../../model/objects.ts";
import { isProxyMode, modeNamed } from "../../modes/registry.ts";
import { IP_FAMILIES, parseIpAddress } from "../../net/ip.ts";
import { type FlowEnd, FlowNamer, type FlowNames, namesOfObjects } from "../explain/flows.ts";
import { hostAddresses } from "../explain/host-addresses.ts";
import { safe } from "../explain/safe-text.ts";
import { joinedKind, serviceTyped } from "../explain/target.ts";
import { countedPort } from "../explain/traffic.ts";
import { chosenNode } from "./chosen-node.ts";
import { fileSink, lineSink, tableSink, upTo } from "./flow-sinks.ts";
import { type Asked, type FlowSource, type FlowTaker, FlowWatch, listFlows } from "./flows-watch.ts";
import { askDaemon, askList, DAEMON_OPTIONS, socketOf } from "./inspect-socket-client.ts";
import { leftOutIn, readObjects } from "./objects-input.ts";
import { EXIT_SUCCESS, type Output, UsageError } from "./output.ts";
import {
  command,
  commandLine,
  FORM_AND_HELP,
  numberOf,
  type ReadLine,
  TEXT_OR_JSON,
  untilInterrupted,
} from "./subcommand-options.ts";
import { didYouMean } from "./suggestion.ts";

const FLOWS = commandLine("kube-proxy flows", { forms: TEXT_OR_JSON, takesWords: true }, [
  `Usage: kube-proxy flows [NAMESPACE/NAME[:PORT]] [options]

Who talks to which Service through this node: client, what it asked for, the endpoint that answers, state, age, packets and bytes,
of each connection. Reads connection tracking itself, as root in the daemon's network namespace. The daemon is asked which Services
there are, and for connections that the kernel does not track whole: those that ebpf mode redirects at the socket (with round-trip
time and retransmits), and the endpoints of those that it carries (userspace mode).

`,
  {
    "--from POD|IP": "only from this client: an address, or NAMESPACE/NAME of a pod that slices or Pods name",
    "--to POD|IP": "only to this endpoint",
    "--state STATE": `only in this state: ESTABLISHED, SYN_SENT, …; with --watch also answered, refused, "never answered"`,
    "--stale": "only to endpoints that no slice of the Service has; what is refused goes to none",
    "--watch": "goes on: connections as they begin, and as they end, with how",
    "--export FILE|-": "as JSON lines, added to a file",
    "--count NUMBER": "end after so many lines",
    "-f, --filename DIR|FILE|-...": `Services and EndpointSlices, and Pods for their names, from manifests; asks a daemon only with
        --socket (repeatable). The connections are this host's: --node is then its name`,
    ...DAEMON_OPTIONS,
    ...FORM_AND_HELP,
    "-o, --output FORM": "text, json: a line for each connection (default text)",
  },
  `
"stale": no slice of the Service has the endpoint. "left out": it does not answer, and the daemon gives it no new connections.
A connection ends when the kernel forgets it, a minute or two after its last packet. It was answered, refused (by a reset)
or never answered. What the kernel does not count (nf_conntrack_acct) or keep (nf_conntrack_timestamp) is a question mark. A dash: no endpoint, or
the process that carries the connection did not say which.
What the daemon is asked for is looked at each second: shorter connections are not seen in ebpf mode, or without their endpoint.

Examples:
  kube-proxy flows shop/web
  kube-proxy flows --from 10.180.0.9 --watch
  kube-proxy flows --stale -o json
  kube-proxy flows --watch --export /var/log/flows.jsonl

Exit status: 0; 2 when there is no such Service, or the kernel or the daemon does not answer.
`,
]);

const KERNEL: FlowSource = {
  open: openConntrack,
  follow: followFlows,
  ownAddresses: async () => new Set((await Promise.all(IP_FAMILIES.map(hostAddresses))).flat()),
};

type FlowsOptions = ReturnType<typeof readOptions>;

/** Runs `flows`. */
export const flows = command(FLOWS, async (given, output, input, source: FlowSource = KERNEL) => {
  const options = readOptions(given);
  const { choice, watch: isWatching } = options;
  const asked = askedOf(options, output, input, source);
  const namer = await asked.namer();
  if (choice.service !== undefined && namer.frontends.length === 0) {
    throw new UsageError(`there is no Service "${choice.service}"`, didYouMean(choice.service, namer.services));
  }
  const note = (text: string): void => output.err(safe(`note: ${text}\n`));
  if (source === KERNEL) for (const text of kernelNotes(isWatching)) note(text);
  // The watch may run for days beside the daemon.
  if (isWatching) applyEngineOptions();
  const sink = upTo(options.count, await sinkFor(options, output, note));
  try {
    await (isWatching
      ? untilInterrupted((ended) => new FlowWatch(namer, { asked, source, sink, note }).run(ended))
      : listFlows(namer, asked, source, sink));
    // Also after SIGTERM and Ctrl-C: this writes what is buffered.
    await sink.close();
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(`connection tracking cannot be read: ${messageOf(error)}`, refusalHint(error));
  }
  return EXIT_SUCCESS;
});

async function sinkFor(options: FlowsOptions, output: Output, note: (text: string) => void): Promise<FlowTaker> {
  const { isJson, watch: isWatching, exportTo } = options;
  if (exportTo === undefined && !isJson && !isWatching) return tableSink(output);
  if (exportTo === undefined || exportTo === "-") {
    return lineSink(output, isJson || exportTo === "-", isWatching ? note : undefined);
  }
  return await fileSink(exportTo, note).catch((error: unknown) => {
    throw new UsageError(`cannot write to ${exportTo}: ${messageOf(error)}`);
  });
}

/** Asks a daemon or objects for names and connections. */
function askedOf(
  { filename, node, choice, ...options }: FlowsOptions,
  output: Output,
  input: NodeJS.ReadableStream,
  source: FlowSource,
): Asked {
  const { socket } = options;
  const path = socketOf(options);
  const led = async () => (await askList(path, "/connections", "connections")) as readonly LedFlow[];
  if (filename !== undefined) {
    let read: Promise<FlowNamer> | undefined;
    const readObjectsOnce = async (): Promise<FlowNamer> => {
      const objects = await readObjects({ filename }, output, input);
      const names = namesOfObjects(objects);
      if (node !== undefined) requireHere(node, objects.nodes, await source.ownAddresses());
      const ofDaemon = socket === undefined ? { isEndpointTracked: undefined } : await factsOfDaemon(path, source);
      return new FlowNamer({ ...names, own: await source.ownAddresses(), ...ofDaemon }, choice);
    };
    return {
      namer: () => {
        read ??= readObjectsOnce();
        return read;
      },
      led: socket === undefined ? async () => [] : led,
    };
  }
  const service = choice.service?.replace(/:[^/]*$/, "");
  const question = service?.includes("/") !== true ? "/services" : `/services?${new URLSearchParams({ service })}`;
  const namer = async (): Promise<FlowNamer> => {
    const ofDaemon = await factsOfDaemon(path, source);
    const lines = (await askList(path, question, "services")) as readonly ServiceLine[];
    const ports = lines.map(countedPort).filter((port) => port !== undefined);
    const own = await source.ownAddresses();
    return new FlowNamer({ ports, pods: new Map(), own, ...ofDaemon }, choice);
  };
  return { namer, led };
}

/** @throws UsageError if the Node is another host's: the connections are those of this one. */
function requireHere(node: string, nodes: readonly NodeRecord[], own: ReadonlySet<string>): void {
  const { hostnameOverride } = chosenNode(nodes, { hostnameOverride: node }).config;
  const addresses = nodes.find(({ name }) => name === hostnameOverride)?.addresses ?? [];
  if (addresses.length === 0 || addresses.some(({ address }) => own.has(address))) return;
  throw new UsageError(
    `flows -f reads the connections of this host, which has no address of ${hostnameOverride}`,
    "Run it there; or leave -f out: then --node asks the daemon of that node, with kubectl.",
  );
}

async function factsOfDaemon(
  socket: string,
  source: FlowSource,
): Promise<Pick<FlowNames, "isEndpointTracked" | "leftOut">> {
  const report = (await askDaemon(socket, "/status")) as Partial<StatusReport> & { readonly networkNamespace?: string };
  const { mode = "", networkNamespace } = report;
  if (source === KERNEL && networkNamespace !== undefined && networkNamespace !== readlinkSync("/proc/self/ns/net")) {
    throw new UsageError(
      "the daemon runs in another network namespace: run this command there, with nsenter or kubectl exec",
    );
  }
  const counters = isProxyMode(mode) ? await (await modeNamed(mode).loadInspection()).loadCounters() : undefined;
  return { isEndpointTracked: counters?.isEndpointTracked, leftOut: leftOutIn(report)?.ports };
}

/** Notes about what the kernel does not count or report. */
function kernelNotes(isWatching: boolean): readonly string[] {
  // If the module is not loaded yet, reading the table loads it.
  const isOff = (name: string): boolean =>
    attempt(() => readFileSync(`/proc/sys/net/netfilter/${name}`, "utf8"))?.trim() === "0";
  const notes: string[] = [];
  if (isOff("nf_conntrack_acct")) {
    notes.push(
      "Packets and bytes are not counted: sysctl -w net.netfilter.nf_conntrack_acct=1 counts those of later connections.",
    );
  }
  if (isWatching && isOff("nf_conntrack_events")) {
    notes.push(
      "The kernel does not report connections: sysctl -w net.netfilter.nf_conntrack_events=1 makes it report later ones.",
    );
  }
  return notes;
}

/** Errors of a kernel without ctnetlink, or without any netfilter. */
const MISSING: ReadonlySet<string> = new Set(["EINVAL", "EOPNOTSUPP", "EPROTONOSUPPORT", "EAFNOSUPPORT"]);

function refusalHint(error: unknown): string {
  const code = error instanceof NetlinkError ? error.code : "";
  if (!MISSING.has(code)) return "It needs root on the node.";
  return "This kernel has no nf_conntrack_netlink: load the module (modprobe nf_conntrack_netlink).";
}

const ENDS: readonly FlowEnd[] = ["answered", "refused", "never answered", "closed"];
const STATES: readonly string[] = [...new Set([...FLOW_STATES, ...SOCKET_STATES, ...ENDS])];

/** The state in the kernel's spelling. @throws UsageError for a word that is not a state */
function stateNamed(text: string, { watch }: { readonly watch: boolean }): string {
  const plain = (word: string) => word.toLowerCase().replaceAll(/[ -]/g, "_");
  const state = STATES.find((known) => plain(known) === plain(text));
  if (state === undefined)
    throw new UsageError(`--state: "${text}" is not a state of a connection`, didYouMean(text, STATES));
  if (!watch && ENDS.some((end) => end === state))
    throw new UsageError(`--state ${text} is how connections end: it needs --watch`);
  return state;
}

function readOptions({ values, positionals: words, form }: ReadLine<typeof FLOWS>) {
  const { from, to, state, count } = values;
  if (values.export === "otlp-http") {
    const hint = "A collector reads JSON lines: --export FILE, or --export - to a pipe.";
    throw new UsageError("--export otlp-http has been removed", hint);
  }
  const positionals = joinedKind(words);
  const service = positionals[0] && serviceTyped(positionals[0]);
  if (positionals.length > 1) throw new UsageError(`flows takes one Service, got "${positionals.at(-1)}" as well`);
  const most = count === undefined ? Number.POSITIVE_INFINITY : numberOf("--count", count);
  for (const [flag, place] of [
    ["--from", from],
    ["--to", to],
  ] as const) {
    const isPlace = place === undefined || parseIpAddress(place) !== undefined || /^[^/\s]+\/[^/\s]+$/.test(place);
    if (!isPlace) throw new UsageError(`${flag} must be an address, or NAMESPACE/NAME of a pod, got "${place}"`);
  }
  const place = (text: string | undefined) => (text === undefined ? undefined : (parseIpAddress(text) ?? text));
  return {
    ...values,
    choice: {
      service,
      from: place(from),
      to: place(to),
      state: state && stateNamed(state, values),
      isStale: values.stale,
    },
    /** Infinity: no limit. */
    count: most,
    isJson: form === "json",
    /** A file, or `-`. */
    exportTo: values.export,
  };
}
