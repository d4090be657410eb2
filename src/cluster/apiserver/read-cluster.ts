/** One reading of a cluster with the reader's own permissions, for commands that do not watch. */
import { systemClock } from "../../async/clock.ts";
import { jsonIn } from "../../logging/attempt.ts";
import { silentLogger } from "../../logging/logger.ts";
import { type ClusterRecords, projectObjects } from "../manifests/read-manifests.ts";
import type { NodeRecord } from "../objects.ts";
import { isJsonObject } from "../projection/fields.ts";
import { createApiClient } from "./connection/api-client.ts";
import { ApiError, isApiError } from "./connection/api-error.ts";
import type { ClientConfig } from "./connection/client-config.ts";
import type { Transport } from "./connection/transport.ts";
import { formatOrThrow } from "./watch/list-reader.ts";
import { CLUSTER_RESOURCES, nodeResource, type WatchedResource } from "./watch/resources.ts";

interface ReadClusterOptions {
  readonly config: ClientConfig;
  /** Parts of the User-Agent, as `createApiClient` takes them. */
  readonly version: string;
  readonly product: string;
  /** Called for each resource that could not be read and is dispensable. */
  readonly warn: (message: string) => void;
  /** Pods to ask for, `namespace/name`: a cluster has too many to read them all. @default none */
  readonly pods?: readonly string[];
  /** Read alone where the whole cluster may not be. @default none */
  readonly namespace?: string | undefined;
  /** The node whose proxy is asked for its configuration where no ConfigMap holds one. @default none is asked */
  readonly nodeAmong?: (nodes: readonly NodeRecord[]) => string | undefined;
}

/** What a cluster has, and kube-proxy's configuration: a ConfigMap's, else that which the node's proxy serves. */
interface ReadCluster extends ClusterRecords {
  readonly configuration: { readonly content: string; readonly where: string } | undefined;
}

interface Listed extends Pick<WatchedResource, "apiVersion" | "title" | "plural" | "path" | "selectors"> {
  readonly isNamespaced?: boolean;
  /** What is unknown without it; undefined: it is required. */
  readonly without: string | undefined;
}

/** Where kubeadm and this project's files have kube-proxy's configuration, and under which keys. */
const CONFIG_MAP: Listed = {
  ...{ apiVersion: "v1", title: "ConfigMap", plural: "configmaps", path: "/api/v1/namespaces/kube-system/configmaps" },
  selectors: { fieldSelector: "metadata.name=kube-proxy" },
  without: "kube-proxy's configuration is not known",
};
const CONFIG_KEYS = ["config.conf", "config"];

const [services, endpointSlices, serviceCIDRs] = CLUSTER_RESOURCES;
const nodes = nodeResource("");

const RESOURCES: readonly Listed[] = [
  // Those that no proxy serves as well: people ask about them.
  { ...services, selectors: {}, without: undefined },
  { ...endpointSlices, without: undefined },
  { ...nodes, selectors: {}, without: "zones and addresses of nodes are not known" },
  { ...serviceCIDRs, without: "the networks of cluster IPs are not known" },
];

/** One pod, as a list of one: a pod that is not there is no error then. @param pod `namespace/name` */
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
 * What the proxy of a node serves at its metrics port, through the API server, which connects to the node's address: nothing where
 * that port is on 127.0.0.1, as upstream has it and this program's files. Reference operation.md §9.2.
 */
const configzPath = (node: string): string => `/api/v1/nodes/${encodeURIComponent(node)}:10249/proxy/configz`;
/** A packet that a firewall drops has no answer. */
const CONFIGZ_MS = 3_000;

const PAGE_OBJECTS = "500";
const IDLE_MS = 30_000;
/** How often in a row the server may say when to come again; client-go's. */
const MAX_ASKED = 10;
/** Above what a kubectl does; there are a few requests in all. */
const QPS = 50;

