/** Long work shows on a terminal how far it is, and leaves nothing behind. */
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { type TestContext, test } from "node:test";
import { diff } from "../../src/tools/cli/diff.ts";
import { explain } from "../../src/tools/cli/explain.ts";
import type { Output } from "../../src/tools/cli/output.ts";
import { progressLine, progressText } from "../../src/tools/cli/progress.ts";
import { proveCommand } from "../../src/tools/cli/prove.ts";
import { sysdump } from "../../src/tools/cli/sysdump.ts";
import { KUBE_PROXY } from "../../testkit/needs/built-program.ts";
import { skipWithoutTool } from "../../testkit/support/tools.ts";
import { runKubeProxy } from "./run-kube-proxy.ts";

const WIPED = "\r\u001b[K";

test("the line says what is done, what is left and about how long that takes", () => {
  const services = { what: "Services", done: 1_204, total: 10_000, of: "nftables on node-a, IPv4" };
  assert.equal(progressText(services, 12_000), "nftables on node-a, IPv4: 1,204 of 10,000 Services, about 90 s");
  assert.equal(progressText({ what: "Nodes", done: 40, total: 300 }, 4_000), "40 of 300 Nodes, about 30 s");
  assert.equal(progressText({ what: "Nodes", done: 299.5, total: 300 }, 60_000), "299 of 300 Nodes, about 1 s");
  assert.equal(progressText({ what: "Nodes", done: 0.5, total: 1 }, 60_000), "0 of 1 Node, about 60 s");
  assert.equal(
    progressText({ what: "Services", done: 100, total: 10_000 }, 9_000),
    "100 of 10,000 Services, about 15 min",
  );
  // Too little is known for a time.
  assert.equal(progressText({ what: "Nodes", done: 0, total: 300 }, 9_000), "0 of 300 Nodes");
  assert.equal(progressText({ what: "classes of packets", done: 1_234_567 }, 9_000), "1,234,567 classes of packets");
  assert.equal(progressText({ what: "reading the objects" }, 9_000), "reading the objects");
});

test("nothing for two seconds; then one line that fits, drawn at most ten times a second, and wiped at the end", async () => {
  let [now, written] = [0, ""];
  const line = progressLine(
    (text) => {
      written += text;
    },
    () => 30,
    () => now,
  );
  const at = async (ms: number, done: number) => {
    [now, written] = [ms, ""];
    await line.tell({ what: "Services", done, total: 10_000, of: "nftables" });
    return written;
  };
  assert.equal(await at(1_900, 1), "");
  const listeners = process.listenerCount("SIGINT");
  assert.equal(await at(2_100, 100), "\rnftables: 100 of 10,000 Serv\u001b[K".replace("Serv", "Servi"));
  assert.equal(await at(2_150, 200), "");
  assert.match(await at(2_300, 300), /^\rnftables: 300 of/);
  assert.equal(process.listenerCount("SIGINT"), listeners + 1);
  written = "";
  line.end();
  assert.equal(written, WIPED);
  line.end();
  assert.equal(written, WIPED, "once");
  assert.equal(process.listenerCount("SIGINT"), listeners);
});

test("work that waits for others is shown by itself", async () => {
  const drawn = Promise.withResolvers<string>();
  const line = progressLine(
    drawn.resolve,
    () => 80,
    () => performance.now() + 1_990 - began,
  );
  const began = performance.now();
  await line.tell({ what: "reading the objects" });
  assert.match(await drawn.promise, /^\rreading the objects/);
  line.end();
});

/** The lines that a command tells of, without figures. */
async function toldBy(
  command: (argv: readonly string[], output: Output, input: NodeJS.ReadableStream) => Promise<number>,
  ...argv: string[]
): Promise<ReadonlySet<string>> {
  const told = new Set<string>();
  const progress: Output["progress"] = async (work) => {
    told.add(progressText(work, 0).replaceAll(/\d+/g, "N"));
  };
  await command(argv, { out: () => {}, err: () => {}, progress }, Readable.from([]));
  return told;
}

