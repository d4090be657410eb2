/** `/statusz` and `/flagz`: what runs here and with which flags, for people (text) and programs (reference operation.md §9.3). */
import type { ServerResponse } from "node:http";
import { formatRfc3339 } from "../health/rfc3339.ts";
import { JSON_TYPE, reply, TEXT } from "../http/http-reply.ts";
import type { HttpHandler } from "../http/routes.ts";

const COMPONENT = "kube-proxy";
const NOT_FOR_MACHINES = "Warning: This page is for people. Its layout changes at random; do not parse it.";
const DELIMITERS = [":", ": ", "=", " "] as const;

type ZPageKind = "Statusz" | "Flagz";

interface ZPage {
  readonly kind: ZPageKind;
  /** Lines of the text form, in order. */
  lines(): Iterable<readonly [name: string, value: string]>;
  /** Members of the structured form, after its metadata. */
  members(): Readonly<Record<string, unknown>>;
}

type Choice =
  | { readonly form: "text" }
  | { readonly form: "json" | "yaml"; readonly version: "v1beta1" | "v1alpha1" }
  | { readonly form: "none" };

/** What an Accept header asks for: the first entry that we can serve. */
function chooseForm(accept: string, kind: ZPageKind): Choice {
  const entries = accept.split(",").map((entry) => entry.trim());
  if (accept.trim() === "") return { form: "text" };
  for (const entry of entries) {
    const [type, ...rest] = entry.split(";").map((part) => part.trim());
    if (type === "*/*" || type === "text/*" || type === "text/plain") return { form: "text" };
    const form = type === "application/json" ? "json" : type === "application/yaml" ? "yaml" : undefined;
    const parameters = new Map(
      rest.map((part) => [part.slice(0, part.indexOf("=")), part.slice(part.indexOf("=") + 1)]),
    );
    const version = parameters.get("v");
    if (form === undefined || parameters.get("g") !== "config.k8s.io" || parameters.get("as") !== kind) continue;
    if (version === "v1beta1" || version === "v1alpha1") return { form, version };
  }
  return { form: "none" };
}

function replyNotAcceptable(response: ServerResponse, kind: ZPageKind): void {
  const structured = ["json", "yaml"].map((form) => `application/${form};g=config.k8s.io;v=v1beta1;as=${kind}`);
  const message = `only the following media types are accepted: ${["text/plain", ...structured].join(", ")}`;
  const status = { kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure" };
  reply(response, 406, JSON_TYPE, JSON.stringify({ ...status, message, reason: "NotAcceptable", code: 406 }));
}

/** Makes the handler of a page. */
export function zPage(page: ZPage): HttpHandler {
  return async (request, response) => {
    const choice = chooseForm(request.headers.accept ?? "", page.kind);
    if (choice.form === "none") {
      replyNotAcceptable(response, page.kind);
      return;
    }
    if (choice.form === "text") {
      const delimiter = DELIMITERS[Math.floor(Math.random() * DELIMITERS.length)] ?? ":";
      const lines = Array.from(page.lines(), ([name, value]) => `${name}${delimiter}${value}\n`);
      reply(response, 200, TEXT, `\n${COMPONENT} ${page.kind.toLowerCase()}\n${NOT_FOR_MACHINES}\n\n${lines.join("")}`);
      return;
    }
    const { form, version } = choice;
    const document = {
      kind: page.kind,
      apiVersion: `config.k8s.io/${version}`,
      metadata: { name: COMPONENT },
      ...page.members(),
    };
    const warning = `299 - "This version of the ${page.kind.toLowerCase()} endpoint is deprecated. Please use a newer version."`;
    const headers: Record<string, string> = version === "v1alpha1" ? { Warning: warning } : {};
    const type = `application/${form};g=config.k8s.io;v=${version};as=${page.kind}`;
    const body = form === "json" ? JSON.stringify(document) : (await import("yaml")).stringify(document);
    reply(response, 200, type, body, headers);
  };
}

/** `H hr MM min SS sec`. */
export function formatUptime(seconds: number): string {
  const two = (value: number): string => `${value}`.padStart(2, "0");
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 3600)} hr ${two(Math.floor(whole / 60) % 60)} min ${two(whole % 60)} sec`;
}

/** The content of /statusz. */
export function statuszPage(facts: {
  /** Unix milliseconds. */
  readonly startMs: number;
  /** Seconds since then, even if the machine's clock was set. */
  uptime(): number;
  /** `1.37.0`, without the leading v. */
  readonly binaryVersion: string;
  /** `1.37`. */
  readonly emulationVersion: string;
  /** What really runs here: name, version, commit. */
  readonly implementation: string;
  /** First segments of the paths that are served, sorted. */
  readonly paths: readonly string[];
}): ZPage {
  const runtime = `node ${process.version}`;
  const uptimeSeconds = (): number => Math.floor(facts.uptime());
  return {
    kind: "Statusz",
    lines: () => [
      ["Started", new Date(facts.startMs).toUTCString()],
      ["Up", formatUptime(uptimeSeconds())],
      ["Go version", runtime],
      ["Binary version", facts.binaryVersion],
      ["Emulation version", facts.emulationVersion],
      ["Implementation", facts.implementation],
      ["Paths", facts.paths.join(" ")],
    ],
    members: () => ({
      startTime: formatRfc3339(Math.floor(facts.startMs / 1000) * 1000),
      uptimeSeconds: uptimeSeconds(),
      goVersion: runtime,
      binaryVersion: facts.binaryVersion,
      emulationVersion: facts.emulationVersion,
      paths: facts.paths,
      implementation: facts.implementation,
    }),
  };
}

/** The content of /flagz: every registered flag with its value as text. */
export function flagzPage(flags: ReadonlyMap<string, string>): ZPage {
  const sorted = [...flags].sort(([left], [right]) => (left < right ? -1 : 1));
  return { kind: "Flagz", lines: () => sorted, members: () => ({ flags: Object.fromEntries(sorted) }) };
}