/** @throws ApiError when Services or EndpointSlices cannot be read; ClientConfigError for unreadable credentials. */
export async function readCluster(options: ReadClusterOptions, signal: AbortSignal): Promise<ReadCluster> {
  const { pods = [] } = options;
  const client = createApiClient({ ...options, qps: QPS, burst: QPS, clock: systemClock, log: silentLogger });
  const transport = client.newTransport();
  const over = new AbortController();
  const until = AbortSignal.any([signal, over.signal]);
  try {
    await transport.checkFiles();
    const resources = [...RESOURCES, ...pods.map(podResource)];
    const refusals: string[] = [];
    const warn = (message: string) => void refusals.push(message);
    const [maps, ...lists] = await Promise.all([
      listOf(CONFIG_MAP, transport, { warn }, until),
      ...resources.map((resource) => listOf(resource, transport, options, until)),
    ]);
    const records = projectObjects(lists.flat(), "cluster", { keepsPods: true });
    const inMap = maps.flatMap(configurationIn)[0];
    const node = inMap === undefined ? options.nodeAmong?.(records.nodes) : undefined;
    const configuration = node === undefined ? inMap : await servedConfiguration(node, transport, signal);
    if (configuration === undefined) refusals.forEach(options.warn);
    return { ...records, configuration };
  } finally {
    // What still runs when one list has failed would keep the command from its end.
    over.abort();
    transport.close();
  }
}

async function listOf(
  resource: Listed,
  transport: Transport,
  { warn, namespace }: Pick<ReadClusterOptions, "warn" | "namespace">,
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
    // Servers before 1.33 do not know all of them.
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

/** The proxy's `/configz`; undefined where there is no such answer, which is the usual. */
async function servedConfiguration(
  node: string,
  transport: Transport,
  signal: AbortSignal,
): Promise<ReadCluster["configuration"]> {
  const limits = { idleMs: CONFIGZ_MS, answerMs: CONFIGZ_MS };
  const request = { verb: "get", resource: "nodes/proxy", method: "GET", path: configzPath(node), ...limits } as const;
  try {
    const { body } = await transport.send(request, signal);
    const served = jsonIn(await textOf(body));
    const found = isJsonObject(served) ? Object.values(served).find(isJsonObject) : undefined;
    // Releases before the versioned form serve names that no document has.
    return typeof found?.kind === "string"
      ? { content: JSON.stringify(found), where: `${node}'s /configz` }
      : undefined;
  } catch (error) {
    if (error instanceof ApiError) return undefined;
    throw error;
  }
}

async function textOf(body: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of body) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

async function allPages(resource: Listed, transport: Transport, signal: AbortSignal): Promise<object[]> {
  const read = (query: Readonly<Record<string, string>>) =>
    whenAsked(() => readPage(resource, query, transport, signal), signal);
  const objects: object[] = [];
  let token = "";
  do {
    try {
      const page = await read({ limit: PAGE_OBJECTS, ...(token !== "" && { continue: token }) });
      for (const object of page.objects) objects.push(object);
      token = page.token;
    } catch (error) {
      if (token === "" || !isApiError(error, "expired")) throw error;
      // The pages are older than the server's memory: everything at once cannot expire on the way.
      return (await read({})).objects;
    }
  } while (token !== "");
  return objects;
}

/** Asks again when the server says so, as kubectl does. */
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

async function readPage(
  { apiVersion, title: kind, plural, path, selectors }: Listed,
  query: Readonly<Record<string, string>>,
  transport: Transport,
  signal: AbortSignal,
): Promise<{ readonly objects: object[]; readonly token: string }> {
  const request = `list ${plural}`;
  const garbage = (detail: string) => new ApiError("garbage", { request, detail: `${transport.host}: ${detail}` });
  const given = String(new URLSearchParams({ ...selectors, ...query }));
  const response = await transport.send(
    { verb: "list", resource: plural, method: "GET", path: `${path}?${given}`, idleMs: IDLE_MS },
    signal,
  );
  formatOrThrow(response.contentType, garbage);
  const list = jsonIn(await textOf(response.body));
  if (!isJsonObject(list) || !Array.isArray(list.items)) throw garbage("the answer is no list: is this an API server?");
  const objects = list.items.map((item) => ({ ...item, apiVersion, kind }));
  const { continue: token } = isJsonObject(list.metadata) ? list.metadata : {};
  return { objects, token: typeof token === "string" ? token : "" };
}
