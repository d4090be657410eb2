/** Userspace mode under Wine: a configuration file and a kubeconfig, service addresses by netsh, real clients and endpoints. */
import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { connect, createServer, type Server } from "node:net";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { execProcess } from "../../src/kernel/process.ts";
import { programData, WineProcess, windowsPath, windowsProgram } from "../../testkit/wine/wine-host.ts";
import { node, service, serviceCidr, slice } from "../apiserver/example-objects.ts";
import { TestApiServer } from "../apiserver/test-api-server.ts";
import { assertEnded, get, until } from "./wine-support.ts";

/** In the place of `vEthernet (HNS Internal NIC)`: Linux has no names with blanks. */
export const SERVICE_INTERFACE = "nic-s";
const [HEALTHZ, METRICS] = ["127.0.0.1:22256", "127.0.0.1:22249"];
const LEDGER = join(programData, "kube-proxy", "service-addresses.json");
/** Of pods: addresses of this namespace. */
const [POD_1, POD_2] = ["10.180.0.1", "10.180.0.2"];

async function ip(...words: readonly string[]): Promise<void> {
  const { status, stderr } = await execProcess("ip", words);
  assert.equal(status, 0, stderr);
}

/** Tells each client its own address and ends. */
export function listen(t: TestContext, address: string): Promise<Server> {
  const server = createServer((socket) => socket.end(address));
  t.after(() => server.close());
  return new Promise((resolve) => server.listen(8080, address, () => resolve(server)));
}

/** What a client at the address gets. Rejects when it is not served. */
export function answerAt(address: string, port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = "";
    const socket = connect(port, address);
    socket.setTimeout(3_000, () => socket.destroy(new Error(`no answer at ${address}:${port}`)));
    socket.on("data", (data) => (text += String(data)));
    socket.on("error", reject);
    socket.on("end", () => resolve(text));
  });
}

/** What a datagram to the address is answered. */
async function echoAt(address: string, port: number): Promise<string> {
  const socket = createSocket("udp4");
  try {
    const answer = once(socket, "message", { signal: AbortSignal.timeout(3_000) });
    socket.send("hello", port, address);
    const [data] = await answer;
    return String(data);
  } finally {
    socket.close();
  }
}

/** What the interface has been given. */
export function given(): readonly string[] {
  const own = networkInterfaces()[SERVICE_INTERFACE] ?? [];
  return own
    .map(({ address }) => address)
    .filter((address) => !/^(?:169\.254|fe80)/.test(address))
    .sort();
}

const kubeconfig = (server: string, files: string): string =>
  JSON.stringify({
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: "c", cluster: { server, "certificate-authority": `${files}\\ca.crt` } }],
    users: [{ name: "u", user: { tokenFile: `${files}\\token` } }],
    contexts: [{ name: "x", context: { cluster: "c", user: "u" } }],
    "current-context": "x",
  });

const configuration = (files: string): string => `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: userspace
clientConnection:
  kubeconfig: ${files}\\kubeconfig.conf
hostnameOverride: win-1
healthzBindAddress: ${HEALTHZ}
metricsBindAddress: ${METRICS}
iptables:
  syncPeriod: 2s
  minSyncPeriod: 0s
`;

/** Puts a configuration file and what it names into a folder with blanks. @returns the folder, as Windows has it. */
function writeFiles(folder: string, server: TestApiServer): string {
  const files = join(folder, "my settings");
  mkdirSync(files);
  const seen = windowsPath(files);
  writeFileSync(join(files, "ca.crt"), server.authority.certificate);
  writeFileSync(join(files, "token"), "token-1");
  writeFileSync(join(files, "kubeconfig.conf"), kubeconfig(server.url, seen));
  writeFileSync(join(files, "config.conf"), configuration(seen));
  return seen;
}

const podSlice = (index: number, addresses: readonly string[], ports: readonly object[]) => ({
  ...slice(index),
  endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready: true } })),
  ports,
});

const HTTP = [{ name: "http", protocol: "TCP", port: 8080 }];
const ECHO = [{ name: "echo", protocol: "UDP", port: 5353 }];

