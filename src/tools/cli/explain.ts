/**
 * `kube-proxy explain WHAT`: what a Service, an address, a port or a name in the kernel is on a node: how clients reach it, which
 * endpoints are used and why, and what the kernel has for it. Needs neither root nor a kernel.
 */

import type { KubeProxyConfig } from "../../contract/config/config.ts";
import { addressOfPod, type KnownPod, knownPods } from "../../contract/inspect/known-pods.ts";
import { someOf } from "../../logging/some-of.ts";
import { objectKeyText } from "../../model/objects.ts";
import { modeNamed } from "../../modes/registry.ts";
import { familyOf, isLoopback } from "../../net/ip.ts";
import { explainOnAllNodes, nodeGroupsText } from "../explain/all-nodes.ts";
import { withSockets } from "../explain/diff-sockets.ts";
import { type ExplainedCluster, explainedCluster, explainPorts } from "../explain/explained-cluster.ts";
import type { PortExplanation } from "../explain/explanation.ts";
import { find, isKnownService, type Search } from "../explain/find.ts";
import { nodeOfAddress, type Objects, partOf, servicesOfTarget } from "../explain/part-of-cluster.ts";
import { jsonText, safe } from "../explain/safe-text.ts";
import { refusedServices, standingText } from "../explain/standing.ts";
import { joinedKind, parseTarget, type Target, withKnownNames, withoutDomain } from "../explain/target.ts";
import { answerText } from "../explain/text.ts";
import { withTraffic } from "../explain/traffic.ts";
import { WHAT_IF_FIELDS, WhatIfError, wishText, withChange } from "../explain/what-if.ts";
import { chosenNode } from "./chosen-node.ts";
import { contextOf } from "./dump-folder.ts";
import { namedInDumps } from "./dumped-names.ts";
import {
  choicesAmong,
  INSPECT_OPTIONS,
  type InspectChoices,
  lackOfRules,
  readChoices,
  requireMode,
  warner,
  warnOfOtherMode,
} from "./inspect-options.ts";
import { type FoundConfiguration, OBJECTS_OPTIONS, type ReadObjects, readObjects } from "./objects-input.ts";
import { EXIT_SUCCESS, painted, UsageError } from "./output.ts";
import { command, commandLine, FORM_AND_HELP, type ReadLine, TEXT_OR_JSON } from "./subcommand-options.ts";
import { didYouMean, namesakes, nearestWord, onlyNamed } from "./suggestion.ts";

const EXPLAIN = commandLine("kube-proxy explain", { forms: TEXT_OR_JSON, takesWords: true }, [
  `Usage: kube-proxy explain WHAT [-f DIR|FILE|-] [options]
       kubectl kube-proxy explain WHAT [options]

Says what WHAT is on a node: every address and what a client meets there, every endpoint and why it is used or left out,
and with --rules what is in the kernel for it. Needs neither root nor a kernel.

WHAT is one of
  shop/web, shop/web:http      a Service, or one of its ports; also web:80, shop/web:dns/udp
  svc/web -n shop              the same, as is web.shop.svc.cluster.local
  shop/web-1, pod/web-1        a pod that is an endpoint, by its name
  10.96.0.10:80, 10.96.0.10    an address of a Service, of a node with a node port, or of an endpoint
  http://web.shop.svc/cart     what a URL leads to
  30080, 30080/tcp             a node port
  KUBE-SVC-…, service-…, …     a chain, a set or a map, as iptables-save, nft or ipset print it

`,
  {
    ...OBJECTS_OPTIONS,
    "-n, --namespace NAME": "the namespace of a Service that is named without one (svc/NAME: default the context's)",
    "--dump DIR|FILE|-...": `a sysdump, packed or not: objects, node and configuration are those in it; or
        rules alone (iptables-save, nft list ruleset): what their names and comments say of WHAT`,
    ...INSPECT_OPTIONS,
    "--all-nodes": "on every Node: where they differ",
    "--why": "every endpoint, and everything that had a say",
    "--rules": "also the chains, rules, sets and servers that are in the kernel for it",
    "--kernel": `also what this host's kernel has counted: connections that are open now, and those
        since the rules were made; and where the pinned maps of ebpf mode lead. Needs root`,
    "--what-if FIELD=VALUE": `what would be different for clients. FIELD is one of the Service's
        ${WHAT_IF_FIELDS.slice(0, 4).join(", ")},
        ${WHAT_IF_FIELDS.slice(4).join(", ")}, or mode`,
    ...FORM_AND_HELP,
  },
  `
Examples:
  kube-proxy explain shop/web -f examples --node node-a
  kubectl kube-proxy explain svc/web -n shop --node node-a
  kube-proxy explain shop/storefront -f examples --node node-a --what-if externalTrafficPolicy=Cluster
  kube-proxy explain shop/web --kubeconfig kubelet.conf --node node-a --kernel

Exit status: 0; 2 when there is no such thing, or the input cannot be used.
`,
]);

