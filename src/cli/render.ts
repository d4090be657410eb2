/**
 * `kube-proxy render`: prints what would be programmed for a folder of manifests, without root and without a kernel. The
 * output depends on the input alone, so it can be compared in CI.
 */
import { readFile } from "node:fs/promises";
import { type ClusterRecords, formatManifestProblem, readManifests } from "../cluster/manifests/index.ts";
import type { KubeProxyConfig } from "../config/config.ts";
import { applyPlatformDefaults, EMPTY_DOCUMENT, resolveDocument } from "../config/defaults.ts";
import { checkConfig } from "../config/validate.ts";
import type { ModeRenderer } from "../dataplane/dataplane.ts";
import { MODES, modeNamed, type ProxyMode } from "../dataplane/registry.ts";
import { offlineNode } from "../inspect/offline-node.ts";
import type { IpFamily } from "../net/ip.ts";
import { EXIT_FAILURE, EXIT_SUCCESS, UsageError } from "./exit.ts";
import { parseOptions } from "./subcommand-options.ts";

export const RENDER_USAGE = `Usage: kube-proxy render -f DIR|FILE [options]

Prints the rules that the node service proxy would program for these manifests. Needs neither root nor a kernel.

  -f, --filename DIR|FILE      manifests: Services, EndpointSlices, Nodes (repeatable)
      --mode MODE              ${MODES.map(({ name }) => name).join(", ")} (default: the configuration's mode)
      --family ipv4|ipv6       address family (default ipv4)
      --config FILE            KubeProxyConfiguration to render with
      --hostname-override NAME the node to render for (default: the only Node in the manifests, else this host)
  -o, --output FORM            text: input of iptables-restore or nft; for ipvs of all four tools (default)
                               json: the plan as data; for nftables in libnftables' schema
                               (in userspace mode the proxy's ports are counted; the daemon takes any that is free)
                               netlink: the messages to the kernel (nftables)
                               ip, ipset, ipvsadm, iptables: input of that tool alone (ipvs)
  -h, --help                   this text

Exit status: 0; 1 when a document could not be used (the others are rendered) or the command line is wrong.
`;

/** The forms of all modes. */
const OUTPUT_FORMS: readonly string[] = [...new Set(MODES.flatMap(({ renderForms }) => renderForms))];

interface RenderOptions {
  readonly paths: readonly string[];
  readonly mode: string | undefined;
  readonly family: IpFamily;
  readonly configFile: string | undefined;
  readonly hostnameOverride: string;
  readonly output: string;
}

/** Where a command writes. */
export interface Output {
  out(text: string): void;
  err(text: string): void;
}

/** Runs the command. @param argv without the word `render`. @returns the exit status. @throws UsageError */
export async function render(argv: readonly string[], output: Output): Promise<number> {
  const options = readOptions(argv);
  if (options === "help") {
    output.out(RENDER_USAGE);
    return EXIT_SUCCESS;
  }
  const config = await readConfig(options);
  const clusters = await Promise.all(options.paths.map(readCluster));
  const problems = clusters.flatMap((cluster) => cluster.problems);
  for (const problem of problems) output.err(`${problem.severity}: ${formatManifestProblem(problem)}\n`);
  const cluster = {
    services: clusters.flatMap(({ services }) => services),
    endpointSlices: clusters.flatMap(({ endpointSlices }) => endpointSlices),
    nodes: clusters.flatMap(({ nodes }) => nodes),
    serviceCIDRs: clusters.flatMap(({ serviceCIDRs }) => serviceCIDRs),
  };
  const renderer = await rendererOf(config.mode, options.output);
  const node = offlineNode(cluster, config, options.family, (message) => output.err(`warning: ${message}\n`));
  try {
    output.out(await renderer(node, config, options.output));
  } catch (error) {
    // What a configuration does not allow is the user's to mend.
    throw new UsageError(messageOf(error));
  }
  return problems.some(({ severity }) => severity === "error") ? EXIT_FAILURE : EXIT_SUCCESS;
}

async function readCluster(path: string): Promise<ClusterRecords> {
  try {
    return await readManifests(path);
  } catch (error) {
    throw new UsageError(`cannot read the manifests in ${path}: ${messageOf(error)}`);
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

const FAMILIES: Readonly<Record<string, IpFamily>> = { ipv4: "IPv4", ipv6: "IPv6" };

function readOptions(argv: readonly string[]): RenderOptions | "help" {
  const values = parseOptions("kube-proxy render", argv, {
    filename: { type: "string", short: "f", multiple: true },
    mode: { type: "string" },
    family: { type: "string", default: "ipv4" },
    config: { type: "string" },
    "hostname-override": { type: "string", default: "" },
    output: { type: "string", short: "o", default: "text" },
    help: { type: "boolean", short: "h" },
  });
  if (values.help === true) return "help";
  const family = FAMILIES[values.family.toLowerCase()];
  if (family === undefined) throw new UsageError(`--family must be ipv4 or ipv6, got "${values.family}"`);
  const form = values.output;
  if (!OUTPUT_FORMS.includes(form)) {
    throw new UsageError(`--output must be ${OUTPUT_FORMS.join(", ")}, got "${values.output}"`);
  }
  if (values.filename === undefined) throw new UsageError("render needs manifests: -f DIR or -f FILE");
  return {
    paths: values.filename,
    mode: values.mode,
    family,
    configFile: values.config,
    hostnameOverride: values["hostname-override"],
    output: form,
  };
}

async function readConfig({ configFile, mode, hostnameOverride }: RenderOptions): Promise<KubeProxyConfig> {
  const document = configFile === undefined ? EMPTY_DOCUMENT : await readDocument(configFile);
  const chosen = mode === undefined ? document : { ...document, mode };
  const draft = applyPlatformDefaults(resolveDocument(chosen));
  const checked = checkConfig(hostnameOverride === "" ? draft : { ...draft, hostnameOverride });
  if (!checked.ok) throw new UsageError(`the configuration cannot be used: ${checked.message}`);
  return checked.config;
}

async function readDocument(file: string): Promise<typeof EMPTY_DOCUMENT> {
  const { decodeConfiguration } = await import("../config/v1alpha1-decode.ts");
  try {
    return decodeConfiguration(await readFile(file, "utf8")).document;
  } catch (error) {
    throw new UsageError(`cannot use the configuration ${file}: ${messageOf(error)}`);
  }
}

/** Loads the mode's renderer. @throws UsageError for a form that the mode does not have. */
async function rendererOf(name: ProxyMode, form: string): Promise<ModeRenderer> {
  const mode = modeNamed(name);
  if (mode.renderForms.includes(form)) return await mode.loadRenderer();
  throw new UsageError(`mode ${name} has no output "${form}": use --output ${mode.renderForms.join(", ")}`);
}
