/**
 * `kube-proxy render`: prints what would be programmed for a folder of manifests, without root and without a kernel. The
 * output depends on the input alone, so it can be compared in CI.
 */
import { readFile } from "node:fs/promises";
import { hostname } from "node:os";
import { parseArgs } from "node:util";
import { type ClusterRecords, formatManifestProblem, readManifests } from "../cluster/manifests/index.ts";
import type { NodeRecord } from "../cluster/objects.ts";
import type { KubeProxyConfig } from "../config/config.ts";
import { applyPlatformDefaults, EMPTY_DOCUMENT, resolveDocument } from "../config/defaults.ts";
import { setFeatureGates } from "../config/feature-gates.ts";
import { checkConfig } from "../config/validate.ts";
import { planData, planIptables, restoreInput } from "../inspect/iptables-plan.ts";
import type { Logger } from "../logging/logger.ts";
import { detectorFor } from "../model/local-traffic-detector.ts";
import { effectiveNodeAddresses, expandPrimary, nodeIPsOf, nodeNameFrom } from "../model/node-identity.ts";
import { nodePortAddresses, nodePortIPs } from "../model/node-port-addresses.ts";
import { ProxyState } from "../model/proxy-state.ts";
import { familyOf, type IpAddress, type IpFamily, parseIpAddress } from "../net/ip.ts";
import { EXIT_FAILURE, EXIT_SUCCESS, UsageError } from "./exit.ts";

export const RENDER_USAGE = `Usage: kube-proxy render -f DIR|FILE [options]

Prints the rules that the node service proxy would program for these manifests. Needs neither root nor a kernel.

  -f, --filename DIR|FILE      manifests: Services, EndpointSlices, Nodes (repeatable)
      --mode MODE              iptables (default: the configuration's mode)
      --family ipv4|ipv6       address family (default ipv4)
      --config FILE            KubeProxyConfiguration to render with
      --hostname-override NAME the node to render for (default: the only Node in the manifests, else this host)
  -o, --output text|json       iptables-restore input, or the plan as data (default text)
  -h, --help                   this text

Exit status: 0; 1 when a document could not be used (the others are rendered) or the command line is wrong.
`;

interface RenderOptions {
  readonly paths: readonly string[];
  readonly mode: string | undefined;
  readonly family: IpFamily;
  readonly configFile: string | undefined;
  readonly hostnameOverride: string;
  readonly output: "text" | "json";
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
  const clusters = await Promise.all(options.paths.map(readManifests));
  const problems = clusters.flatMap((cluster) => cluster.problems);
  for (const problem of problems) output.err(`${problem.severity}: ${formatManifestProblem(problem)}\n`);
  const cluster = {
    services: clusters.flatMap(({ services }) => services),
    endpointSlices: clusters.flatMap(({ endpointSlices }) => endpointSlices),
    nodes: clusters.flatMap(({ nodes }) => nodes),
  };
  const text = renderIptables(cluster, config, options, (message) => output.err(`warning: ${message}\n`));
  output.out(text);
  return problems.some(({ severity }) => severity === "error") ? EXIT_FAILURE : EXIT_SUCCESS;
}

const FAMILIES: Readonly<Record<string, IpFamily>> = { ipv4: "IPv4", ipv6: "IPv6" };

function readOptions(argv: readonly string[]): RenderOptions | "help" {
  const parse = () =>
    parseArgs({
      args: [...argv],
      options: {
        filename: { type: "string", short: "f", multiple: true },
        mode: { type: "string" },
        family: { type: "string", default: "ipv4" },
        config: { type: "string" },
        "hostname-override": { type: "string", default: "" },
        output: { type: "string", short: "o", default: "text" },
        help: { type: "boolean", short: "h" },
      },
    });
  let values: ReturnType<typeof parse>["values"];
  try {
    ({ values } = parse());
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error), false);
  }
  if (values.help === true) return "help";
  const family = FAMILIES[values.family.toLowerCase()];
  if (family === undefined) throw new UsageError(`--family must be ipv4 or ipv6, got "${values.family}"`, false);
  if (values.output !== "text" && values.output !== "json") {
    throw new UsageError(`--output must be text or json, got "${values.output}"`, false);
  }
  if (values.filename === undefined) throw new UsageError("render needs manifests: -f DIR or -f FILE", false);
  return {
    paths: values.filename,
    mode: values.mode,
    family,
    configFile: values.config,
    hostnameOverride: values["hostname-override"],
    output: values.output,
  };
}