type ExplainOptions = Awaited<ReturnType<typeof readOptions>>;

export const explain = command(EXPLAIN, async (given, output, input) => {
  const options = await readOptions(given);
  const { from, form, what, values } = options;
  const { "all-nodes": onAllNodes, kernel: asksKernel, "what-if": wish, rules: showsRules, why: asksWhy } = values;
  // kubectl's word for more columns.
  const showsWhy = asksWhy || given.form === "wide";
  const { terminal } = output;
  if (options.dumps.length > 0) {
    output.out(painted(await namedInDumps(what, options.dumps, input, warner(output)), terminal));
    return EXIT_SUCCESS;
  }
  const whole = await readObjects(from, output, input, {
    namespace: values.namespace ?? namespaceIn(what),
    isOfKernel: values.kernel,
  });
  const found = options.found ?? whole.configuration;
  const settings = choicesAmong(whole, await options.read(found));
  const warn = warner(output, whole.lacksNodes, settings.warnings);
  const { target, because } = targetOf(what, values.namespace, settings, whole);
  // Of an address, its own family alone.
  const isOfAddress = target.kind === "address" && !/\blocalhost\b/i.test(what);
  const families = isOfAddress ? [familyOf(target.address)] : settings.families;
  const inspection = await modeNamed(settings.config.mode).loadInspection();
  const objects = partOf(whole, servicesOfTarget(whole, target, inspection));
  const slices = objects.endpointSlices;
  const { config, note } = onAllNodes
    ? { config: settings.config, note: undefined }
    : chosenNode(whole.nodes, atNode(settings.config, target, whole), { isThisHost: asksKernel, slices });
  const choices = { ...settings, config, families: settings.families.filter((family) => families.includes(family)) };
  const [firstNode] = whole.nodes;
  if (onAllNodes && firstNode === undefined) throw new UsageError("--all-nodes needs Nodes, and there are none");
  // Any node can find the target.
  const finder = onAllNodes ? { ...choices.config, hostnameOverride: firstNode?.name ?? "" } : choices.config;
  const cluster = await explainedCluster(objects, finder, choices.families, warn, settings);
  const search = searched(cluster, what, target, whole);
  if (search.kind === "shared") {
    const text = `${search.name} is there once for all Services: it ${search.purpose}.\n`;
    output.out(painted(safe(text), terminal));
    return EXIT_SUCCESS;
  }
  const textOptions = { width: terminal?.width, showsRules, showsWhy, assumed: choices.origin };
  if (onAllNodes) {
    const groups = await explainOnAllNodes(objects, search.keys, {
      ...{ ...choices, warn },
      onNode: async (done) => await output.progress?.({ what: "Nodes", done, total: objects.nodes.length }),
    });
    output.out(form === "json" ? jsonText(groups) : painted(nodeGroupsText(groups, textOptions), terminal));
    return EXIT_SUCCESS;
  }
  if (asksKernel) await warnOfOtherMode(choices, warn);
  const planned = await explainPorts(cluster, search.keys);
  const servicePorts = asksKernel
    ? await withTrafficHere(inspection, await withSockets(cluster, planned, warn), choices, warn)
    : planned;
  if (wish === undefined) {
    const standing = whole.standing?.ports.filter(({ servicePort }) => search.keys.includes(servicePort)) ?? [];
    const refused = standing.map((one) => `${standingText(one)}.`);
    const said = [note ?? [], because, search.because, refused, loopbackWords(target, servicePorts)].flat();
    output.out(
      form === "json"
        ? jsonText({ what, because: said, servicePorts })
        : painted(answerText(said, servicePorts, textOptions), terminal),
    );
  } else {
    const after = await explainedWith(wish, objects, servicePorts, { ...options, whole, choices, found }, warn);
    output.out(painted(safe(wishText(wish, servicePorts, await explainPorts(after, search.keys))), terminal));
  }
  return EXIT_SUCCESS;
});

