/**
 * `kube-proxy render`: prints what would be programmed for a folder of manifests, without root and without a kernel. The
 * output depends only on the input, so CI can compare it.
 */

import type { DraftConfig, KubeProxyConfig } from "../../contract/config/config.ts";
import type { AnyFlag } from "../../contract/config/flag.ts";
import { offlineNode } from "../../contract/inspect/offline-node.ts";
import { joinFamilies, KERNEL_FEATURES, type RenderRequest } from "../../contract/rendering.ts";
import { escapeLine } from "../../logging/escape.ts";
import { messageOf } from "../../logging/message-of.ts";
import type { ClusterRecords } from "../../model/objects.ts";
import { objectKeyText } from "../../model/objects.ts";
import { MODES, modeNamed } from "../../modes/registry.ts";
import type { IpFamily } from "../../net/ip.ts";
import { isKnownService, whyNotServed } from "../explain/find.ts";
import { serviceTyped } from "../explain/target.ts";
import { chosenNode, seenFromSlices } from "./chosen-node.ts";
import { INSPECT_OPTIONS, readChoices, readMissing, warner } from "./inspect-options.ts";
import { type FoundConfiguration, OBJECTS_OPTIONS, type ReadObjects, readObjects } from "./objects-input.ts";
import { EXIT_FAILURE, EXIT_SUCCESS, UsageError } from "./output.ts";
import { command, commandLine } from "./subcommand-options.ts";
import { didYouMean, onlyNamed } from "./suggestion.ts";

const MODE_FLAGS: readonly AnyFlag[] = MODES.flatMap((mode): readonly AnyFlag[] =>
  "renderFlags" in mode ? mode.renderFlags : [],
);

/** Their values are looked up by name. */
const MODE_OPTIONS: Readonly<Record<never, string>> = Object.fromEntries(
  MODE_FLAGS.map(({ name, defaultText, bareText }) => {
    const value = bareText === undefined ? name.split("-").at(-1)?.toUpperCase() : "true|false";
    const otherwise = defaultText === "" ? "" : `, or ${defaultText}`;
    return [`--${name} ${value}`, `as the proxy's own flag (default: the configuration's${otherwise})`];
  }),
);

function modesWith(form: string): string {
  return MODES.flatMap(({ name, renderForms }) => (renderForms.includes(form) ? [name] : [])).join(", ");
}

const OUTPUT_FORMS: readonly string[] = [...new Set(MODES.flatMap(({ renderForms }) => renderForms))];

const RENDER = commandLine("kube-proxy render", { forms: OUTPUT_FORMS, throws: true }, [
  `Usage: kube-proxy render -f DIR|FILE|- [options]
       kubectl kube-proxy render [options]

Prints the rules that the node service proxy would program for these objects. Needs neither root nor a kernel.

`,
  {
    ...OBJECTS_OPTIONS,
    "--mode MODE": INSPECT_OPTIONS["--mode MODE"],
    "--family ipv4|ipv6|both": INSPECT_OPTIONS["--family ipv4|ipv6|both"],
    "--service NS/NAME": "only what is there for this Service",
    "--config FILE": "KubeProxyConfiguration to render with (default: the cluster's)",
    "--compatibility RELEASE": INSPECT_OPTIONS["--compatibility RELEASE"],
    "--node NAME": `the node to render for (default: the only Node, this host, or the first by name);
        also --hostname-override NAME`,
    "--hostname-override NAME": "",
    ...MODE_OPTIONS,
    "--without LIST": `what the node's kernel or tools lack: ${KERNEL_FEATURES.join(", ")}`,
    "-o, --output FORM": `text: input of iptables-restore or nft; for ipvs of all four tools (default)
        json: the plan as data, of both families as a list; for nftables in libnftables' schema
        (in userspace mode the proxy's ports are counted; the daemon takes any that is free)
        iptables-save: as that tool prints it, to compare with a node (${modesWith("iptables-save")})
        netlink: the messages to the kernel (${modesWith("netlink")})
        sockets: what the node's sockets connect to; programs: what redirects them (${modesWith("sockets")})
        ip, ipset, ipvsadm, iptables: input of that tool alone (${modesWith("ipset")})`,
    "-h, --help": "this text",
  },
  `
Examples:
  kube-proxy render -f examples --node node-a --mode nftables
  kube-proxy render -f examples --node node-a --service shop/web --family ipv4

From a cluster, for one node, and compared with what that node has:

  kubectl get services,endpointslices,nodes,servicecidrs -A -o yaml > cluster.yaml
  ours() { grep KUBE- | sed 's/ \\[[0-9:]*\\]$//' | sort; }
  diff <(kube-proxy render -f cluster.yaml --node NODE --family ipv4 -o iptables-save | ours) \\
       <(ssh NODE iptables-save | grep -v KUBELET | ours)

Exit status: 0; 1 when a document could not be used (the others are rendered; without any, nothing is printed) or the
command line is wrong.
`,
]);

