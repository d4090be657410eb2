/**
 * `node scripts/rehearsal.mjs NAME`: starts the bundled program, waits until its rules are in the kernel or have been
 * rejected, and ends it; then writes the code that it compiled, along with what was kept before, beside it. See
 * compiled-code.mjs, which gives it a network namespace of its own.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { setFlagsFromString } from "node:v8";
import { compiledCodeFile, compileProgram, runProgram } from "../dist/tools/cli/program-script.js";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const PROGRAM = join(root, "dist/bundle/kube-proxy.cjs");
const LIMIT_MS = 5_000;
/** After the rules: covers what follows the first sync. */
const MORE_MS = 300;
const SYNCED = /"SyncProxyRules complete" ipFamily="(?:IPv4|IPv6)"/g;

const NODE = {
  apiVersion: "v1",
  kind: "Node",
  metadata: { name: "node-a", uid: "n" },
  spec: { podCIDR: "10.244.0.0/24" },
  status: { addresses: [{ type: "InternalIP", address: "192.0.2.1" }] },
};
const SERVICE = {
  apiVersion: "v1",
  kind: "Service",
  metadata: { name: "web", namespace: "shop", uid: "s" },
  spec: {
    type: "NodePort",
    clusterIP: "10.96.0.10",
    clusterIPs: ["10.96.0.10"],
    ipFamilies: ["IPv4"],
    ipFamilyPolicy: "SingleStack",
    selector: { app: "web" },
    internalTrafficPolicy: "Cluster",
    externalTrafficPolicy: "Cluster",
    sessionAffinity: "None",
    ports: [{ name: "http", protocol: "TCP", port: 80, targetPort: 8080, nodePort: 30080 }],
  },
  status: { loadBalancer: {} },
};
const SLICE = {
  apiVersion: "discovery.k8s.io/v1",
  kind: "EndpointSlice",
  metadata: { name: "web-1", namespace: "shop", uid: "e", labels: { "kubernetes.io/service-name": "web" } },
  addressType: "IPv4",
  ports: [{ name: "http", protocol: "TCP", port: 8080 }],
  endpoints: [
    {
      addresses: ["10.244.0.5"],
      conditions: { ready: true, serving: true, terminating: false },
      nodeName: "node-a",
      targetRef: { kind: "Pod", name: "web-1", namespace: "shop" },
    },
  ],
};
const RANGES = {
  apiVersion: "networking.k8s.io/v1",
  kind: "ServiceCIDR",
  metadata: { name: "kubernetes", uid: "c" },
  spec: { cidrs: ["10.96.0.0/16"] },
};
const OBJECTS = { services: SERVICE, endpointslices: SLICE, nodes: NODE, servicecidrs: RANGES };

const [name = ""] = process.argv.slice(2);
const [mode, source] = name.split("-");
const folder = mkdtempSync(join(tmpdir(), "kpts-rehearsal-"));
const LOG = join(folder, "log");
// Compiled code must not be discarded before it is kept.
setFlagsFromString("--no-flush-bytecode");
spawnSync("ip", ["link", "set", "lo", "up"]);
// Does not hold up other users of iptables on this machine.
process.env.XTABLES_LOCKFILE = join(folder, "xtables.lock");

writeFileSync(
  join(folder, "config.yaml"),
  `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: ${mode}
clusterCIDR: 10.244.0.0/16
clientConnection:
  kubeconfig: ${join(folder, "kubeconfig")}
conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s }
`,
);
const server = source === "api" ? await serveObjects() : undefined;

const script = compileProgram(PROGRAM);
process.on("exit", () => {
  rmSync(folder, { recursive: true, force: true });
  setFlagsFromString("--flush-bytecode");
  const file = compiledCodeFile(PROGRAM);
  writeFileSync(`${file}.next`, script.createCachedData());
  renameSync(`${file}.next`, file);
  // A kernel that rejects everything ends the program: by then nearly all of a start has been compiled.
  process.exitCode = 0;
});
process.argv = [
  process.execPath,
  PROGRAM,
  "--config",
  join(folder, "config.yaml"),
  "--hostname-override=node-a",
  "-v=2",
];
process.argv.push("--log-file", LOG);
if (source === "manifests") process.argv.push("--manifests", join(root, "examples"));
runProgram(script, PROGRAM);
for (const untilMs = performance.now() + LIMIT_MS; performance.now() < untilMs && synced() < 2; ) {
  await sleep(20);
}
await sleep(MORE_MS);
process.kill(process.pid, "SIGTERM");
server?.close();
server?.closeAllConnections();

function synced() {
  return existsSync(LOG) ? (readFileSync(LOG, "utf8").match(SYNCED)?.length ?? 0) : 0;
}

/** As much of an API server as a start needs. */
async function serveObjects() {
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? "/", "http://server");
    const object = OBJECTS[pathname.split("/").find((part) => part in OBJECTS) ?? ""];
    response.setHeader("Content-Type", "application/json");
    if (request.method !== "GET" || object === undefined) return void response.writeHead(201).end("{}");
    object.metadata.resourceVersion = "7";
    if (searchParams.get("watch") === null) {
      const list = {
        apiVersion: object.apiVersion,
        kind: `${object.kind}List`,
        metadata: { resourceVersion: "7" },
        items: [object],
      };
      return void response.end(JSON.stringify(list));
    }
    const { apiVersion, kind } = object;
    const annotations = { "k8s.io/initial-events-end": "true" };
    const events = [
      { type: "ADDED", object },
      { type: "BOOKMARK", object: { apiVersion, kind, metadata: { resourceVersion: "7", annotations } } },
    ];
    response.write(`${events.map((event) => JSON.stringify(event)).join("\n")}\n`);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  writeFileSync(
    join(folder, "kubeconfig"),
    JSON.stringify({
      apiVersion: "v1",
      kind: "Config",
      clusters: [{ name: "c", cluster: { server: `http://127.0.0.1:${port}` } }],
      users: [{ name: "u", user: { token: "t" } }],
      contexts: [{ name: "x", context: { cluster: "c", user: "u" } }],
      "current-context": "x",
    }),
  );
  return server;
}
