/** Where the commands that look at a node get objects: from manifests, or from a cluster with the user's own permissions. */
import { existsSync } from "node:fs";
import { stat } from "node:fs/promises";
import { homedir } from "node:os";
import { delimiter, join } from "node:path";
import { readManifests, readManifestText } from "../../agent/cluster/manifests/read-manifests.ts";
import { CURRENT_RELEASE } from "../../contract/config/release.ts";
import { nodeNameIn } from "../../contract/inspect/offline-node.ts";
import { isObject, listOf, textOf } from "../../kernel/nftables/json.ts";
import { silentLogger } from "../../logging/logger.ts";
import { formatManifestProblem } from "../../model/manifest-problem.ts";
import type { ClusterRecords, NodeRecord } from "../../model/objects.ts";
import type { StandingPort, WithStanding } from "../../model/standing-ports.ts";
import { DEFAULT_INSPECT_SOCKET, programIdentity, userAgentProduct } from "../../program/program-identity.ts";
import { safe } from "../explain/safe-text.ts";
import { refusedServices, standingIn } from "../explain/standing.ts";
import { isStandardInput, readInputText, refusalText } from "./bounded-input.ts";
import { chosenNode } from "./chosen-node.ts";
import { askIfThere } from "./inspect-socket-client.ts";
import { type Output, UsageError } from "./output.ts";
import type { OptionValues } from "./subcommand-options.ts";

/** Flags that say where the objects come from. */
export const OBJECTS_OPTIONS = {
  "-f, --filename DIR|FILE|-...": "manifests: Services, EndpointSlices, Nodes; - reads standard input (repeatable)",
  "--kubeconfig FILE": "without -f, the cluster to ask (default: $KUBECONFIG, ~/.kube/config, or the pod's own)",
  "--context NAME": "the context in it (default: the current one)",
};

/** What was given for {@link OBJECTS_OPTIONS}. */
export interface ObjectsChoice extends Partial<OptionValues<typeof OBJECTS_OPTIONS>> {
  /** Overrides any other configuration. */
  readonly config?: string | undefined;
  readonly node?: string | undefined;
  readonly "hostname-override"?: string | undefined;
  readonly "all-nodes"?: boolean | undefined;
  /** Of the node that a sysdump is of. @default not known */
  readonly decided?: Decided | undefined;
}

/** What a daemon has decided by itself. */
type Decided = Pick<ClusterRecords, "leftOut"> & WithStanding;

export interface ReadObjects extends ClusterRecords, WithStanding {
  /** The namespace of the kubeconfig's context, if a cluster was read and the context has one. */
  readonly namespace?: string | undefined;
  /** kube-proxy's configuration, if one was found. */
  readonly configuration?: FoundConfiguration | undefined;
  /** The user may not read the cluster's Nodes, which was said: the node is one that the slices name. @default false */
  readonly lacksNodes?: boolean;
}

/** A KubeProxyConfiguration that was not given with `--config`. */
export interface FoundConfiguration {
  readonly content: string;
  /** In words, for the first line of an answer. */
  readonly where: string;
}

/** What a command needs from a cluster in particular. */
interface ClusterInterest {
  /** Names of pods, `namespace/name`, besides those that are endpoints. */
  readonly pods?: readonly string[];
  /** Suffices if the user may not read the whole cluster. */
  readonly namespace?: string | undefined;
  /** Whether the objects serve only to find pods, not to plan rules. @default false */
  readonly isForPods?: boolean;
  /** The socket of a daemon on this host. @default the usual one */
  readonly socket?: string;
  /** Whether the rules in this node's kernel are looked at, so that a daemon here is asked even about objects in files. @default false */
  readonly isOfKernel?: boolean;
}

/** Reads objects and reports each problem. @throws UsageError if nothing can be read. */
export async function readObjects(
  choice: ObjectsChoice,
  output: Output,
  input: NodeJS.ReadableStream,
  interest: ClusterInterest = {},
): Promise<ReadObjects> {
  const { filename, kubeconfig, context, config, node = choice["hostname-override"] } = choice;
  const tell = (line: string) => output.err(safe(`${line}\n`));
  await output.progress?.({ what: "reading the objects" });
  if (filename !== undefined) {
    if (kubeconfig !== undefined || context !== undefined) {
      throw new UsageError("-f excludes --kubeconfig and --context");
    }
    const objects = await readInput(filename, input, tell);
    const decided = interest.isOfKernel === true ? await decidedHere(objects, interest.socket) : choice.decided;
    return { ...objects, ...decided };
  }
  const isConfigured = config === undefined && interest.isForPods !== true;
  const isOfAll = choice["all-nodes"] === true;
  const nodesAmong = ({ nodes, endpointSlices }: ClusterRecords) =>
    isOfAll ? someNodes(nodes) : [nodeSeenFrom(nodes, endpointSlices, node) ?? []].flat();
  const cluster = await readFromCluster(choice, interest, isConfigured ? nodesAmong : undefined, (message) =>
    tell(`warning: ${forReaders(message)}`),
  );
  tellProblems(cluster, tell);
  const own = isConfigured ? await configurationHere(node, cluster.nodes, interest.socket) : undefined;
  const configuration = own ?? cluster.configuration;
  const decided = interest.isForPods === true ? {} : await decidedHere(cluster, interest.socket);
  const whole = { ...cluster, ...decided };
  if (configuration === undefined || !isOfAll || configuration.where.startsWith("the ConfigMap")) {
    return { ...whole, configuration };
  }
  return { ...whole, configuration: { ...configuration, where: `${configuration.where}, taken for all Nodes` } };
}

