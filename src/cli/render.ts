/**
 * `kube-proxy render`: prints what would be programmed for a folder of manifests, without root and without a kernel. The
 * output depends on the input alone, so it can be compared in CI.
 */
import { readFile } from "node:fs/promises";
import type { KubeProxyConfig } from "../config/config.ts";
import { applyPlatformDefaults, EMPTY_DOCUMENT, resolveDocument } from "../config/defaults.ts";
import type { AnyFlag } from "../config/flag.ts";
import { checkConfig } from "../config/validate.ts";
import { MODES, modeNamed, type ProxyMode } from "../dataplane/registry.ts";
import {
  joinFamilies,
  KERNEL_FEATURES,
  type KernelFeature,
  type ModeRenderer,
  type Rendered,
  type RenderRequest,
} from "../dataplane/rendering.ts";
import { type OfflineNode, offlineNode } from "../inspect/offline-node.ts";
import type { IpFamily } from "../net/ip.ts";
import { EXIT_FAILURE, EXIT_SUCCESS, UsageError } from "./exit.ts";
import { readInput } from "./render-input.ts";
import { parseOptions } from "./subcommand-options.ts";
import { nearestWord } from "./suggestion.ts";

const MODE_FLAGS: readonly AnyFlag[] = MODES.flatMap((mode): readonly AnyFlag[] =>
  "renderFlags" in mode ? mode.renderFlags : [],
);

function modeFlagHelp({ name, defaultText }: AnyFlag): string {
  return `      --${`${name} ${name.split("-").at(-1)?.toUpperCase()}`.padEnd(22)} as the proxy's own flag (default: the configuration's, or ${defaultText})\n`;
}

export const RENDER_USAGE = `Usage: kube-proxy render -f DIR|FILE|- [options]

Prints the rules that the node service proxy would program for these manifests. Needs neither root nor a kernel.

  -f, --filename DIR|FILE|-    manifests: Services, EndpointSlices, Nodes; - reads standard input (repeatable)
      --mode MODE              ${MODES.map(({ name }) => name).join(", ")} (default: the configuration's mode)
      --family ipv4|ipv6|both  address family (default both)
      --service NS/NAME        only what is there for this Service
      --config FILE            KubeProxyConfiguration to render with
      --hostname-override NAME the node to render for (default: the only Node in the manifests, else this host)
${MODE_FLAGS.map(modeFlagHelp).join("")}      --without LIST           what the node's kernel or tools lack: ${KERNEL_FEATURES.join(", ")}
  -o, --output FORM            text: input of iptables-restore or nft; for ipvs of all four tools (default)
                               json: the plan as data, of both families as a list; for nftables in libnftables' schema
                               (in userspace mode the proxy's ports are counted; the daemon takes any that is free)
                               iptables-save: as that tool prints it, to compare with a node (${modesWith("iptables-save")})
                               netlink: the messages to the kernel (${modesWith("netlink")})
                               ip, ipset, ipvsadm, iptables: input of that tool alone (${modesWith("ipset")})
  -h, --help                   this text

From a cluster, for one node, and compared with what that node has:

  kubectl get services,endpointslices,nodes,servicecidrs -A -o yaml > cluster.yaml
  ours() { grep KUBE- | sed 's/ \\[[0-9:]*\\]$//' | sort; }
  diff <(kube-proxy render -f cluster.yaml --hostname-override NODE --family ipv4 -o iptables-save | ours) \\
       <(ssh NODE iptables-save | grep -v KUBELET | ours)

Exit status: 0; 1 when a document could not be used (the others are rendered; without any, nothing is printed) or the
command line is wrong.
`;

function modesWith(form: string): string {
  return MODES.flatMap(({ name, renderForms }) => (renderForms.includes(form) ? [name] : [])).join(", ");
}

/** The forms of all modes. */
const OUTPUT_FORMS: readonly string[] = [...new Set(MODES.flatMap(({ renderForms }) => renderForms))];

interface RenderOptions {
  readonly paths: readonly string[];
  readonly mode: string | undefined;
  readonly families: readonly IpFamily[];
  readonly service: string | undefined;
  readonly configFile: string | undefined;
  readonly hostnameOverride: string;
  readonly missing: ReadonlySet<KernelFeature>;
  readonly form: string;
  /** Values of {@link MODE_FLAGS} that were given, by name. */
  readonly modeFlags: ReadonlyMap<string, string>;
}

/** Where a command writes. */
export interface Output {
  out(text: string): void;
  err(text: string): void;
}

/**
 * Runs the command.
 *
 * @param argv without the word `render`.
 * @param input what `-f -` reads.
 * @returns the exit status. @throws UsageError
 */
