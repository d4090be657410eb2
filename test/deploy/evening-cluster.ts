/**
 * What `operator-evening.test.ts` runs kubectl against, as a process in the network namespace of the one node: the test API server, before
 * it what kubectl asks besides (discovery, the DaemonSet and its history), and a kubelet that keeps the DaemonSet's one pod running. Each
 * image is the same root file system: upstream's is not to be had here. Prints the address, and ends with its standard input.
 */
import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { request } from "node:https";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parse } from "yaml";
import { POD_TOKEN, POD_USER, startClusterServer } from "../apiserver/api-daemon.ts";
import { CONFIG_CONF, kubeconfigConf } from "../apiserver/kubeadm-files.ts";
import type { ApiObject } from "../apiserver/object-store.ts";
import { type Plural, RESOURCE_TYPES } from "../apiserver/resource-types.ts";
import { nodeProxierRole } from "../apiserver/test-api-server.ts";
import { examplesAsJson } from "../cli/run-command.ts";
import { type Image, inContainer } from "./image-under-test.ts";

type Json = Readonly<Record<string, unknown>>;

interface Template {
  readonly metadata: object;
  readonly spec: {
    readonly containers: readonly {
      readonly name: string;
      readonly image: string;
      readonly command: readonly string[];
    }[];
  };
}

/** Told by the test: the image's files and environment, and a folder for what the node keeps. */
const [folder = "", imageText = "{}", isPulledText = ""] = process.argv.slice(2);
const image = JSON.parse(imageText) as Image;
const PODS = { namespace: "kube-system", labels: { "k8s-app": "kube-proxy" } };
/** As kubeadm has it: reference operation.md §14.2. */
const UPSTREAM = "registry.k8s.io/kube-proxy:v1.37.0";

const server = await startClusterServer({ after() {} });
const proxierMay = nodeProxierRole(RESOURCE_TYPES);
server.switches.tokens = new Map([
  [POD_TOKEN, POD_USER],
  ["operator", "operator"],
]);
server.switches.isAllowed = (user, verb, plural) => user === "operator" || proxierMay(user, verb, plural);
const PLURALS: Readonly<Record<string, Plural>> = {
  Service: "services",
  EndpointSlice: "endpointslices",
  Node: "nodes",
};
for (const item of (JSON.parse(examplesAsJson()) as { items: (ApiObject & { kind: string })[] }).items) {
  const plural = PLURALS[item.kind];
  if (plural !== undefined) server.put(plural, item);
}
/** The limits of conntrack are the whole machine's. */
const config = CONFIG_CONF.replace("maxPerCore: null", "maxPerCore: 0")
  .replace("tcpCloseWaitTimeout: null", "tcpCloseWaitTimeout: 0s")
  .replace("tcpEstablishedTimeout: null", "tcpEstablishedTimeout: 0s");
const files = { "config.conf": config, "kubeconfig.conf": kubeconfigConf(server.url) };
server.put("configmaps", { metadata: { namespace: "kube-system", name: "kube-proxy" }, data: files });

const volume = (name: string, texts: Readonly<Record<string, string>>): string => {
  const path = join(folder, name);
  mkdirSync(path);
  for (const [file, text] of Object.entries(texts)) writeFileSync(join(path, file), text);
  return path;
};
const mounts = {
  "/var/lib/kube-proxy": volume("kube-proxy", files),
  "/run/xtables.lock": join(volume("lock", { "xtables.lock": "" }), "xtables.lock"),
  "/lib/modules": volume("modules", {}),
  "/run/secrets/kubernetes.io/serviceaccount": volume("account", {
    "ca.crt": server.authority.certificate,
    token: POD_TOKEN,
  }),
};

const checkout = new URL("../../", import.meta.url);
const own = parse(readFileSync(new URL("deploy/kubernetes/daemonset.yaml", checkout), "utf8")) as Json;
interface DaemonSet {
  readonly metadata: Json & { readonly generation: number };
  readonly spec: Json & { readonly template: Template };
  readonly status?: Json;
}

const [ownContainer] = (own as unknown as DaemonSet).spec.template.spec.containers;
const metadata = { uid: "ds", generation: 1, annotations: { "deprecated.daemonset.template.generation": "1" } };
// kubeadm's has no socket.
const containers = [{ name: "kube-proxy", image: UPSTREAM, command: ownContainer?.command.slice(0, 3) }];
let daemonSet = merged(own, {
  metadata,
  spec: { minReadySeconds: 0, template: { spec: { containers } } },
}) as DaemonSet;

