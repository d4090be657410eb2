/** `render`: text and data for the examples, the same for any order of files, and what it says about bad input. */
import assert from "node:assert/strict";
import { cpSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { COUNTERS } from "../../src/modes/iptables/plan-options.ts";
import { UsageError } from "../../src/tools/cli/output.ts";
import { render } from "../../src/tools/cli/render.ts";
import { MemoryIptables } from "../../testkit/fakes/iptables/memory-iptables.ts";
import { examplesAsJson, type Ran, runCommand } from "./run-command.ts";

const EXAMPLES = fileURLToPath(new URL("../../examples", import.meta.url));
const EXAMPLES_JSON = examplesAsJson();
const NODE_A = ["--hostname-override", "node-a", "--mode", "iptables", "--family", "ipv4"];

/** Standard input has the examples, for `-f -`. */
const run = (...args: string[]): Promise<Ran> => runCommand(render, args, EXAMPLES_JSON);

function scratch(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "kpts-render-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

for (const family of ["IPv4", "IPv6"] as const) {
  test(`the examples make a text that iptables-restore takes as it is (${family})`, async () => {
    const { status, out, err } = await run("-f", "-", ...NODE_A, "--family", family.toLowerCase());
    assert.deepEqual({ status, err }, { status: 0, err: "" });
    assert.match(out, /^\*filter\n.*\nCOMMIT\n\*nat\n.*\nCOMMIT\n$/s);
    const kernel = new MemoryIptables(family, { counters: new Set(Object.values(COUNTERS)) });
    await kernel.restore([out]);
    assert.ok(kernel.chains("nat").filter((name) => name.startsWith("KUBE-SVC-")).length > 3);
  });
}

test("the output does not depend on how objects are spread over files", async (t) => {
  const folder = scratch(t);
  const files = readdirSync(EXAMPLES);
  for (const [index, file] of files.entries())
    cpSync(join(EXAMPLES, file), join(folder, `${files.length - index + 10}-${file}`));
  for (const form of ["text", "json"]) {
    const one = await run("-f", EXAMPLES, ...NODE_A, "-o", form);
    assert.deepEqual(await run("-f", folder, ...NODE_A, "-o", form), one);
    assert.deepEqual(
      await run(...files.toReversed().flatMap((file) => ["-f", join(EXAMPLES, file)]), ...NODE_A, "-o", form),
      one,
    );
  }
});

test("as data, every service port has its chains and every rule its text", async () => {
  const text = (await run("-f", "-", ...NODE_A)).out;
  const { out } = await run("-f", "-", ...NODE_A, "-o", "json");
  const data = JSON.parse(out);
  assert.deepEqual([data.mode, data.family, data.node], ["iptables", "IPv4", "node-a"]);
  const lines = new Set(text.split("\n"));
  const spelled: string[] = [
    ...data.rules,
    ...data.servicePorts.flatMap((port: { dispatch: unknown[]; rules: unknown[] }) => [
      ...port.dispatch,
      ...port.rules,
    ]),
  ].map((rule) => `-A ${rule.text}`);
  for (const line of spelled) assert.ok(lines.has(line), line);
  assert.equal(spelled.length, text.split("\n").filter((line) => line.startsWith("-A ")).length);
  for (const { chains } of data.servicePorts)
    for (const chain of chains) assert.ok(lines.has(`:${chain} - [0:0]`), chain);
  const names: string[] = data.servicePorts.map(
    ({ name, protocol }: { name: string; protocol: string }) => `${name}/${protocol}`,
  );
  assert.deepEqual(names, names.toSorted());
});

test("the node decides what is local; --node and --hostname-override name it", async (t) => {
  const nodes = ["node-a", "node-b"];
  const [a, b] = await Promise.all(nodes.map((name) => run("-f", "-", "--node", name)));
  assert.notEqual(a?.out, b?.out);
  assert.equal((await run("-f", "-", "--hostname-override", "node-a")).out, a?.out);
  const chosen = await run("-f", "-");
  assert.deepEqual([chosen.out, chosen.err], [a?.out, "Seen from node-a, one of 2 Nodes: --node names another.\n"]);
  const folder = scratch(t);
  writeFileSync(
    join(folder, "node.json"),
    JSON.stringify({ apiVersion: "v1", kind: "Node", metadata: { name: "only" } }),
  );
  assert.equal(
    JSON.parse((await run("-f", folder, "-o", "json", "--mode", "iptables", "--family", "ipv4")).out).node,
    "only",
  );
});

test("a document that cannot be used is named, the others are rendered, and the status is 1", async (t) => {
  const folder = scratch(t);
  writeFileSync(
    join(folder, "mixed.yaml"),
    `apiVersion: v1
kind: Service
metadata: { name: bad, namespace: ns }
spec: { clusterIP: 10.96.0.1, ports: [{ port: 0 }] }
---
apiVersion: v1
kind: Service
metadata: { name: good, namespace: ns }
spec: { clusterIP: 10.96.0.2, ports: [{ port: 80 }] }
`,
  );
  const { status, out, err } = await run("-f", folder, ...NODE_A);
  assert.equal(status, 1);
  assert.match(
    err,
    /^error: \S+mixed\.yaml:4: document 1: Service ns\/bad: spec\.ports\[0\]\.port must be .*, got 0$/m,
  );
  assert.match(out, /ns\/good has no endpoints/);
  assert.doesNotMatch(out, /ns\/bad|10\.96\.0\.1 /);
});

test("a configuration file decides what the rules look like, flags of render over it", async (t) => {
  const config = join(scratch(t), "config.yaml");
  writeFileSync(
    config,
    "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: iptables\nhostnameOverride: node-b\niptables: { masqueradeBit: 3 }\n",
  );
  const { status, out } = await run("-f", "-", "--config", config, "--family", "ipv4", "-o", "json");
  assert.equal(status, 0);
  assert.match(out, /--or-mark 0x00000008/);
  assert.equal(JSON.parse(out).node, "node-b");
  assert.equal(JSON.parse((await run("-f", "-", "--config", config, ...NODE_A, "-o", "json")).out).node, "node-a");
});

test("a command line that cannot be used is refused with what is wrong", async (t) => {
  const folder = scratch(t);
  const broken = join(folder, "broken.yaml");
  writeFileSync(broken, "kind: [");
  const invalid = join(folder, "invalid.yaml");
  writeFileSync(
    invalid,
    "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\niptables: { masqueradeBit: 77 }\n",
  );
  const cases: readonly (readonly [args: readonly string[], message: RegExp])[] = [
    [["--kubeconfig", join(folder, "nowhere")], /nowhere/],
    [["-f"], /^-f, --filename needs a value$/],
    [["-f", join(folder, "nowhere")], /cannot read the manifests in \S+nowhere: there is no such file or folder$/m],
    [["-f", EXAMPLES, "--family", "ipv5"], /--family must be ipv4, ipv6 or both, got "ipv5"/],
    [["-f", EXAMPLES, "-o", "xml"], /--output must be .*, got "xml"/],
    [
      ["-f", EXAMPLES, "--mode", "telepathy"],
      /^--mode must be iptables, ipvs, nftables, userspace, kernelspace, ebpf, got "telepathy"$/,
    ],
    [
      ["-f", EXAMPLES, "--config", join(folder, "nowhere")],
      /cannot use the configuration \S+nowhere: there is no such file or folder$/m,
    ],
    [["-f", EXAMPLES, "--config", broken], /cannot use the configuration \S+broken\.yaml: failed to decode: /],
    [
      ["-f", EXAMPLES, "--config", invalid],
      /the configuration cannot be used: .*MasqueradeBit: Invalid value: 77: must be within/,
    ],
    [["-f", EXAMPLES, "--bogus"], /--bogus/],
    [["-f", EXAMPLES, "more"], /more/],
  ];
  for (const [args, message] of cases) {
    await assert.rejects(
      run(...args),
      (error: unknown) => error instanceof UsageError && message.test(error.message),
      args.join(" "),
    );
  }
});