/** @param folder for files. */
export async function userspaceFollowsApiServer(t: TestContext, folder: string): Promise<void> {
  for (const address of [POD_1, POD_2]) await ip("address", "add", `${address}/32`, "dev", "lo");
  await Promise.all([listen(t, POD_1), listen(t, POD_2)]);
  const echo = createSocket("udp4");
  t.after(() => echo.close());
  echo.on("message", (data, { address, port }) => echo.send(`${data} from ${POD_1}`, port, address));
  await new Promise<void>((resolve) => echo.bind(5353, POD_1, resolve));

  const server = await TestApiServer.start();
  t.after(() => server.close());
  server.switches.tokens = new Map([["token-1", "system:node-proxier"]]);
  server.put("nodes", node("win-1", "169.254.2.1"));
  server.put("servicecidrs", serviceCidr());
  const web = service(1, { type: "NodePort", ports: [{ name: "http", protocol: "TCP", port: 80, nodePort: 30180 }] });
  server.put(
    "services",
    web,
    service(2, { ports: [{ name: "echo", protocol: "UDP", port: 53 }] }),
    service(3),
    service(4),
  );
  const slices = [podSlice(1, [POD_1, POD_2], HTTP), podSlice(2, [POD_1], ECHO), podSlice(3, [POD_2], HTTP)];
  server.put("endpointslices", ...slices, podSlice(4, [POD_2], HTTP));

  const files = writeFiles(folder, server);
  const start = () => {
    const run = new WineProcess({
      ...windowsProgram,
      args: ["--config", `${files}\\config.conf`],
      env: { INTERFACE_TO_ADD_SERVICE_IP: SERVICE_INTERFACE },
      output: join(folder, "userspace.log"),
    });
    t.after(() => run.kill());
    return run;
  };
  const run = start();
  const log = () => run.log;
  const has = (addresses: readonly string[]) => async () => assert.deepEqual(given(), addresses);

  const all = ["10.96.0.1", "10.96.0.2", "10.96.0.3", "10.96.0.4"];
  await until("service addresses", has(all), log);
  const heard = new Set<string>();
  const hear = async () => {
    heard.add(await answerAt("10.96.0.1", 80));
    assert.deepEqual([...heard].sort(), [POD_1, POD_2]);
  };
  await until("both endpoints", hear, log);
  assert.equal(await answerAt("10.96.0.3", 80), POD_2);
  assert.match(await answerAt("169.254.2.1", 30180), /^10\.180\.0\./);
  assert.equal(await echoAt("10.96.0.2", 53), `hello from ${POD_1}`);
  await until("good health", async () => assert.match(await get(`http://${HEALTHZ}/healthz`), /"healthy":true/), log);
  assert.equal(await get(`http://${METRICS}/proxyMode`), "userspace");
  const counted = (await get(`http://${METRICS}/metrics`)).match(/^kubeproxy_userspace_connections_total.*$/gm) ?? [];
  assert.match(counted.join("\n"), /protocol="tcp"[^}]*\} [1-9]/);

  server.delete("services", service(4));
  await until("a service to go", has(all.slice(0, 3)), log);
  await ip("address", "delete", "10.96.0.1/32", "dev", SERVICE_INTERFACE);
  await until("an address that another program took away", has(all.slice(0, 3)), log);
  await until("its service", async () => assert.match(await answerAt("10.96.0.1", 80), /^10\./), log);
  await until("the list of addresses", async () => assert.ok(existsSync(LEDGER)), log);

  assert.doesNotMatch(run.log, /kernelspace/, "nothing is looked for in HNS");

  await run.shutDown();
  await assertEnded(run);
  assert.deepEqual([given(), existsSync(LEDGER)], [[], false], "all is given back");
  assert.match(run.log, /Stopping; accepting no new connections.*CTRL_SHUTDOWN_EVENT/);

  // As after a power cut: the program is gone, its addresses are there.
  await ip("address", "add", "10.96.0.9/32", "dev", SERVICE_INTERFACE);
  await ip("address", "add", "10.96.0.10/32", "dev", SERVICE_INTERFACE);
  writeFileSync(LEDGER, JSON.stringify({ "10.96.0.9": SERVICE_INTERFACE }));
  const words = {
    ...windowsProgram,
    args: ["--cleanup", "--proxy-mode=userspace"],
    output: join(folder, "cleanup-userspace.log"),
  };
  const cleanUp = new WineProcess(words);
  await assertEnded(cleanUp);
  assert.deepEqual([given(), existsSync(LEDGER)], [["10.96.0.10"], false], "another program's address stays");
}