/** What an apply of a strategic merge patch does, as far as DaemonSets need it: lists of objects by name or mountPath; null removes. */
function merged(target: unknown, patch: unknown): unknown {
  if (Array.isArray(patch)) return mergedList(Array.isArray(target) ? target : [], patch);
  if (typeof patch !== "object" || patch === null) return patch;
  const { $patch, ...fields } = patch as Json;
  const result: Record<string, unknown> = $patch === "replace" ? {} : { ...(target as Json | undefined) };
  for (const [key, value] of Object.entries(fields)) {
    if (key.startsWith("$")) continue;
    if (value === null) delete result[key];
    else result[key] = merged(result[key], value);
  }
  return result;
}

function mergedList(target: readonly unknown[], patch: readonly unknown[]): unknown[] {
  const keyOf = (item: unknown): unknown => {
    if (typeof item !== "object" || item === null) return undefined;
    return "mountPath" in item ? item.mountPath : "name" in item ? item.name : undefined;
  };
  if (patch.some((item) => keyOf(item) === undefined)) return [...patch];
  const result = [...target];
  for (const item of patch) {
    const at = result.findIndex((one) => keyOf(one) === keyOf(item));
    if (at < 0) result.push(merged({}, item));
    else result[at] = merged(result[at], item);
  }
  return result;
}

const revisions: Template[] = [];
const revisionOf = (template: Template) =>
  revisions.findIndex((one) => JSON.stringify(one) === JSON.stringify(template));
const history = () => ({
  kind: "ControllerRevisionList",
  apiVersion: "apps/v1",
  metadata: {},
  items: revisions.map((template, at) => ({
    metadata: {
      ...{ ...PODS, name: `kube-proxy-${at + 1}`, uid: `revision-${at + 1}` },
      ownerReferences: [{ apiVersion: "apps/v1", kind: "DaemonSet", name: "kube-proxy", uid: "ds", controller: true }],
    },
    data: { spec: { template: { ...template, $patch: "replace" } } },
    revision: at + 1,
  })),
});

let pod: { readonly child: ChildProcess; readonly name: string } | undefined;
let podCount = 0;

/** The process in the container: `unshare` waits for the one that it has started. */
const inside = ({ pid = 0 }: ChildProcess) => Number(readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim());

/** One generation: the old pod is told to end, the new one runs, and is there when it says that its rules are in. */
async function roll(generation: number, template: Template): Promise<void> {
  if (revisionOf(template) < 0) revisions.push(template);
  else revisions.push(...revisions.splice(revisionOf(template), 1));
  daemonSet = { ...daemonSet, status: statusOf(generation, 0) };
  if (pod !== undefined) {
    const { child, name } = pod;
    process.kill(inside(child), "SIGTERM");
    if (child.exitCode === null) await once(child, "exit");
    server.delete("pods", { metadata: { namespace: "kube-system", name } });
  }
  const [container] = template.spec.containers;
  if (container === undefined) throw new Error("no container");
  while (container.image !== UPSTREAM && !readFileSync(isPulledText, "utf8").includes(`${container.image}\n`))
    await sleep(100);
  const argv = container.command.map((word) => word.replace("$(NODE_NAME)", "node-a"));
  const [file, ...args] = inContainer(image, mounts, argv as [string, ...string[]]);
  const name = `kube-proxy-${++podCount}`;
  const child = spawn(file, args, { stdio: ["ignore", "pipe", "pipe"] });
  for (const stream of [child.stdout, child.stderr]) stream?.on("data", (text) => process.stderr.write(text));
  pod = { child, name };
  while ((await fetch("http://127.0.0.1:10256/readyz").catch(() => undefined))?.status !== 200) await sleep(100);
  writeFileSync(join(folder, name), String(inside(child)));
  server.put("pods", {
    metadata: { ...PODS, name },
    spec: { nodeName: "node-a", containers: [{ name: container.name, image: container.image }] },
    status: { phase: "Running" },
  });
  daemonSet = { ...daemonSet, status: statusOf(generation, 1) };
}

