import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { modesOn } from "../src/modes/registry.ts";
import { missingForMode } from "../testkit/net/kernel-capabilities.ts";
import { HOST_MODES } from "../testkit/support/host-modes.ts";
import { kernelSkip } from "../testkit/support/topology.ts";
import { runDemo } from "./run-demo.ts";
import { clusterDump } from "./testing/cluster-dump.ts";

const module = fileURLToPath(new URL("./run-demo.ts", import.meta.url));

interface Outcome {
  readonly status: number;
  readonly output: string;
  readonly pid: number | undefined;
}

/** Runs the demo in its own process, as its command does. */
function demo(...args: string[]): Promise<Outcome> {
  const code = `import { runDemo } from ${JSON.stringify(module)}; process.exitCode = await runDemo(process.argv.slice(1));`;
  return new Promise((resolve) => {
    const child = execFile(process.execPath, ["--input-type=module", "-e", code, "--", ...args], (error, out, err) => {
      resolve({ status: typeof error?.code === "number" ? error.code : 0, output: out + err, pid: child.pid });
    });
  });
}

function namespacesOf({ pid }: Outcome): string[] {
  return readdirSync("/run/netns").filter((name) => name.startsWith(`kpts-demo-${pid}.`));
}

const modes = modesOn("linux")
  .map(({ name }) => name)
  .filter((mode) => !HOST_MODES.includes(mode));
for (const mode of modes) {
  const missing = await missingForMode(mode);
  test(`${mode}: every request of the examples meets what it must, and nothing is left`, {
    skip: missing.length > 0 ? missing.join("; ") : kernelSkip,
  }, async () => {
    const outcome = await demo("--once", "--mode", mode);
    assert.equal(outcome.status, 0, outcome.output);
    assert.match(outcome.output, /✓ \d{3} as expected · \d+ requests\n$/);
    assert.equal(outcome.output.includes("decided at the socket, when it connects"), mode === "ebpf");
    assert.deepEqual(namespacesOf(outcome), []);
  });
}

for (const mode of modes) {
  const missing = await missingForMode(mode);
  test(`${mode}: the dump of a real cluster is served as it is, by servers that stand in for its pods`, {
    skip: missing.length > 0 ? missing.join("; ") : kernelSkip,
  }, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), "kpts-dump-"));
    t.after(() => rmSync(folder, { recursive: true }));
    const file = join(folder, "cluster.yaml");
    writeFileSync(file, clusterDump(3));
    const outcome = await demo("--once", "--mode", mode, "--manifests", file);
    assert.equal(outcome.status, 0, outcome.output);
    assert.match(outcome.output, /^default\/kubernetes:https {2}TCP 443 .*\n {2}IPv4 {2}172\.18\.0\.3 100%$/m);
    assert.match(outcome.output, /^green\/web:http .*\n {2}IPv4 {2}web-0\.green \d+% {2}web-1\.green@worker-2 \d+%$/m);
    assert.match(outcome.output, /^ {2}node port +172\.18\.0\.2:31080 /m);
    assert.match(outcome.output, /^ {2}cluster IP +10\.96\.2\.3:80 /m);
    assert.deepEqual(namespacesOf(outcome), []);
  });
}

test("arguments are looked at before anything is built", async (t) => {
  t.mock.method(process.stderr, "write", () => true);
  const build = t.mock.fn(async () => false);
  assert.equal(await runDemo(["--mode", "foo"], build), 1);
  assert.equal(await runDemo(["--layot"], build), 1);
  assert.equal(build.mock.callCount(), 0);
});

test("a service that another one shadows is found out, and the exit status says so", {
  skip: kernelSkip,
}, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-shadow-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const objects = ["first", "second"].flatMap((name, index) => [
    { apiVersion: "v1", kind: "Service", metadata: { name }, spec: { clusterIP: "10.96.0.1", ports: [{ port: 80 }] } },
    {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: { name, labels: { "kubernetes.io/service-name": name } },
      addressType: "IPv4",
      ports: [{ port: 80 }],
      endpoints: [
        {
          addresses: [`10.180.0.${index + 10}`],
          nodeName: "node-a",
          targetRef: { kind: "Pod", name: `pod-of-${name}` },
        },
      ],
    },
  ]);
  writeFileSync(join(folder, "all.json"), JSON.stringify({ apiVersion: "v1", kind: "List", items: objects }));
  const outcome = await demo("--once", "--manifests", folder);
  assert.equal(outcome.status, 1, outcome.output);
  assert.match(
    outcome.output,
    /! default\/second TCP 80 is not probed at cluster IP 10\.96\.0\.1:80: default\/first has it/,
  );
  // Answers from the owner count as right.
  assert.doesNotMatch(outcome.output, /✗/);
  assert.deepEqual(namespacesOf(outcome), []);
});
