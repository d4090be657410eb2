/** Reads a cluster once with the user's own permissions, for commands that do not watch. */
import { systemClock } from "../../../async/clock.ts";
import { jsonIn } from "../../../logging/attempt.ts";
import { silentLogger } from "../../../logging/logger.ts";
import type { ClusterRecords } from "../../../model/objects.ts";
import { isJsonObject } from "../../../model/projection/fields.ts";
import { projectObjects } from "../manifests/read-manifests.ts";
import { createApiClient } from "./connection/api-client.ts";
import { ApiError, isApiError } from "./connection/api-error.ts";
import type { ClientConfig } from "./connection/client-config.ts";
import type { Transport } from "./connection/transport.ts";
import { accepting } from "./formats/body-format.ts";
import { readListPage } from "./watch/list-reader.ts";
import { CLUSTER_RESOURCES, nodeResource, type WatchedResource } from "./watch/resources.ts";

interface ReadClusterOptions {
  readonly config: ClientConfig;
  /** Part of the User-Agent, as in `createApiClient`. */
  readonly version: string;
  readonly product: string;
  /** Called for each optional resource that could not be read. */
  readonly warn: (message: string) => void;
  /** Pods to read (`namespace/name`): a cluster has too many to read them all. @default none */
  readonly pods?: readonly string[];
  /** Read alone if reading the whole cluster is forbidden. @default none */
  readonly namespace?: string | undefined;
  /** Chooses the nodes whose proxies are asked for a configuration, first to last, if no ConfigMap has it. @default none */
  readonly nodesAmong?: (cluster: ClusterRecords) => readonly string[];
}

/** The objects of a cluster and kube-proxy's configuration: from a ConfigMap, otherwise from the node's proxy. */
interface ReadCluster extends ClusterRecords {
  readonly configuration: { readonly content: string; readonly where: string } | undefined;
}

interface Listed extends Pick<WatchedResource, "apiVersion" | "title" | "plural" | "path" | "selectors"> {
  readonly isNamespaced?: boolean;
  /** What is unknown without the resource; undefined if it is required. */
  readonly without: string | undefined;
}

/** Where kubeadm and this project's manifests keep kube-proxy's configuration, and under which keys. */
const CONFIG_MAP: Listed = {
  ...{ apiVersion: "v1", title: "ConfigMap", plural: "configmaps", path: "/api/v1/namespaces/kube-system/configmaps" },
  selectors: { fieldSelector: "metadata.name=kube-proxy" },
  without: "kube-proxy's configuration is not known",
};
const CONFIG_KEYS = ["config.conf", "config"];

const [services, endpointSlices, serviceCIDRs] = CLUSTER_RESOURCES;
const nodes = nodeResource("");

const RESOURCES: readonly Listed[] = [
  // Also Services that no proxy serves: people ask about them.
  { ...services, selectors: {}, without: undefined },
  { ...endpointSlices, without: undefined },
  { ...nodes, selectors: {}, without: "zones and addresses of nodes are not known" },
  { ...serviceCIDRs, without: "the networks of cluster IPs are not known" },
];

/** One pod, requested as a list, so that a missing pod is not an error. @param pod `namespace/name` */
function podResource(pod: string): Listed {
  const [namespace = "", name = ""] = pod.split("/");
  return {
    apiVersion: "v1",
    title: "Pod",
    plural: "pods",
    path: `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods`,
    selectors: { fieldSelector: `metadata.name=${name}` },
    without: "only pods that are endpoints of a Service are known by their names",
  };
}

/**
 * The metrics port of a node's proxy, through the API server, which connects to the node's address. That fails if the
 * port is bound to 127.0.0.1, the default of upstream and of this project's manifests. Reference operation.md §9.2.
 */
const configzPath = (node: string): string => `/api/v1/nodes/${encodeURIComponent(node)}:10249/proxy/configz`;
/** The timeout: a firewall may drop the packets. */
const CONFIGZ_MS = 3_000;

const PAGE_OBJECTS = "500";
const IDLE_MS = 30_000;
/** The most consecutive retries that the server may ask for (Retry-After); client-go's value. */
const MAX_ASKED = 10;
/** More than kubectl's limit; only a few requests are sent. */
const QPS = 50;

/** @throws ApiError if Services or EndpointSlices cannot be read; ClientConfigError if credentials cannot be read. */
export async function readCluster(options: ReadClusterOptions, signal: AbortSignal): Promise<ReadCluster> {
  const { pods = [] } = options;
  const client = createApiClient({ ...options, qps: QPS, burst: QPS, clock: systemClock, log: silentLogger });
  const transport = client.newTransport();
  const over = new AbortController();
  const until = AbortSignal.any([signal, over.signal]);
  try {
    await transport.checkFiles();
    const resources = [...RESOURCES, ...pods.map(podResource)];
    const refused = new Map<Listed, string>();
    const read = async (resource: Listed) =>
      await listOf(resource, transport, options.namespace, (why) => refused.set(resource, why), until);
    const [maps, ...lists] = await Promise.all([read(CONFIG_MAP), ...resources.map(read)]);
    const records = projectObjects(lists.flat(), "cluster", { keepsPods: true });
    const inMap = maps.flatMap(configurationIn)[0];
    const asked = inMap === undefined ? (options.nodesAmong?.(records) ?? []) : [];
    const served = await Promise.all(asked.map((node) => servedConfiguration(node, transport, signal)));
    const configuration = inMap ?? served.find((one) => one !== undefined);
    if (configuration !== undefined) refused.delete(CONFIG_MAP);
    refusalWords(refused, options.namespace).forEach(options.warn);
    return { ...records, configuration };
  } finally {
    // Requests still running after one list has failed would keep the command from exiting.
    over.abort();
    transport.close();
  }
}

