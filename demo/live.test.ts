/** The demo follows edits: in any timing, it ends up showing the manifests' last state, and no errors. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { signalChild } from "../src/kernel/child-process.ts";
import { PATIENCE } from "../testkit/support/patience.ts";
import { kernelSkip } from "../testkit/support/topology.ts";

const program = fileURLToPath(new URL("main.ts", import.meta.url));
const BURSTS = 6;
const EDITS_PER_BURST = 5;
const PATIENCE_MS = 40_000 * PATIENCE;

const manifest = `apiVersion: v1
kind: Service
metadata: { name: web, namespace: shop }
spec: { clusterIP: 10.96.0.10, ports: [{ port: 80 }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: web-1, namespace: shop, labels: { kubernetes.io/service-name: web } }
addressType: IPv4
ports: [{ port: 8080 }]
endpoints:
  - { addresses: [10.180.0.11], nodeName: node-a, targetRef: { name: web-1 } }
  - { addresses: [10.180.1.11], nodeName: node-b, conditions: { ready: true }, targetRef: { name: web-2 } }
`;

/** A demo without a terminal, which prints its tables. */
async function demoFor(t: TestContext, manifests: string) {
  const child = spawn(process.execPath, [program, "--manifests", manifests], { stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  }
  const ended = once(child, "exit");
  t.after(async () => {
    signalChild(child, "SIGTERM");
    await ended;
    assert.deepEqual(
      readdirSync("/run/netns").filter((name) => name.startsWith(`kpts-demo-${child.pid}.`)),
      [],
    );
  });
  return {
    /** The URL of the proxy's page. */
    get page(): string {
      return /http:\/\/127\.0\.0\.1:\d+\//.exec(output)?.[0] ?? "";
    },
    /** The last printed table. */
    async shows(condition: (table: string) => boolean): Promise<void> {
      const deadline = Date.now() + PATIENCE_MS;
      for (;;) {
        const last = output.trimEnd().split("\n\n  ADDRESS").at(-1) ?? "";
        if (condition(last)) return;
        if (child.exitCode !== null || Date.now() > deadline) assert.fail(`not shown in time:\n${output.slice(-3000)}`);
        await sleep(50);
      }
    },
  };
}

test("after every burst of edits in place, what is shown is the last state, without a wrong mark", {
  skip: kernelSkip,
}, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-live-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "web.yaml");
  writeFileSync(file, manifest);
  // A burst always ends in the other state, so that there is something to wait for.
  let isReady = true;
  const demo = await demoFor(t, folder);
  const isShown = () =>
    demo.shows(
      (table) => table.includes("as expected") && !table.includes("✗") && table.includes("not ready") !== isReady,
    );
  await isShown();
  const { rows } = (await (await fetch(`${demo.page}api/services`)).json()) as { rows: { service: string }[] };
  assert.deepEqual(new Set(rows.map(({ service }) => service)), new Set(["shop/web"]));
  for (let burst = 0; burst < BURSTS; burst++) {
    for (let edit = 0; edit < EDITS_PER_BURST; edit++) {
      isReady = !isReady;
      await promisify(execFile)("sed", ["-i", `s/ready: ${!isReady}/ready: ${isReady}/`, file]);
      // Edits may fall into any moment of a pass.
      await sleep((burst * 37 + edit * 61) % 200);
    }
    await isShown();
  }
});
