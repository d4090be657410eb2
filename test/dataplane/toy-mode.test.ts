/**
 * A mode is one folder and its name in the registry: a copy of the checkout gets a toy mode, which prints what it would do,
 * and everything that depends on modes has it.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { after, before, describe, type TestContext, test } from "node:test";
import { promisify } from "node:util";
import { NetworkNamespace } from "../../testkit/net/network-namespace.ts";
import { newRunName } from "../../testkit/net/run-name.ts";
import { netnsSkip } from "../../testkit/support/netns.ts";
import { ProxyDaemon } from "../../testkit/support/proxy-daemon.ts";
import { type Ended, runKubeProxy } from "../cli/run-kube-proxy.ts";
import { type ToyCheckout, toyCheckout } from "./toy-checkout.ts";

const exec = promisify(execFile);
const HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: toy\n";
const NODE_A = {
  apiVersion: "v1",
  kind: "Node",
  metadata: { name: "node-a" },
  status: { addresses: [{ type: "InternalIP", address: "192.168.0.2" }] },
};
const OBJECTS = [
  NODE_A,
  {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: "web" },
    spec: { clusterIP: "10.96.0.1", ports: [{ port: 80 }] },
  },
  {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { name: "web-1", labels: { "kubernetes.io/service-name": "web" } },
    addressType: "IPv4",
    ports: [{ port: 8080 }],
    endpoints: [{ addresses: ["10.180.0.10"] }],
  },
];
const LINE = "default/web TCP 10.96.0.1:80 by 10.180.0.10:8080";

describe("a mode is one folder and its name in the registry", () => {
  let checkout: ToyCheckout;
  before(async () => {
    checkout = await toyCheckout();
  });
  after(() => checkout.remove());
  const run = (...args: string[]): Promise<Ended> => runKubeProxy(args, { program: checkout.kubeProxy });
  const configFile = (section: string): string => {
    const file = checkout.path("config.yaml");
    writeFileSync(file, `${HEAD}${section}`);
    return file;
  };

  test("the types hold, in the program, its demo and its test kit", async () => {
    const config = JSON.parse(readFileSync(checkout.path("tsconfig.json"), "utf8"));
    // Tests of a module may reach into test/, which is no part of the copy.
    const exclude = [...config.exclude, "**/*.test.ts"];
    writeFileSync(
      checkout.path("tsconfig.json"),
      JSON.stringify({ ...config, include: ["src", "demo", "testkit"], exclude }),
    );
    const tsc = [
      checkout.path("node_modules/typescript/bin/tsc"),
      "-p",
      checkout.path("tsconfig.json"),
      "--checkers",
      "1",
    ];
    await exec(process.execPath, tsc).catch(({ stdout }: { stdout: string }) => assert.fail(stdout));
  });

  test("the help has its flags", async () => {
    const { status, stdout } = await run("--help");
    assert.equal(status, 0);
    for (const flag of ["--toy-greeting string", "--toy-sync-period duration", "--toy-min-sync-period duration"]) {
      assert.ok(stdout.includes(`${flag} (default `), flag);
    }
    // Long lines are broken.
    const text = stdout.replaceAll(/\s+/g, " ");
    assert.match(text, /The proxy mode: iptables, .* or toy; empty means iptables/);
  });

  test("its section is written with defaults, and with what flags say", async () => {
    const file = checkout.path("written.yaml");
    const written = async (...flags: string[]): Promise<string> => {
      const { status, stderr } = await run("--proxy-mode=toy", ...flags, `--write-config-to=${file}`);
      assert.equal(status, 0, stderr);
      return readFileSync(file, "utf8");
    };
    const section = (greeting: string, syncPeriod: string) =>
      `\ntoy:\n  greeting: ${greeting}\n  minSyncPeriod: 1s\n  patience: 1500ms\n  syncPeriod: ${syncPeriod}\n`;
    assert.ok((await written()).includes(section("would serve", "30s")), await written());
    const changed = await written("--toy-greeting=serves", "--toy-sync-period=7s");
    assert.ok(changed.includes(section("serves", "7s")), changed);
  });

  test("its section is decoded, checked, and strict about what it does not have", async () => {
    const file = checkout.path("written.yaml");
    const read = (section: string) => run(`--config=${configFile(section)}`, `--write-config-to=${file}`);
    assert.equal((await read("toy:\n  greeting: hello\n  patience: 2s\n")).status, 0);
    assert.match(readFileSync(file, "utf8"), /^toy:\n {2}greeting: hello\n.* {2}patience: 2000ms\n/ms);

    const bad = await read('toy:\n  greeting: "two\\nlines"\n');
    assert.equal(bad.status, 1);
    const path = "KubeProxyConfiguration.KubeProxyToyConfiguration.Greeting";
    assert.ok(bad.stderr.includes(`${path}: Invalid value: `), bad.stderr);
    assert.ok(bad.stderr.includes(": must be one line"), bad.stderr);

    const typed = await read("toy:\n  greeting: [1]\n");
    assert.equal(typed.status, 1);
    assert.match(typed.stderr, /KubeProxyToyConfiguration\.toy\.greeting|toy\.greeting/);

    const unknown = await read("toy:\n  greting: hello\n");
    assert.match(unknown.stderr, /unknown field \\"toy\.greting\\"/);
  });

  test("it is rendered", async () => {
    const manifests = checkout.path("cluster.json");
    writeFileSync(manifests, JSON.stringify({ apiVersion: "v1", kind: "List", items: OBJECTS }));
    const render = (...args: string[]) => run("render", "--mode", "toy", "-f", manifests, "--family", "ipv4", ...args);
    assert.equal((await render()).stdout, `would serve ${LINE}\n`);
    const { mode, family, lines } = JSON.parse((await render("-o", "json")).stdout);
    assert.deepEqual([mode, family, lines], ["toy", "IPv4", [`would serve ${LINE}`]]);
    const { status, stderr } = await render("-o", "ipset");
    assert.equal(status, 1);
    assert.match(stderr, /mode toy has no output "ipset": use --output text, json/);
  });

  test("its backend passes the contract of all modes", async () => {
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const args = ["--test", "--test-reporter=spec", checkout.path("src/modes/toy/contract.test.ts")];
    const { stdout } = await exec(process.execPath, args, { cwd: checkout.folder, env }).catch(
      ({ stdout }: { stdout: string }) => assert.fail(stdout),
    );
    assert.match(stdout, /pass [1-9]/);
  });

  test("the demo lists it, and refuses it with what is missing", async () => {
    const demo = (mode: string): Promise<string> =>
      exec(process.execPath, [checkout.path("demo/main.ts"), "--once", "--mode", mode], { cwd: checkout.folder }).then(
        () => assert.fail("the demo should have refused"),
        ({ stderr }: { stderr: string }) => stderr,
      );
    const [unknown, refused] = await Promise.all([demo("toys"), demo("toy")]);
    assert.match(unknown, /--mode toys is not a proxy mode; available: iptables, .*toy$/m);
    assert.match(refused, /this machine cannot run the demo:/);
    assert.match(refused, /bin\/kube-proxy render --mode toy -f /);
    if (process.getuid?.() === 0) assert.match(refused, / {2}- a toy serves nobody/);
  });

  async function namespaceFor(t: Pick<TestContext, "after">): Promise<NetworkNamespace> {
    const namespace = await NetworkNamespace.create(newRunName("toy"));
    t.after(() => namespace.remove());
    return namespace;
  }

  test("--cleanup calls it", { skip: netnsSkip }, async (t) => {
    const namespace = await namespaceFor(t);
    const { stderr } = await namespace.exec([checkout.kubeProxy, "--cleanup"]);
    assert.match(stderr, /toy: would clean up/);
  });

  test("the daemon runs it, when other modes have gone", { skip: netnsSkip }, async (t) => {
    const namespace = await namespaceFor(t);
    await namespace.exec(["nft", "add table ip kube-proxy"]);
    const daemon = await ProxyDaemon.start(namespace, {
      program: checkout.kubeProxy,
      hostnameOverride: "node-a",
      objects: OBJECTS,
      config: { mode: "toy", toy: { greeting: "serves" } },
    });
    t.after(() => daemon.dispose());
    assert.ok(daemon.log.includes("Using toy Proxier"), daemon.log);
    assert.ok(daemon.log.includes(`toy: serves ${LINE}`), daemon.log);
    assert.equal((await daemon.fetch("http://127.0.0.1:10249/proxyMode")).body, "toy");
    await daemon.until("its own metric", async () => {
      return (await daemon.metric('kubeproxy_toy_lines_total{ip_family="IPv4"}')) === 1;
    });
    assert.doesNotMatch((await namespace.exec(["nft", "list", "tables"])).stdout, /kube-proxy/);

    daemon.writeObjects([NODE_A]);
    await daemon.until("the service to go", () => daemon.log.includes("toy: would no longer serve default/web"));
    await daemon.stop();
  });
});