async function readConfig({ configFile, mode, hostnameOverride }: RenderOptions): Promise<KubeProxyConfig> {
  let document = EMPTY_DOCUMENT;
  if (configFile !== undefined) {
    const { decodeConfiguration } = await import("../config/v1alpha1-decode.ts");
    document = decodeConfiguration(await readFile(configFile, "utf8")).document;
  }
  const chosen = mode === undefined ? document : { ...document, mode };
  const draft = applyPlatformDefaults(resolveDocument(chosen));
  const checked = checkConfig(hostnameOverride === "" ? draft : { ...draft, hostnameOverride });
  if (!checked.ok) throw new UsageError(`the configuration cannot be used: ${checked.message}`, false);
  if (checked.config.mode !== "iptables") {
    throw new UsageError(`mode "${checked.config.mode}" cannot be rendered yet: use --mode iptables`, false);
  }
  return checked.config;
}

function nodeOf(nodes: readonly NodeRecord[], override: string): { name: string; node: NodeRecord | undefined } {
  const [only] = nodes;
  const name =
    override === "" && nodes.length === 1 && only !== undefined ? only.name : nodeNameFrom(override, hostname());
  return { name, node: nodes.find((node) => node.name === name) };
}

function renderIptables(
  cluster: Pick<ClusterRecords, "services" | "endpointSlices" | "nodes">,
  config: KubeProxyConfig,
  { family, output }: RenderOptions,
  warn: (message: string) => void,
): string {
  const { name: nodeName, node } = nodeOf(cluster.nodes, config.hostnameOverride);
  if (node === undefined) warn(`no Node "${nodeName}" in the manifests: no endpoint is local, addresses are unknown`);
  const gates = setFeatureGates(config.featureGates);
  const state = new ProxyState({
    family,
    nodeName,
    allowExternalIPs: !gates.ok || gates.gates.isEnabled("AllowServiceExternalIPs"),
    now: () => 0,
    log: warningLogger(warn),
  });
  for (const object of cluster.services) state.onService({ kind: "add", object });
  for (const object of cluster.endpointSlices) {
    if (object.addressType === family) state.onEndpointSlice({ kind: "add", object });
  }
  state.applyChanges();
  const nodeIPs = node === undefined ? [] : nodeIPsOf(node);
  const addresses = effectiveNodeAddresses(nodeIPs, config.bindAddress);
  const { detector } = detectorFor(family, {
    mode: config.detectLocalMode,
    clusterCIDRs: config.detectLocal.clusterCIDRs,
    podCIDRs: node?.podCIDRs ?? [],
    bridgeInterface: config.detectLocal.bridgeInterface,
    interfaceNamePrefix: config.detectLocal.interfaceNamePrefix,
  });
  const nodePorts = nodePortAddresses(family, expandPrimary(config.nodePortAddresses, addresses));
  const plan = planIptables(
    state,
    {
      family,
      nodeName,
      nodeIP: addresses.ips[family],
      masqueradeMark: 2 ** config.iptables.masqueradeBit,
      masqueradeAll: config.masqueradeAll,
      detector,
      localhostNodePorts: family === "IPv4" && config.iptables.localhostNodePorts && nodePorts.containsLoopback,
      hasRandomFully: true,
      conntrackLiberal: config.conntrack.tcpBeLiberal,
    },
    {
      zone: node?.zone,
      nodePortIPs: nodePortIPs(nodePorts, hostAddresses(node, family)),
      counters: { ctStateInvalid: true, localhostNodePorts: true },
    },
  );
  if (output === "text") return restoreInput(plan);
  return `${JSON.stringify({ mode: config.mode, family, node: nodeName, ...planData(plan) }, undefined, 2)}\n`;
}

/** Without a kernel, the host's addresses are those that the Node object lists, and loopback. */
function hostAddresses(node: NodeRecord | undefined, family: IpFamily): IpAddress[] {
  const texts = ["127.0.0.1", "::1", ...(node?.addresses.map(({ address }) => address) ?? [])];
  return texts.map(parseIpAddress).filter((ip) => ip !== undefined && familyOf(ip) === family) as IpAddress[]; // filtered above
}

/** Whatever the model complains about becomes a warning. */
function warningLogger(warn: (message: string) => void): Logger {
  const line = (message: string, facts: Readonly<Record<string, unknown>> = {}) =>
    warn([message, ...Object.entries(facts).map(([key, value]) => `${key}=${JSON.stringify(value)}`)].join(" "));
  const log: Logger = {
    info() {},
    v() {},
    warn: line,
    error: (message, _error, facts) => line(message, facts),
    with: () => log,
    isVerbose: () => false,
  };
  return log;
}
