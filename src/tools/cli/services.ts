/** `kube-proxy services`: the service table of a running daemon, with the counts of this host's kernel. */
import { readlinkSync } from "node:fs";
import type { ServiceLine, StatusReport } from "../../agent/daemon/inspect-report.ts";
import type { FlowReader } from "../../contract/tracked-connections.ts";
import { isProxyMode, modeNamed } from "../../modes/registry.ts";
import type { Traffic } from "../explain/explanation.ts";
import { jsonText, safe } from "../explain/safe-text.ts";
import { tableText } from "../explain/table.ts";
import { joinedKind, serviceTyped } from "../explain/target.ts";
import { countText, turnedAwayText } from "../explain/text.ts";
import { countedPort, readTraffic } from "../explain/traffic.ts";
import { shareText } from "../explain/words.ts";
import { askDaemon, askIfThere, DAEMON_OPTIONS, socketOf } from "./inspect-socket-client.ts";
import { EXIT_SUCCESS, painted, UsageError } from "./output.ts";
import { command, commandLine, FORM_AND_HELP, TEXT_OR_JSON } from "./subcommand-options.ts";
import { didYouMean } from "./suggestion.ts";

const SERVICES = commandLine("kube-proxy services", { forms: TEXT_OR_JSON, takesWords: true }, [
  `Usage: kube-proxy services [NAMESPACE/NAME|NAME] [options]

The service table of a running daemon: addresses, endpoints, and the part of the connections that each gets on this node. As
root in the daemon's network namespace also what the kernel knows: connections that are open now (of conntrack or IPVS), and
those that were counted (by iptables' rules, by IPVS, by nftables with connections.count). What cannot be known is said.

`,
  {
    ...DAEMON_OPTIONS,
    "-n, --namespace NAME": "only the Services of this namespace",
    "--no-traffic": "only the table: read nothing in the kernel",
    ...FORM_AND_HELP,
  },
  `
Examples:
  kube-proxy services
  kube-proxy services shop/web -o json

Exit status: 0; 2 when the daemon does not answer, or has no such Service.
`,
]);

/** One line with its traffic, as `-o json` prints it. */
type CountedLine = Omit<ServiceLine, "frontends" | "endpoints"> & {
  readonly frontends: readonly (ServiceLine["frontends"][number] & Traffic)[];
  readonly endpoints: readonly (Omit<ServiceLine["endpoints"][number], "open"> & Traffic)[];
};

/** Runs `services`. @param readFlows reads the connections of this network namespace. */
export const services = command(
  SERVICES,
  async ({ values, positionals, form }, output, _input, readFlows?: FlowReader) => {
    const socket = socketOf(values);
    const [given, ...more] = joinedKind(positionals);
    if (more.length > 0) throw new UsageError(`services takes one Service, got "${more.at(-1)}" as well`);
    const lines = await linesOf(socket, given, values.namespace);
    const report = !values["no-traffic"] ? ((await askDaemon(socket, "/status")) as Partial<StatusReport>) : undefined;
    const { counted, notes } =
      report === undefined ? { counted: lines, notes: [] } : await withTraffic(lines, socket, report, readFlows);
    const { terminal } = output;
    output.out(form === "json" ? jsonText(counted) : painted(safe(servicesText(counted, terminal?.width)), terminal));
    for (const note of notes) output.err(safe(`note: ${note}\n`));
    return EXIT_SUCCESS;
  },
);

/** @param given a Service in any form that people use. @throws UsageError if it does not exist */
async function linesOf(socket: string, given: string | undefined, namespace: string | undefined) {
  const name = given && serviceTyped(given);
  const service =
    name?.includes("/") === true || name === undefined || namespace === undefined ? name : `${namespace}/${name}`;
  const isWhole = service?.includes("/") === true;
  const all = await tableOf(socket, isWhole ? `?${new URLSearchParams({ service: service ?? "" })}` : "");
  const lines = all.filter(({ servicePort }) => {
    const [of, own] = serviceOf(servicePort).split("/");
    return isWhole || (of === (namespace ?? of) && own === (service ?? own));
  });
  if (lines.length > 0 || (service ?? namespace) === undefined) return lines;
  if (service === undefined) throw new UsageError(`the daemon has no Service in the namespace "${namespace}"`);
  const known = isWhole ? await tableOf(socket, "") : all;
  const names = known.map(({ servicePort }) => serviceOf(servicePort));
  throw new UsageError(`the daemon has no Service "${service}"`, didYouMean(service, names));
}

/** `shop/web` of `shop/web:http`. */
const serviceOf = (servicePort: string): string => servicePort.replace(/:[^:]*$/, "");