/** Adds the kernel's counts, unless it has nothing of kube-proxy: its connections are then not the Service's. */
async function withTrafficHere(
  inspection: Parameters<typeof withTraffic>[0],
  planned: readonly PortExplanation[],
  choices: InspectChoices,
  warn: (message: string) => void,
): Promise<readonly PortExplanation[]> {
  const counted = await withTraffic(inspection, planned, choices.config);
  const hasAny = counted.some((port) => [...port.frontends, ...port.endpoints].some((one) => one.open || one.counted));
  // Zeros alone are worth a look at the rules.
  const lack = hasAny ? undefined : await lackOfRules(choices);
  if (lack === undefined) return counted;
  warn(`${lack}, so nothing is counted: ask on the node`);
  return planned;
}

/** The namespace in the name of a Service or pod. */
function namespaceIn(what: string): string | undefined {
  const [, namespace] =
    /^(?!(?:svc|services?|po|pods?)\/)([a-z0-9-]+)\/[^/]+(?:\/(?:tcp|udp|sctp))?$/i.exec(withoutDomain(what)) ?? [];
  return namespace;
}

/** A node port at a Node's address is looked at from that Node, unless another one is named. */
function atNode(config: KubeProxyConfig, target: Target, objects: Objects): KubeProxyConfig {
  if (config.hostnameOverride !== "" || target.kind !== "address" || target.port === undefined) return config;
  const hostnameOverride = nodeOfAddress(objects, target.address)?.name ?? "";
  return { ...config, hostnameOverride };
}

const PING = /^[^/]+\/icmp(v6)?$/i;

/** The target that the words name, for a pod's name its address; and sentences that say what they stand for. @throws UsageError */
function targetOf(
  what: string,
  namespace: string | undefined,
  choices: InspectChoices,
  whole: ReadObjects,
): { readonly target: Target; readonly because: readonly string[] } {
  const pods = knownPods(whole);
  const target = parseTarget(withKnownNames(what, { ...whole, pods: pods.keys() }), namespace, whole.namespace);
  const podNamespace = namespace ?? whole.namespace ?? "default";
  const pod = target?.kind === "service" ? podMeant(what, target, podNamespace, whole) : podByName(target, whole, pods);
  const address = pod && choices.families.map((family) => addressOfPod(pod, family)).find((one) => one !== undefined);
  if (pod !== undefined && address !== undefined) {
    const where = pod.nodeName === "" ? "" : `, on ${pod.nodeName}`;
    return {
      target: { kind: "address", address, port: undefined, protocol: undefined },
      because: [`${pod.name} is the pod at ${pod.addresses.join(" and ")}${where}.`],
    };
  }
  if (PING.test(what))
    throw new UsageError(
      "a Service takes only TCP, UDP and SCTP to its ports, not ICMP",
      `To see what happens to it: kube-proxy trace --from pod --to ${what}`,
    );
  if (target !== undefined) return { target, because: [] };
  throw new UsageError(`"${what}" is not a Service, pod, address, port or name`, "See 'kube-proxy explain --help'.");
}

/** The pod of a name that could also be a Service's; a Service takes precedence, unless the name begins with `pod/`. @throws UsageError */
function podMeant(
  what: string,
  target: Extract<Target, { kind: "service" }>,
  namespace: string,
  whole: Objects,
): KnownPod | undefined {
  if (target.port !== undefined) return undefined;
  const [, named] = /^(?:pods?|po)\/(.+)$/i.exec(what) ?? [];
  if (named !== undefined) {
    const name = named.includes("/") ? named : `${namespace}/${named}`;
    const pods = knownPods(whole);
    const pod = pods.get(name);
    if (pod !== undefined) return pod;
    throw new UsageError(
      `no pod "${name}" is known: it is neither in an EndpointSlice, nor a Pod among the objects`,
      didYouMean(name, pods.keys(), "pod/"),
    );
  }
  const isService = whole.services.some((one) => `${one.namespace}/${one.name}` === target.service);
  return isService ? undefined : knownPods(whole).get(target.service);
}