export async function render(
  argv: readonly string[],
  output: Output,
  input: NodeJS.ReadableStream = process.stdin,
): Promise<number> {
  const options = readOptions(argv);
  if (options === "help") {
    output.out(RENDER_USAGE);
    return EXIT_SUCCESS;
  }
  const { service, families, form, missing } = options;
  const config = await readConfig(options);
  const renderer = await rendererOf(config.mode, form);
  const cluster = await readInput(options.paths, input, (line) => output.err(`${line}\n`));
  if (service !== undefined) {
    requireService(
      service,
      cluster.services.map(({ namespace, name }) => `${namespace}/${name}`),
    );
  }
  const warned = new Set<string>();
  const warn = (message: string): void => {
    if (!warned.has(message)) output.err(`warning: ${message}\n`);
    warned.add(message);
  };
  const nodes = families.map((family) => offlineNode(cluster, config, family, warn));
  if (service !== undefined && !nodes.some((node) => hasPorts(node, service))) {
    warn(`Service ${service} has no cluster IP of this family: a proxy does nothing for it`);
  }
  output.out(joinFamilies(await renderAll(nodes, { config, form, service, missing }, renderer)));
  return cluster.problems.some(({ severity }) => severity === "error") ? EXIT_FAILURE : EXIT_SUCCESS;
}

async function renderAll(
  nodes: readonly OfflineNode[],
  request: RenderRequest,
  renderer: ModeRenderer,
): Promise<readonly Rendered[]> {
  try {
    return await Promise.all(nodes.map((node) => renderer(node, request)));
  } catch (error) {
    // What a configuration does not allow is the user's to mend.
    throw new UsageError(messageOf(error));
  }
}

function hasPorts({ state }: OfflineNode, service: string): boolean {
  return [...state.services.values()].some(({ name }) => name.service === service);
}

function requireService(service: string, known: readonly string[]): void {
  if (known.includes(service)) return;
  const nearest = nearestWord(service, known);
  throw new UsageError(
    `no Service "${service}" in the manifests, or it is headless or another proxy's`,
    nearest === undefined ? undefined : `Did you mean ${nearest}?`,
  );
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

const FAMILIES: Readonly<Record<string, readonly IpFamily[]>> = {
  ipv4: ["IPv4"],
  ipv6: ["IPv6"],
  both: ["IPv4", "IPv6"],
};

function readOptions(argv: readonly string[]): RenderOptions | "help" {
  const values = parseOptions("kube-proxy render", argv, {
    ...Object.fromEntries(MODE_FLAGS.map(({ name }) => [name, { type: "string" }] as const)),
    filename: { type: "string", short: "f", multiple: true },
    mode: { type: "string" },
    family: { type: "string", default: "both" },
    service: { type: "string" },
    config: { type: "string" },
    "hostname-override": { type: "string", default: "" },
    without: { type: "string", default: "" },
    output: { type: "string", short: "o", default: "text" },
    help: { type: "boolean", short: "h" },
  });
  if (values.help === true) return "help";
  const families = Object.hasOwn(FAMILIES, values.family.toLowerCase()) && FAMILIES[values.family.toLowerCase()];
  if (!families) throw new UsageError(`--family must be ipv4, ipv6 or both, got "${values.family}"`);
  const form = values.output;
  if (!OUTPUT_FORMS.includes(form)) {
    throw new UsageError(`--output must be ${OUTPUT_FORMS.join(", ")}, got "${form}"`);
  }
  if (values.filename === undefined) throw new UsageError("render needs manifests: -f DIR, -f FILE or -f -");
  const { service } = values;
  if (service !== undefined && !/^[^/]+\/[^/]+$/.test(service)) {
    throw new UsageError(`--service must be NAMESPACE/NAME, got "${service}"`);
  }
  return {
    paths: values.filename,
    mode: values.mode,
    families,
    service,
    configFile: values.config,
    hostnameOverride: values["hostname-override"],
    missing: readMissing(values.without),
    form,
    modeFlags: new Map(
      MODE_FLAGS.flatMap(({ name }) => {
        const value: unknown = Object.entries(values).find(([given]) => given === name)?.[1];
        return typeof value === "string" ? [[name, value]] : [];
      }),
    ),
  };
}

function readMissing(list: string): ReadonlySet<KernelFeature> {
  const words = list.split(",").filter((word) => word !== "");
  return new Set(
    words.map((word) => {
      const feature = KERNEL_FEATURES.find((name) => name === word);
      if (feature !== undefined) return feature;
      throw new UsageError(`--without knows ${KERNEL_FEATURES.join(" and ")}, got "${word}"`);
    }),
  );
}

async function readConfig({ configFile, mode, hostnameOverride, modeFlags }: RenderOptions): Promise<KubeProxyConfig> {
  const document = configFile === undefined ? EMPTY_DOCUMENT : await readDocument(configFile);
  const chosen = mode === undefined ? document : { ...document, mode };
  let draft = applyPlatformDefaults(resolveDocument(chosen));
  for (const modeFlag of MODE_FLAGS) {
    const text = modeFlags.get(modeFlag.name);
    if (text !== undefined) draft = modeFlag.overlay(draft, [text]);
  }
  const checked = checkConfig(hostnameOverride === "" ? draft : { ...draft, hostnameOverride });
  if (!checked.ok) throw new UsageError(`the configuration cannot be used: ${checked.message}`);
  return checked.config;
}

async function readDocument(file: string): Promise<typeof EMPTY_DOCUMENT> {
  const { decodeConfiguration } = await import("../config/v1alpha1-decode.ts");
  try {
    return decodeConfiguration(await readFile(file)).document;
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
