/** The program as a Windows service under Wine: its service control manager starts it, asks it, and stops it. */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { execProcess } from "../../src/kernel/process.ts";
import {
  programCommand,
  serviceControl,
  WineProcess,
  windowsPath,
  windowsProgram,
} from "../../testkit/wine/wine-host.ts";
import { assertEnded, get, until } from "./wine-support.ts";
import { answerAt, given, listen } from "./wine-userspace.ts";

const NAME = "kube-proxy";
const HEALTHZ = "127.0.0.1:22356";
const POD = "10.180.0.21";

const OBJECTS = [
  {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: "web" },
    spec: { clusterIP: "10.96.1.1", ports: [{ port: 80 }] },
  },
  {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { name: "web-1", labels: { "kubernetes.io/service-name": "web" } },
    addressType: "IPv4",
    ports: [{ port: 8080 }],
    endpoints: [{ addresses: [POD] }],
  },
];

/** @param folder for files. */
export async function serviceStartsAndStops(t: TestContext, folder: string): Promise<void> {
  assert.equal((await execProcess("ip", ["address", "add", `${POD}/32`, "dev", "lo"])).status, 0);
  await listen(t, POD);
  const manifests = join(folder, "service manifests");
  mkdirSync(manifests);
  writeFileSync(join(manifests, "web.json"), JSON.stringify({ apiVersion: "v1", kind: "List", items: OBJECTS }));
  const config = join(folder, "service.conf");
  const configure = (settings: object): void =>
    writeFileSync(
      config,
      JSON.stringify({
        apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
        kind: "KubeProxyConfiguration",
        mode: "userspace",
        healthzBindAddress: HEALTHZ,
        metricsBindAddress: "127.0.0.1:22349",
        ...settings,
      }),
    );
  configure({});
  const logPath = join(folder, "service.log");
  const log = () => (existsSync(logPath) ? readFileSync(logPath, "utf8") : "");
  const args = [
    "--windows-service",
    `--config=${windowsPath(config)}`,
    `--manifests=${windowsPath(manifests)}`,
    `--log-file=${windowsPath(logPath)}`,
  ];
  const hasState = (state: string) => async () =>
    assert.match(await serviceControl("query", NAME), new RegExp(`STATE +: \\d +${state}`));

  // That of a run which was killed would be started in its place.
  await serviceControl("delete", NAME);
  await serviceControl("create", NAME, "binPath=", programCommand(args));
  t.after(() => serviceControl("delete", NAME));
  await serviceControl("start", NAME);
  await until("the service to run", hasState("RUNNING"), log);
  const answers = async () => assert.equal(await answerAt("10.96.1.1", 80), POD);
  await until("an answer", answers, log);
  await until("good health", async () => assert.match(await get(`http://${HEALTHZ}/healthz`), /"healthy":true/), log);

  await serviceControl("stop", NAME);
  await until("the service to stop", hasState("STOPPED"), log);
  assert.match(await serviceControl("query", NAME), /WIN32_EXIT_CODE +: 0 /);
  assert.deepEqual(given(), ["10.96.0.10"], "addresses are given back");
  for (const line of [/Running kube-proxy as a Windows service!/, /"Service stopping"/, /signal="service stop"/]) {
    assert.match(log(), line);
  }

  configure({ windowsPriorityClass: "ABOVE_NORMAL_PRIORITY_CLASS" });
  await serviceControl("start", NAME);
  await until("an answer after another start", answers, log);
  assert.match(log(), /"Set the priority class" class="ABOVE_NORMAL_PRIORITY_CLASS"/);
  configure({});
  // Wine's manager does not notice that a process has ended.
  const isToEnd = async () =>
    assert.match(log(), /"command failed" err="content of the proxy server's configuration file was updated"/);
  await until("the end to be said", isToEnd, log);
  await until("the process to end", async () => assert.rejects(get(`http://${HEALTHZ}/healthz`)), log);
}

/** Where nothing waits for the process. Wine takes ten seconds to say so, and takes it for any service that is started meanwhile. */
export async function serviceFailsAlone(folder: string): Promise<void> {
  const output = join(folder, "no-service.log");
  const alone = new WineProcess({ ...windowsProgram, args: ["--windows-service"], output });
  await assertEnded(alone, 1);
  assert.match(alone.log, /failed os init: the service control manager did not start this process/);
}