/** The only pod of a bare name that no Service has. @throws UsageError if there are several */
function podByName(
  target: Target | undefined,
  { services }: Objects,
  pods: ReadonlyMap<string, KnownPod>,
): KnownPod | undefined {
  if (target?.kind !== "name" || target.port !== undefined || services.some(({ name }) => name === target.name)) {
    return undefined;
  }
  const name = onlyNamed("explain", target.name, [...pods.keys()]);
  return name === undefined ? undefined : pods.get(name);
}

const OTHER_KIND =
  /^(?:deploy(?:ment)?s?|daemonsets?|ds|statefulsets?|sts|jobs?|ing(?:ress(?:es)?)?|nodes?|no|ep|endpoints)\//;

/** @throws UsageError for the name of a Node or of a namespace, with what to ask instead. */
function refuseOtherNames(what: string, { nodes, services, serviceNotes = [] }: Objects): void {
  const [, kind = "", name = what] = /^(nodes?|no|namespaces?|ns)\/(.+)$/.exec(what) ?? [];
  if (!/^na|^ns/.test(kind) && nodes.some((node) => node.name === name))
    throw new UsageError(`${name} is a Node`, `To look from it: kube-proxy explain SERVICE --node ${name}`);
  const keys = [...new Set([...services, ...serviceNotes].map(objectKeyText))].toSorted();
  const [first, ...others] = keys.filter((key) => key.startsWith(`${name}/`));
  if (first === undefined || /^no/.test(kind) || keys.some((key) => key.endsWith(`/${name}`))) return;
  const hint = `For one of its Services: kube-proxy explain ${first}`;
  throw new UsageError(`${name} is a namespace, with ${someOf([first, ...others], SHOWN)}`, hint);
}

/** How many Services of a namespace an error names. */
const SHOWN = 5;

const REFUSED_HINT =
  "A proxy that knew it before keeps its last known good rules: on its node, explain --kernel asks the proxy which.";

/** @param whole for suggestions. @throws UsageError if nothing is found. */
function searched(
  cluster: ExplainedCluster,
  what: string,
  target: Target,
  whole: ReadObjects,
): Exclude<Search, { kind: "nothing" }> {
  const part = find(cluster, target);
  if (part.kind !== "nothing") return part;
  const meant = [...part.meant];
  // The Service exists, and the reason why it has no ports is the answer.
  if (meant.length === 0 && isKnownService(whole, part.wanted)) throw new UsageError(part.why);
  refuseOtherNames(what, whole);
  if (target.kind === "service") {
    const { service } = target;
    const refusal = refusedServices(whole.problems).get(service);
    if (refusal !== undefined) throw new UsageError(`Service ${service} is refused: ${refusal}`, REFUSED_HINT);
    const elsewhere = namesakes(service, servicesLike(target, whole));
    if (elsewhere.length > 0 && !elsewhere.includes(service)) {
      throw notThere(part.why, elsewhere.join(" or "));
    }
    // kubectl's names for other kinds.
    if (OTHER_KIND.test(service))
      throw new UsageError(`${service} is neither a Service nor a pod`, "Name the Service, or one of its pods.");
  }
  const nearest = nearestWord(part.wanted, meant.length > 0 ? meant : servicesLike(target, whole));
  // The word itself occurs more than once.
  const other = nearest === part.wanted ? undefined : nearest;
  if (part.why.startsWith("there is no Service")) throw notThere(part.why, keyOfName(other, whole) ?? other);
  throw new UsageError(part.why, other && `Did you mean ${other}?`);
}

/** In one line: what is not there, and what is. */
function notThere(why: string, meant: string | undefined): UsageError {
  const hint = meant === undefined ? "" : ` Did you mean ${meant}?`;
  return new UsageError(`${why.charAt(0).toUpperCase()}${why.slice(1)}.${hint}`);
}