/** The configuration of the daemon on this host, if it serves the chosen node of the cluster. */
async function configurationHere(
  node: string | undefined,
  nodes: readonly NodeRecord[],
  socket: string = DEFAULT_INSPECT_SOCKET,
): Promise<FoundConfiguration | undefined> {
  // Where another program answers, or an older daemon, the cluster's configuration counts.
  const found = existsSync(socket) ? await askIfThere(socket, "/configuration") : undefined;
  const name = isObject(found) ? found.hostnameOverride : undefined;
  const isMeant = (node ?? name) === name && nodes.some((one) => one.name === name);
  return isMeant ? { content: JSON.stringify(found), where: "the daemon here" } : undefined;
}

/** What the daemon on this host has decided by itself, if there is one. */
async function decidedHere({ problems }: ClusterRecords, socket: string = DEFAULT_INSPECT_SOCKET): Promise<Decided> {
  if (!existsSync(socket)) return {};
  const decided = decidedIn(await askIfThere(socket, "/status"));
  if (decided.standing === undefined) return decided;
  const { node, ports } = decided.standing;
  const more: StandingPort[] = [];
  for (const [service, why] of refusedServices(problems))
    more.push(...standingIn(await askIfThere(socket, `/ports?${new URLSearchParams({ service })}`), why));
  return { ...decided, standing: { node, ports: [...ports, ...more] } };
}

/** What a daemon has decided by itself. @param status its answer to `/status`, perhaps of another version. */
export function decidedIn(status: unknown): Decided {
  const node = isObject(status) ? textOf(status.node) : undefined;
  if (!isObject(status) || node === undefined) return {};
  const families = listOf(status.families).filter(isObject);
  const ports = families.flatMap(({ refused }) => standingIn(refused));
  return { leftOut: leftOutIn(status), standing: { node, ports } };
}

/** The endpoints that a daemon leaves out. @param status its answer to `/status`, perhaps of another version. */
export function leftOutIn(status: unknown): ClusterRecords["leftOut"] {
  const node = isObject(status) ? textOf(status.node) : undefined;
  if (!isObject(status) || node === undefined) return undefined;
  const ports = new Map<string, Map<string, string>>();
  for (const one of listOf(status.families).flatMap((family) => (isObject(family) ? listOf(family.leftOut) : []))) {
    if (!isObject(one)) continue;
    const [port, endpoint, why] = [textOf(one.servicePort), textOf(one.endpoint), textOf(one.why)];
    if (port === undefined || endpoint === undefined || why === undefined) continue;
    ports.set(port, (ports.get(port) ?? new Map<string, string>()).set(endpoint, why));
  }
  return { node, ports };
}

/** Drops advice that suits a daemon's permissions, but is too much for a person's. */
const forReaders = (message: string): string =>
  message
    .replace(": bind the ClusterRole system:node-proxier to this user", "")
    .replace(": check clientConnection.kubeconfig", "");

async function readFromCluster(
  { kubeconfig, context }: ObjectsChoice,
  { pods = [], namespace }: ClusterInterest,
  nodesAmong: ((cluster: ClusterRecords) => readonly string[]) | undefined,
  warn: (message: string) => void,
): Promise<ReadObjects> {
  const { ApiError, ClientConfigError, loadClientConfig, readCluster } = await import(
    "../../agent/cluster/apiserver/index.ts"
  );
  const paths = kubeconfig === undefined ? defaultKubeconfigs(process.env) : [kubeconfig];
  if (paths.every((path) => path === "") && process.env.KUBERNETES_SERVICE_HOST === undefined) {
    throw new UsageError(
      "there is nothing to read: give manifests with -f, or the cluster with --kubeconfig",
      "There is no kubeconfig in $KUBECONFIG or ~/.kube/config.",
    );
  }
  try {
    const config = await loadClientConfig({ kubeconfig: paths, master: "", context, log: silentLogger });
    const product = userAgentProduct(programIdentity());
    const options = {
      ...{ config, version: CURRENT_RELEASE.version, product, warn, pods },
      namespace: namespace ?? config.namespace,
      ...(nodesAmong && { nodesAmong }),
    };
    const cluster = await readCluster(options, new AbortController().signal);
    return { ...cluster, namespace: config.namespace, lacksNodes: cluster.nodes.length === 0 };
  } catch (error) {
    if (!(error instanceof ApiError || error instanceof ClientConfigError)) throw error;
    const hint = "The right to list Services and EndpointSlices of its namespace is enough for one Service.";
    throw new UsageError(forReaders(error.message), "code" in error && error.code === "forbidden" ? hint : undefined);
  }
}