/** @param nodes addresses end with their numbers. */
function cluster(services: number, nodes: number, port = 8080): string {
  const at = (number: number) => `${number >> 8}.${number & 255}`;
  const items: unknown[] = Array.from({ length: nodes }, (_, node) => ({
    ...{ apiVersion: "v1", kind: "Node", metadata: { name: `node-${node}` } },
    status: { addresses: [{ type: "InternalIP", address: `192.168.${at(node + 1)}` }] },
  }));
  for (let number = 0; number < services; number++) {
    const metadata = { namespace: "shop", name: `web-${number}` };
    const spec = { clusterIP: `10.96.${at(number)}`, ports: [{ port: 80, protocol: "TCP" }] };
    items.push({ apiVersion: "v1", kind: "Service", metadata, spec });
    items.push({
      ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: "IPv4", ports: [{ port }] },
      metadata: { ...metadata, labels: { "kubernetes.io/service-name": metadata.name } },
      endpoints: [{ addresses: [`10.128.${at(number)}`], nodeName: "node-0", conditions: { ready: true } }],
    });
  }
  return JSON.stringify({ apiVersion: "v1", kind: "List", items });
}

function folder(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "kpts-progress-"));
  t.after(() => rmSync(path, { recursive: true }));
  return path;
}

test("prove, explain --all-nodes, diff and sysdump tell how far they are", async (t) => {
  const dir = folder(t);
  const [one, other] = [join(dir, "one.json"), join(dir, "other.json")];
  writeFileSync(one, cluster(60, 3));
  writeFileSync(other, cluster(60, 3, 9090));
  const reading = "reading the objects";
  const proof = await toldBy(proveCommand, "-f", one, "--modes", "nftables", "--family", "ipv4", "--node", "node-1");
  assert.deepEqual([...proof], [reading, "nftables on node-N, IPvN: N of N Services"]);
  assert.deepEqual([...(await toldBy(explain, "shop/web-1", "-f", one, "--all-nodes"))], [reading, "N of N Nodes"]);
  assert.deepEqual([...(await toldBy(diff, one, other))], [reading, "N of N Nodes"]);
  const archive = await toldBy(sysdump, "-f", one, "--node", "node-1", "-o", join(dir, "archive.tgz"));
  assert.ok(archive.has("objects/cluster.json: N of N parts"), [...archive].join("\n"));
});

/** `prove` of many Services in a terminal, with Ctrl-C once the line is there. */
async function interrupted(file: string): Promise<string> {
  const command = `exec '${KUBE_PROXY}' prove -f '${file}' --node node-1 --modes nftables --family ipv4`;
  // Its terminal is what `script` makes; what is typed there comes from our pipe.
  const child = spawn("script", ["-qec", `stty cols 80; ${command}`, "/dev/null"], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  let seen = "";
  for await (const text of child.stdout.setEncoding("utf8")) {
    const before = seen;
    seen += String(text);
    if (!before.includes(" Services") && seen.includes(" Services")) child.stdin.write("\u0003");
  }
  if (child.exitCode === null && child.signalCode === null) await once(child, "close");
  return seen;
}

const skip = skipWithoutTool("script", "bsdutils");

test("Ctrl-C leaves a clean line, and what is no terminal gets none", { skip }, async (t) => {
  const file = join(folder(t), "many.json");
  writeFileSync(file, cluster(4_000, 3));
  const seen = await interrupted(file);
  assert.match(seen, /\rnftables on node-1, IPv4: [\d,]+ of 4,000 Services/);
  assert.ok(seen.endsWith(WIPED), JSON.stringify(seen.slice(-300)));
  const small = join(folder(t), "few.json");
  writeFileSync(small, cluster(400, 3));
  const { stdout, stderr } = await runKubeProxy(["prove", "-f", small, "--node", "node-1", "--modes", "nftables"]);
  assert.match(stdout, /the rules treat every packet as the Services ask/);
  assert.equal(stderr, "");
});

test("a terminal that does not say its width gets whole lines", { skip }, () => {
  const ask = `stty cols 0; exec '${KUBE_PROXY}' explain shop/web -f /nonexistent`;
  const { stdout } = spawnSync("script", ["-qec", ask, "/dev/null"], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  });
  assert.match(stdout, /Error: [^\r\n]*\/nonexistent: there is no such file or folder/);
});