/** `namespace/name` of the only Service with the name. */
function keyOfName(name: string | undefined, { services }: Objects): string | undefined {
  const [only, ...others] = services.filter((one) => one.name === name);
  return only === undefined || others.length > 0 ? undefined : objectKeyText(only);
}

/** Names that a word for a Service may be a misspelling of. */
function* servicesLike(target: Target, { services }: Objects): Generator<string, void> {
  if (target.kind !== "service" && target.kind !== "name") return;
  for (const { namespace, name, clusterIP } of services) {
    if (clusterIP === "" || clusterIP === "None") continue;
    yield `${namespace}/${name}`;
    if (target.kind === "name") yield name;
  }
}

/** Whether node ports answer at the loopback address that the user asked about. */
function loopbackWords(target: Target, servicePorts: readonly PortExplanation[]): string[] {
  if (target.kind !== "address" || !isLoopback(target.address)) return [];
  const own = servicePorts.filter(({ family }) => family === familyOf(target.address));
  return own.flatMap(({ frontends }) => frontends.flatMap(({ atLoopback }) => atLoopback ?? []));
}

/** The cluster with the change of `--what-if`. @throws UsageError */
async function explainedWith(
  wish: string,
  objects: Objects,
  servicePorts: readonly PortExplanation[],
  { choices, whole, read, found }: ExplainOptions & { readonly choices: InspectChoices; readonly whole: Objects },
  warn: (message: string) => void,
): Promise<ExplainedCluster> {
  const [, mode] = /^mode=(.*)$/.exec(wish) ?? [];
  if (mode !== undefined) {
    requireMode("--what-if mode=…", mode);
    const { config, families } = choicesAmong(whole, await read(found, mode));
    const { hostnameOverride } = choices.config;
    return await explainedCluster(objects, { ...config, hostnameOverride }, families, warn, choices);
  }
  const services = new Set(servicePorts.map(({ servicePort }) => servicePort.replace(/:[^:]*$/, "")));
  try {
    return await explainedCluster(withChange(objects, services, wish), choices.config, choices.families, warn, choices);
  } catch (error) {
    if (!(error instanceof WhatIfError)) throw error;
    const given = wish.slice(0, Math.max(wish.indexOf("="), 0)) || wish;
    throw new UsageError(error.message, didYouMean(given, error.known));
  }
}

async function readOptions({ values, positionals, form }: ReadLine<typeof EXPLAIN>) {
  const [what, ...more] = joinedKind(positionals);
  const hint = "See 'kube-proxy explain --help'.";
  if (what === undefined)
    throw new UsageError("explain needs to know what: a Service, an address, a pod, a port or a name", hint);
  if (/\s/.test(what.trim())) throw new UsageError(`explain needs one name or address, got "${what}"`, hint);
  if (more.length > 0) throw new UsageError(`explain takes one thing at a time, got "${more.join(" ")}" as well`, hint);
  if (values["all-nodes"] && values.node) throw new UsageError("--node and --all-nodes exclude each other");
  if (values["all-nodes"] && values["what-if"] !== undefined)
    throw new UsageError("--what-if is for one node: leave --all-nodes out");
  if (values.kernel && (values["all-nodes"] || values["what-if"] !== undefined))
    throw new UsageError("--kernel looks at this host: leave --all-nodes and --what-if out");
  const sysdump = await contextOf(values.dump ?? []);
  const { filename, kubeconfig, context } = values;
  const isElsewhere = filename !== undefined || kubeconfig !== undefined || context !== undefined;
  const node = values.node ?? values["hostname-override"] ?? sysdump?.node;
  const read = async (found: FoundConfiguration | undefined, mode = values.mode) =>
    await readChoices({ ...values, node, mode }, found);
  // Reports errors in flags before anything is read.
  await read(undefined);
  return {
    what,
    values,
    form: form === "json" ? ("json" as const) : ("text" as const),
    from: sysdump === undefined || isElsewhere ? values : sysdump.objects,
    /** From a sysdump. */
    found: sysdump?.configuration,
    /** Rules alone, about which nothing else is known. */
    dumps: sysdump === undefined ? (values.dump ?? []) : [],
    /** Reads the configuration, with the one found beside the objects. */
    read,
  };
}
