/** A running demo: what stays right after odd edits, and the commands that can be tried beside it. */
import assert from "node:assert/strict";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { KUBE_PROXY } from "../testkit/needs/built-program.ts";
import { until } from "../testkit/support/patience.ts";
import { kernelSkip } from "../testkit/support/topology.ts";
import { firstSync } from "./once.ts";
import { totalsOf } from "./results.ts";
import { Session } from "./session.ts";

test("a Node that is renamed changes no answer, a misspelt kind is named, and commands ask the proxy", {
  skip: kernelSkip,
}, async (t) => {
  const manifests = mkdtempSync(join(tmpdir(), "kpts-renamed-"));
  t.after(() => rmSync(manifests, { recursive: true }));
  cpSync(fileURLToPath(new URL("../examples", import.meta.url)), manifests, { recursive: true });
  const session = await Session.start({ mode: "nftables", manifests, hostnameOverride: undefined });
  t.after(() => session.end());
  const { signal } = new AbortController();
  await firstSync(session, signal);
  const nodes = join(manifests, "nodes.yaml");
  writeFileSync(nodes, readFileSync(nodes, "utf8").replace(/node-a/g, "node-c"));
  writeFileSync(join(manifests, "odd.yaml"), "apiVersion: v1\nkind: Servce\nmetadata: { name: odd }\n");
  assert.ok(await session.reload());
  assert.match(session.problems.join("\n"), /odd\.yaml:2: .*Servce default\/odd: kind must probably be Service/);
  assert.match(session.problems.join("\n"), /^Node node-a is gone: the proxy that runs on it goes on/m);
  const table = session.newTable();
  await session.fill(table, () => {}, signal);
  assert.deepEqual([totalsOf(table).wrong, totalsOf(table).pending], [0, 0]);
  const { nodeNamespace } = session.network;
  const asked = async (...words: readonly string[]) =>
    (await nodeNamespace.exec([KUBE_PROXY, ...words, "--socket", session.proxy.socket])).stdout;
  assert.match(await asked("status"), /nftables mode, on node-a\nhealthy\n/);
  assert.match(await asked("services", "shop/web"), /^shop\/web:http TCP +10\.96\.0\.10:80 /m);
  // The kernel forgets a closed connection within seconds, and on a busy machine that may be before it is asked.
  await until("a connection to shop/web", async () => {
    await session.fill(session.newTable(), () => {}, signal);
    return /^shop\/web:http TCP /m.test(await asked("flows", "shop/web"));
  });
  assert.equal((await asked("flows", "--stale")).split("\n").length, 2, "nothing has changed");
});
