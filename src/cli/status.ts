/** `kube-proxy status` and `kube-proxy services`: what a running daemon says of itself over its inspect socket. */
import { request } from "node:http";
import type { ServiceLine, StatusReport } from "../daemon/inspect-report.ts";
import { jsonText } from "../explain/forms.ts";
import { tableText } from "../explain/table.ts";
import { safe, shareText } from "../explain/text.ts";
import { EXIT_FAILURE, EXIT_SUCCESS, UsageError } from "./exit.ts";
import { inspecting } from "./inspect-options.ts";
import type { Output } from "./render.ts";
import { parseWords } from "./subcommand-options.ts";

const SOCKET_HELP = `      --socket FILE    what the daemon was started with: --inspect-socket FILE
  -o, --output FORM    text, json (default text)
  -h, --help           this text`;

export const STATUS_USAGE = `Usage: kube-proxy status --socket FILE [options]

State of a running daemon at a glance: mode, health, syncs, what was refused. Needs the daemon's user.

${SOCKET_HELP}

Exit status: 0 when the daemon is healthy and nothing was refused, 1 otherwise, 2 when it does not answer.
`;

export const SERVICES_USAGE = `Usage: kube-proxy services [NAMESPACE/NAME] --socket FILE [options]

The service table of a running daemon: addresses, endpoints, and the part of the connections that each gets on this node.

${SOCKET_HELP}

Exit status: 0; 2 when the daemon does not answer, or has no such Service.
`;

const LIMIT_MS = 5_000;

/** Runs `status`. @returns the exit status. */
export async function status(argv: readonly string[], output: Output): Promise<number> {
  return await inspecting(output, async () => {
    const options = readOptions("status", argv);
    if (options === "help") {
      output.out(STATUS_USAGE);
      return EXIT_SUCCESS;
    }
    // The daemon's own answer; one of another version may lack fields, which is said as "not known".
    const report = (await ask(options.socket, "/status")) as Partial<StatusReport>;
    output.out(options.isJson ? jsonText(report) : safe(statusText(report)));
    return report.isHealthy === true && (report.failures ?? []).length === 0 ? EXIT_SUCCESS : EXIT_FAILURE;
  });
}

/** Runs `services`. @returns the exit status. */
export async function services(argv: readonly string[], output: Output): Promise<number> {
  return await inspecting(output, async () => {
    const options = readOptions("services", argv);
    if (options === "help") {
      output.out(SERVICES_USAGE);
      return EXIT_SUCCESS;
    }
    const { service } = options;
    const lines = await ask(
      options.socket,
      service === undefined ? "/services" : `/services?${new URLSearchParams({ service })}`,
    );
    if (!Array.isArray(lines))
      throw new UsageError("the daemon's answer is no list of services: is it of another version?");
    if (service !== undefined && lines.length === 0) throw new UsageError(`the daemon has no Service "${service}"`);
    output.out(options.isJson ? jsonText(lines) : safe(servicesText(lines)));
    return EXIT_SUCCESS;
  });
}

interface StatusOptions {
  readonly socket: string;
  readonly service: string | undefined;
  readonly isJson: boolean;
}

function readOptions(name: "status" | "services", argv: readonly string[]): StatusOptions | "help" {
  const { values, positionals } = parseWords(`kube-proxy ${name}`, argv, {
    socket: { type: "string" },
    output: { type: "string", short: "o", default: "text" },
    help: { type: "boolean", short: "h" },
  });
  if (values.help === true) return "help";
  const hint = `See 'kube-proxy ${name} --help'.`;
  if (values.socket === undefined)
    throw new UsageError(`${name} needs --socket FILE: the daemon's --inspect-socket`, hint);
  if (!["text", "json"].includes(values.output))
    throw new UsageError(`--output must be text or json, got "${values.output}"`);
  if (positionals.length > (name === "services" ? 1 : 0))
    throw new UsageError(`unexpected "${positionals.at(-1)}"`, hint);
  return { socket: values.socket, service: positionals[0], isJson: values.output === "json" };
}

/** @throws UsageError when nothing answers. */
async function ask(socketPath: string, path: string): Promise<unknown> {
  try {
    return JSON.parse(await answerOf(socketPath, path));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new UsageError(
      `no answer at ${socketPath}: ${reason}`,
      "Is the daemon running with --inspect-socket, and are you its user?",
    );
  }
}

function answerOf(socketPath: string, path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const asked = request({ socketPath, path, timeout: LIMIT_MS }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (part: string) => {
        text += part;
      });
      response.on("end", () => resolve(text));
      response.on("error", reject);
    });
    asked.on("timeout", () => asked.destroy(new Error(`nothing within ${LIMIT_MS / 1_000} seconds`)));
    asked.on("error", reject);
    asked.end();
  });
}

function statusText({ program, mode, node, isHealthy, failures = [], families = [] }: Partial<StatusReport>): string {
  const lines = [`${program ?? "a daemon"}, ${mode ?? "not known"} mode, on ${node ?? "not known"}`];
  lines.push(isHealthy === true ? "healthy" : "NOT healthy: it does not keep up");
  for (const one of families) {
    const age =
      one.lastSyncAgeMs === null ? "not synced yet" : `last sync ${(one.lastSyncAgeMs / 1_000).toFixed(1)} s ago`;
    const doing = one.isSyncing ? ", syncing" : one.isFailing ? ", the last sync failed" : "";
    lines.push(`${one.family}: ${one.servicePorts} service ports, ${one.endpoints} endpoints, ${age}${doing}`);
  }
  for (const { subject, reason } of failures) lines.push(`refused: ${subject}: ${reason}`);
  return lines.map((line) => `${line}\n`).join("");
}

function servicesText(lines: readonly ServiceLine[]): string {
  const rows = lines.map(({ servicePort, protocol, frontends, endpoints }) => [
    `${servicePort} ${protocol}`,
    frontends.map(({ at, fate }) => (fate === "serve" ? at : `${at} (${fate})`)).join(", ") || "-",
    endpoints.map(endpointText).join(", ") || "none",
  ]);
  return tableText([["SERVICE PORT", "ADDRESSES", "ENDPOINTS"], ...rows], "");
}

function endpointText({ address, cluster, local }: ServiceLine["endpoints"][number]): string {
  const shares = [
    ...(cluster === null ? [] : [shareText(cluster)]),
    ...(local === null ? [] : [`${shareText(local)} Local`]),
  ];
  return `${address} (${shares.join(", ")})`;
}