/** One refusal as the server says it; several, of a user with few rights, in one line. */
function refusalWords(refused: ReadonlyMap<Listed, string>, namespace = ""): readonly string[] {
  const ofNamespace = [...refused.keys()].filter(({ isNamespaced }) => isNamespaced === true);
  if (ofNamespace.length === 0 || refused.size < 3) return [...refused.values()];
  const others = [...refused.keys()].filter((resource) => !ofNamespace.includes(resource));
  const titles = others.map(({ plural }) => plural).join(", ");
  const only = `only the ${ofNamespace.map(({ plural }) => plural).join(" and ")} of the namespace ${namespace} may be read`;
  return [others.length === 0 ? only : `${only}, and not ${titles}`];
}

async function listOf(
  resource: Listed,
  transport: Transport,
  namespace: string | undefined,
  warn: (message: string) => void,
  signal: AbortSignal,
): Promise<object[]> {
  try {
    return await allPages(resource, transport, signal);
  } catch (error) {
    if (resource.isNamespaced === true && namespace !== undefined && isApiError(error, "forbidden")) {
      const path = resource.path.replace(/\/(\w+)$/, `/namespaces/${encodeURIComponent(namespace)}/$1`);
      const own = await allPages({ ...resource, path }, transport, signal);
      warn(
        `${resource.plural} of the namespace ${namespace} alone may be read: whether others have the same addresses is not known`,
      );
      return own;
    }
    // Servers before 1.33 do not serve all resources.
    if (resource.without === undefined || !isApiError(error, "forbidden", "not_found")) throw error;
    warn(`${error.message}: ${resource.without}`);
    return [];
  }
}

function configurationIn(map: object): { readonly content: string; readonly where: string }[] {
  const data = "data" in map && isJsonObject(map.data) ? map.data : {};
  return CONFIG_KEYS.flatMap((key) => {
    const content = data[key];
    return typeof content === "string" ? [{ content, where: "the ConfigMap kube-system/kube-proxy" }] : [];
  });
}

/** The proxy's `/configz`; undefined if it does not respond, which is the usual case. */
async function servedConfiguration(
  node: string,
  transport: Transport,
  signal: AbortSignal,
): Promise<ReadCluster["configuration"]> {
  const limits = { idleMs: CONFIGZ_MS, answerMs: CONFIGZ_MS };
  const request = { verb: "get", resource: "nodes/proxy", method: "GET", path: configzPath(node), ...limits } as const;
  try {
    const { body } = await transport.send(request, signal);
    const parts: Buffer[] = [];
    for await (const part of body) parts.push(part);
    const served = jsonIn(Buffer.concat(parts).toString());
    const found = isJsonObject(served) ? Object.values(served).find(isJsonObject) : undefined;
    // Releases before the versioned form use internal field names that appear in no configuration file.
    return typeof found?.kind === "string"
      ? { content: JSON.stringify(found), where: `${node}'s /configz` }
      : undefined;
  } catch (error) {
    if (error instanceof ApiError) return undefined;
    throw error;
  }
}

async function allPages(resource: Listed, transport: Transport, signal: AbortSignal): Promise<object[]> {
  const { apiVersion, title: kind } = resource;
  let objects: object[] = [];
  const take = (_how: string, item: unknown): string => {
    objects.push({ ...Object(item), apiVersion, kind });
    return "";
  };
  const common = { resource, transport, cache: { take }, accept: accepting(false), idleMs: IDLE_MS };
  const read = (query: Readonly<Record<string, string>>) =>
    whenAsked(() => readListPage({ ...common, query }, signal), signal);
  let token = "";
  do {
    try {
      token = (await read({ limit: PAGE_OBJECTS, continue: token })).continueToken;
    } catch (error) {
      if (token === "" || !isApiError(error, "expired")) throw error;
      // The server has forgotten the version of these pages. A list without pages cannot expire halfway.
      objects = [];
      await read({});
      return objects;
    }
  } while (token !== "");
  return objects;
}

/** Retries when the server asks for it, as kubectl does. */
async function whenAsked<T>(ask: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (let asked = 0; ; asked++) {
    try {
      return await ask();
    } catch (error) {
      const waitMs = isApiError(error) ? error.facts.retryAfterMs : undefined;
      if (waitMs === undefined || asked === MAX_ASKED || signal.aborted) throw error;
      await systemClock.sleep(waitMs, signal);
    }
  }
}