function statusOf(observedGeneration: number, there: number): Json {
  const counts = { updatedNumberScheduled: there, numberAvailable: there, numberReady: there };
  return { observedGeneration, desiredNumberScheduled: 1, currentNumberScheduled: 1, numberMisscheduled: 0, ...counts };
}

const resources = (
  groupVersion: string,
  ...list: readonly (readonly [plural: string, kind: string, isNamespaced: boolean])[]
) => ({
  kind: "APIResourceList",
  groupVersion,
  resources: list.map(([name, kind, namespaced]) => ({
    name,
    kind,
    namespaced,
    verbs: ["get", "list", "watch", "patch"],
  })),
});
const DISCOVERY: Readonly<Record<string, object>> = {
  "/api": { kind: "APIVersions", versions: ["v1"] },
  "/apis": {
    kind: "APIGroupList",
    groups: [
      {
        name: "apps",
        versions: [{ groupVersion: "apps/v1", version: "v1" }],
        preferredVersion: { groupVersion: "apps/v1", version: "v1" },
      },
    ],
  },
  "/api/v1": resources(
    "v1",
    ["pods", "Pod", true],
    ["nodes", "Node", false],
    ["services", "Service", true],
    ["configmaps", "ConfigMap", true],
  ),
  "/apis/apps/v1": resources(
    "apps/v1",
    ["daemonsets", "DaemonSet", true],
    ["controllerrevisions", "ControllerRevision", true],
  ),
};
const DAEMON_SETS = "/apis/apps/v1/namespaces/kube-system/daemonsets";

async function answer(asked: IncomingMessage, response: ServerResponse): Promise<void> {
  const { pathname, searchParams } = new URL(asked.url ?? "/", "http://localhost");
  const json = (value: object) => {
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify(value));
  };
  const whole = () => ({ apiVersion: "apps/v1", kind: "DaemonSet", ...daemonSet });
  const found = DISCOVERY[pathname];
  if (found !== undefined) return json(found);
  if (pathname.endsWith("/controllerrevisions")) return json(history());
  if (pathname === `${DAEMON_SETS}/kube-proxy`) {
    if (asked.method === "PATCH") {
      const before = JSON.stringify(daemonSet.spec);
      daemonSet = merged(daemonSet, JSON.parse(await textOf(asked))) as typeof daemonSet;
      if (JSON.stringify(daemonSet.spec) !== before) {
        const generation = daemonSet.metadata.generation + 1;
        daemonSet = { ...daemonSet, metadata: { ...daemonSet.metadata, generation } };
        rolling = rolling.then(() => roll(generation, daemonSet.spec.template));
      }
    }
    return json(whole());
  }
  if (pathname === DAEMON_SETS && searchParams.get("watch") === null)
    return json({ apiVersion: "apps/v1", kind: "DaemonSetList", metadata: { resourceVersion: "1" }, items: [whole()] });
  if (pathname === DAEMON_SETS) {
    response.writeHead(200, { "content-type": "application/json" });
    for (let last = ""; !response.destroyed; await sleep(100)) {
      const now = JSON.stringify({ type: "MODIFIED", object: whole() });
      if (now !== last) response.write(`${now}\n`);
      last = now;
    }
    return;
  }
  const { method } = asked;
  // kubectl keeps its token where there is no TLS.
  const headers = { ...asked.headers, authorization: "Bearer operator" };
  const passed = request(`${server.url}${asked.url}`, { method, headers, rejectUnauthorized: false }, (from) => {
    response.writeHead(from.statusCode ?? 502, from.headers);
    from.pipe(response);
  });
  asked.pipe(passed);
}

async function textOf(stream: IncomingMessage): Promise<string> {
  let text = "";
  for await (const part of stream.setEncoding("utf8")) text += String(part);
  return text;
}

let rolling = roll(1, daemonSet.spec.template);
await rolling;
const front = createServer((asked, response) => void answer(asked, response));
front.listen(0, "127.0.0.1");
await once(front, "listening");
const address = front.address();
const port = typeof address === "object" && address !== null ? address.port : 0;
process.stdout.write(`${JSON.stringify({ url: `http://127.0.0.1:${port}`, apiPort: server.port })}\n`);
process.stdin.resume().on("end", () => {
  if (pod !== undefined) process.kill(inside(pod.child), "SIGKILL");
  process.exit();
});