export const render = command(RENDER, async ({ values, form }, output, input) => {
  const given = new Map<string, unknown>(Object.entries(values));
  const read = (found?: FoundConfiguration) => readChoices(values, found, (draft) => withModeFlags(draft, given));
  // Reports errors in flags before anything is read.
  const { config: stated } = await read();
  if (values.filename !== undefined) requireForm(stated, form);
  const missing = readMissing(values.without);
  const cluster = await readObjects(values, output, input);
  const service = values.service && knownService(values.service, cluster);
  const found = cluster.configuration;
  const choices = await read(found);
  const { config, note } = chosenNode(cluster.nodes, choices.config, seenFromSlices(cluster));
  requireForm(config, form);
  if (note !== undefined) output.err(`${escapeLine(note)}\n`);
  if (found !== undefined) output.err(`${config.mode} mode (${choices.origin ?? `of ${found.where}`})\n`);
  const warn = warner(output, cluster.lacksNodes, choices.warnings);
  output.out(await rendered(cluster, choices.families, { config, form, service, missing }, warn));
  return cluster.problems.some(({ severity }) => severity === "error") ? EXIT_FAILURE : EXIT_SUCCESS;
});

async function rendered(
  cluster: ClusterRecords,
  families: readonly IpFamily[],
  options: RenderRequest,
  warn: (message: string) => void,
): Promise<string> {
  const { config, service } = options;
  const renderer = await modeNamed(config.mode).loadRenderer();
  const nodes = families.map((family) => offlineNode(cluster, config, family, warn));
  const { warnings } = await modeNamed(config.mode).loadInspection();
  if (warnings !== undefined)
    for (const node of nodes)
      for (const port of node.state.services.values())
        if (port.name.service === (service ?? port.name.service)) for (const said of warnings(node, port)) warn(said);
  const isServed = nodes.some(({ state }) => [...state.services.values()].some(({ name }) => name.service === service));
  if (service !== undefined && !isServed) {
    warn(`Service ${service} has no cluster IP of this family: a proxy does nothing for it`);
  }
  try {
    return joinFamilies(await Promise.all(nodes.map((node) => renderer(node, options))));
  } catch (error) {
    // The configuration does not allow it: the user must change it.
    throw new UsageError(messageOf(error));
  }
}

function requireForm({ mode }: KubeProxyConfig, form: string): void {
  const { renderForms } = modeNamed(mode);
  if (renderForms.includes(form)) return;
  throw new UsageError(`mode ${mode} has no output "${form}": use --output ${renderForms.join(", ")}`);
}

/** @param service in any form that people use. @returns `namespace/name`. @throws UsageError */
function knownService(service: string, cluster: ReadObjects): string {
  const known = cluster.services.map(objectKeyText);
  const typed = serviceTyped(service);
  const name = onlyNamed("--service", typed, known.concat(cluster.serviceNotes?.map(objectKeyText) ?? [])) ?? typed;
  if (known.includes(name)) return name;
  const hint = isKnownService(cluster, name) ? undefined : didYouMean(name, known);
  throw new UsageError(whyNotServed(cluster, name), hint);
}

function withModeFlags(draft: DraftConfig, given: ReadonlyMap<string, unknown>): DraftConfig {
  let changed = draft;
  for (const { name, overlay } of MODE_FLAGS) {
    const text = given.get(name);
    if (typeof text === "string") changed = overlay(changed, [text]);
  }
  return changed;
}