/** @throws UsageError if the answer is of another version. */
async function tableOf(socket: string, query: string): Promise<readonly ServiceLine[]> {
  const lines = await askDaemon(socket, `/services${query}`);
  const isLine = ({ servicePort, frontends, endpoints }: Partial<ServiceLine>) =>
    typeof servicePort === "string" && Array.isArray(frontends) && Array.isArray(endpoints);
  if (Array.isArray(lines) && lines.every((line) => isLine(line ?? {}))) return lines;
  throw new UsageError("the daemon did not answer with a list of services: it is of another version");
}

/** Where the daemon's programs keep their maps; the usual place if it does not say. */
async function placesOf(socket: string) {
  const found = (await askIfThere(socket, "/configuration")) as
    | { readonly ebpf?: { readonly pinFolder?: string } }
    | undefined;
  return { ebpf: { pinFolder: found?.ebpf?.pinFolder ?? "" } };
}

async function withTraffic(
  lines: readonly ServiceLine[],
  socket: string,
  { mode = "", networkNamespace }: Partial<StatusReport> & { readonly networkNamespace?: string },
  readFlows: FlowReader | undefined,
): Promise<{ readonly counted: readonly CountedLine[]; readonly notes: readonly string[] }> {
  const unknown = whyNot(mode, networkNamespace);
  if (unknown !== undefined || !isProxyMode(mode)) return { counted: lines, notes: [unknown ?? ""] };
  const ports = lines.map(countedPort);
  const known = ports.filter((port) => port !== undefined);
  const counters = await (await modeNamed(mode).loadInspection()).loadCounters(await placesOf(socket));
  const notes = await readTraffic(counters, known, readFlows);
  const counted = lines.map((line, index): CountedLine => {
    const port = ports[index];
    return {
      ...line,
      frontends: line.frontends.map((one, at) => ({ ...one, ...port?.frontends[at]?.count })),
      // For connections that the daemon carries itself, its own number is better than the kernel's.
      endpoints: line.endpoints.map((one, at) => {
        return { ...one, ...port?.endpoints[at]?.count, ...(one.open !== undefined && { open: one.open }) };
      }),
    };
  });
  return { counted, notes };
}

function whyNot(mode: string, daemons: string | undefined): string | undefined {
  if (!isProxyMode(mode))
    return `Counters and connections are not known: the daemon's mode "${mode}" is not known here.`;
  if (daemons === undefined || daemons === readlinkSync("/proc/self/ns/net")) return undefined;
  return "Counters and connections are not known: the daemon runs in another network namespace. Run this command there.";
}

/** Addresses and endpoints side by side, or, where that does not fit the terminal, below each other. */
function servicesText(lines: readonly CountedLine[], width: number | undefined): string {
  const hasTraffic = lines.some(({ frontends }) => frontends.some(({ open }) => open !== undefined));
  const traffic = hasTraffic ? ["OPEN", "COUNTED"] : [];
  const counts = (one: Traffic | undefined) => {
    if (one === undefined) return traffic.map(() => "");
    return hasTraffic
      ? [countText(one.open), `${countText(one.counted)}${turnedAwayText(one.refused, one.dropped)}`]
      : [];
  };
  const head = ["SERVICE PORT", "ADDRESS", ...traffic, "ENDPOINT", "SHARE", ...traffic];
  const beside = tableText([head, ...lines.flatMap((line) => rowsOf(line, counts))], "", width);
  if (width === undefined || beside.split("\n").every((line) => line.length <= width)) return beside;
  const below = lines.flatMap(({ servicePort, protocol, frontends, endpoints }) => [
    [`${servicePort} ${protocol}`],
    ...frontends.map((one) => [`  ${addressText(one)}`, "", ...counts(one)]),
    ...endpoints.map((one) => [`    ${one.address}`, sharesText(one), ...counts(one)]),
    ...(endpoints.length === 0 ? [["    none"]] : []),
  ]);
  return tableText([["SERVICE PORT", "SHARE", ...traffic], ...below], "", width);
}

function rowsOf(
  { servicePort, protocol, frontends, endpoints }: CountedLine,
  counts: (one: Traffic | undefined) => string[],
): string[][] {
  return Array.from({ length: Math.max(frontends.length, endpoints.length, 1) }, (_, index) => {
    const [frontend, endpoint] = [frontends[index], endpoints[index]];
    return [
      index === 0 ? `${servicePort} ${protocol}` : "",
      frontend === undefined ? "" : addressText(frontend),
      ...counts(frontend),
      endpoint?.address ?? (index === 0 ? "none" : ""),
      endpoint === undefined ? "" : sharesText(endpoint),
      ...counts(endpoint),
    ];
  });
}

function addressText({ at, fate }: CountedLine["frontends"][number]): string {
  return fate === "serve" ? at : `${at} (${fate})`;
}

function sharesText({ cluster, local }: CountedLine["endpoints"][number]): string {
  return [
    ...(cluster === null ? [] : [shareText(cluster)]),
    ...(local === null ? [] : [`${shareText(local)} Local`]),
  ].join(", ");
}