/** The name of the node to look from. @throws UsageError for a node that is not among the Nodes */
function nodeSeenFrom(
  nodes: readonly NodeRecord[],
  slices: ClusterRecords["endpointSlices"],
  node: string = "",
): string | undefined {
  const isKnown = nodes.length + slices.length > 0 || node !== "";
  return isKnown ? nodeNameIn(nodes, chosenNode(nodes, { hostnameOverride: node }, { slices }).config) : undefined;
}

/** How many proxies are asked for a configuration that is taken for all. */
const ASKED_NODES = 8;

/** The Nodes whose proxies are asked, those without taints first. */
function someNodes(nodes: readonly NodeRecord[]): readonly string[] {
  const byTaints = nodes.toSorted(
    (one, other) => Math.min(one.taintKeys.length, 1) - Math.min(other.taintKeys.length, 1),
  );
  return byTaints.slice(0, ASKED_NODES).map(({ name }) => name);
}

/**
 * The kubeconfigs that kubectl would read, without missing ones.
 *
 * @param separator between paths in `KUBECONFIG`. @default the platform's: `;` on Windows
 */
export function defaultKubeconfigs(env: NodeJS.ProcessEnv, separator: string = delimiter): readonly string[] {
  const given = (env.KUBECONFIG ?? "").split(separator).filter((path) => path !== "");
  const candidates = given.length > 0 ? given : [join(homedir(), ".kube", "config")];
  return candidates.filter((path) => existsSync(path));
}

/**
 * Reads all inputs. Reports each problem separately, and uses everything else.
 *
 * @throws UsageError if an input cannot be read, or no object in them can be used.
 */
async function readInput(
  paths: readonly string[],
  input: NodeJS.ReadableStream,
  tell: (line: string) => void,
): Promise<ClusterRecords> {
  if (paths.filter(isStandardInput).length > 1) {
    throw new UsageError("-f - was given more than once: standard input can be read only once");
  }
  const parts = await Promise.all(paths.map((path) => readOne(path, input)));
  const cluster: ClusterRecords = {
    services: parts.flatMap(({ services }) => services),
    endpointSlices: parts.flatMap(({ endpointSlices }) => endpointSlices),
    nodes: parts.flatMap(({ nodes }) => nodes),
    serviceCIDRs: parts.flatMap(({ serviceCIDRs }) => serviceCIDRs),
    problems: parts.flatMap(({ problems }) => problems),
    pods: parts.flatMap(({ pods = [] }) => pods),
    serviceNotes: parts.flatMap(({ serviceNotes = [] }) => serviceNotes),
  };
  tellProblems(cluster, tell);
  const { services, endpointSlices, nodes, serviceNotes = [] } = cluster;
  if (services.length + endpointSlices.length + nodes.length + serviceNotes.length === 0) {
    const where = paths.map((path) => (isStandardInput(path) ? "standard input" : path)).join(", ");
    throw new UsageError(
      cluster.problems.length === 0
        ? `there is no Service, EndpointSlice or Node in ${where}`
        : `no Service, EndpointSlice or Node in ${where} can be used`,
    );
  }
  return cluster;
}

function tellProblems({ problems }: ClusterRecords, tell: (line: string) => void): void {
  for (const problem of problems) tell(`${problem.severity}: ${formatManifestProblem(problem)}`);
}

async function readOne(path: string, input: NodeJS.ReadableStream): Promise<ClusterRecords> {
  if (path === "") throw new UsageError("-f needs the name of a folder or a file, got an empty one");
  try {
    const found = isStandardInput(path) ? undefined : await stat(path);
    if (found?.isFile() || found?.isDirectory()) return await readManifests(path, { keepsPods: true });
    // Or a pipe, as the shell makes for `<(kubectl get …)`.
    const name = found === undefined ? "standard input" : path;
    return await readManifestText(await readInputText(path, input), name, { keepsPods: true });
  } catch (error) {
    throw new UsageError(`cannot read the manifests in ${path}: ${refusalText(error)}`);
  }
}
