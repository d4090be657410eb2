/** `render --mode userspace`: what the kernel would accept, regardless of which ports are free on this machine. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { UsageError } from "../../src/tools/cli/output.ts";
import { render } from "../../src/tools/cli/render.ts";
import { MemoryIptables } from "../../testkit/fakes/iptables/memory-iptables.ts";
import { examplesAsJson, runCommand } from "./run-command.ts";

const EXAMPLES = examplesAsJson();

async function run(...args: readonly string[]): Promise<string> {
  const all = ["-f", "-", "--family", "ipv4", "--hostname-override", "node-a", ...args];
  const { status, out, err } = await runCommand(render, all, EXAMPLES);
  assert.deepEqual([status, err], [0, ""]);
  return out;
}

/** A configuration file with this body. */
function configFile(t: TestContext, body: string): string {
  const folder = mkdtempSync(join(tmpdir(), "kpts-render-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "config.yaml");
  writeFileSync(
    file,
    `apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: userspace\n${body}`,
  );
  return file;
}

for (const family of ["IPv4", "IPv6"] as const) {
  test(`the examples make a text that iptables-restore takes as it is (${family})`, async () => {
    const text = await run("--mode", "userspace", "--family", family.toLowerCase());
    const kernel = new MemoryIptables(family);
    await kernel.restore([text]);
    assert.ok(kernel.rules("nat", "KUBE-PORTALS-CONTAINER").length >= 5);
    assert.ok(kernel.rules("filter", "KUBE-NODEPORT-NON-LOCAL").length >= 3);
  });
}

test("every lane of a service port has a port of its own, counted from the first of the range or of a fixed one", async (t) => {
  const portsOf = async (...args: string[]): Promise<number[]> => {
    const { servicePorts } = JSON.parse(await run(...args, "-o", "json"));
    return servicePorts.flatMap(({ proxyPorts }: { proxyPorts: Record<string, number> }) => Object.values(proxyPorts));
  };
  const counted = await portsOf("--mode", "userspace");
  assert.deepEqual(
    counted,
    counted.map((_, index) => 20000 + index),
  );
  const config = configFile(t, "portRange: 30100-30102\n");
  assert.deepEqual(await portsOf("--config", config), [30100, 30101, 30102]);
  const ranged = await run("--config", config);
  assert.match(ranged, /^# shop\/web:http: there are no remaining ports left to allocate in the accepted range$/m);
});

test("without rules the sockets are listed, at addresses of this node only", async (t) => {
  const text = await run("--config", configFile(t, "userspace: {rules: none}\n"));
  assert.match(text, /^# listens on TCP 0\.0\.0\.0 30080 for shop\/web-node-port:http$/m);
  assert.doesNotMatch(text, /10\.96\./);
  assert.equal(
    text.split("\n").every((line) => line === "" || line.startsWith("# listens on ")),
    true,
  );
});

test("the plan as data has portals, rules and the proxy's ports", async () => {
  const data = JSON.parse(await run("--mode", "userspace", "-o", "json"));
  assert.deepEqual([data.mode, data.family, data.jumps.length], ["userspace", "IPv4", 8]);
  const dns = data.servicePorts.find(({ name }: { name: string }) => name === "kube-system/kube-dns:dns");
  assert.deepEqual(dns.portals, [{ kind: "cluster-ip", address: "10.96.0.53", port: 53, sources: [] }]);
  assert.match(dns.rules[0].target.to, new RegExp(`:${dns.proxyPorts.cluster}$`));
});

test("an address that no other host can reach is refused in words", async (t) => {
  const file = configFile(t, "bindAddress: 127.0.0.1\n");
  await assert.rejects(run("--config", file), (error: unknown) => {
    assert.ok(error instanceof UsageError);
    assert.match(error.message, /cannot proxy on localhost/);
    return true;
  });
});
