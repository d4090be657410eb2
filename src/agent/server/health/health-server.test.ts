import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "../../sync/testing/fake-clock.ts";
import { createMetrics } from "../metrics/metrics.ts";
import { ask } from "../testing/http-client.ts";
import { memoryLog } from "../testing/memory-log.ts";
import { parseMetrics } from "../testing/metrics-text.ts";
import { startHealthServer } from "./health-server.ts";
import { ProxyHealth } from "./proxy-health.ts";

test("healthz and livez answer with their status, headers and counters; other paths with 404", async () => {
  const clock = new FakeClock();
  const health = new ProxyHealth({ clock, syncPeriodMs: 30_000 });
  const metrics = createMetrics();
  const stop = new AbortController();
  const server = startHealthServer({
    address: "127.0.0.1:0",
    health,
    metrics,
    log: memoryLog(),
    clock,
    signal: stop.signal,
    isBindHardFail: false,
    onHardFail: () => {},
  });
  const { port } = (await server?.listening) ?? assert.fail("it listens");

  const healthz = await ask(port, "/healthz");
  assert.equal(healthz.status, 503);
  assert.equal(healthz.headers["content-type"], "application/json");
  assert.equal(healthz.headers["x-content-type-options"], "nosniff");
  assert.deepEqual(Object.keys(JSON.parse(healthz.text)), ["lastUpdated", "currentTime", "nodeEligible", "healthy"]);
  assert.equal((await ask(port, "/livez")).status, 200);
  const ready = async () => (await ask(port, "/readyz")).status;
  assert.equal(await ready(), 503, "no family is at work");
  health.setMode("IPv4", { remarks: ["all is well"] });
  health.setMode("IPv6", {});
  health.updated("IPv4");
  assert.equal(await ready(), 503, "IPv6 has not synced");
  health.updated("IPv6");
  assert.equal(await ready(), 200, "the Node does not matter");
  const told = ["/livez", "/livez?verbose", "/healthz?verbose"].map(async (path) => (await ask(port, path)).text);
  assert.deepEqual(
    (await Promise.all(told)).map((text) => JSON.parse(text).status.IPv4.remarks),
    [undefined, ["all is well"], ["all is well"]],
  );
  health.queuedUpdate("IPv4");
  await clock.advance(60_000);
  assert.equal((await ask(port, "/livez", { method: "POST" })).status, 503);
  assert.equal(await ready(), 503);
  assert.deepEqual(
    [(await ask(port, "/healthz/")).status, (await ask(port, "/")).status, (await ask(port, "/metrics")).status],
    [404, 404, 404],
  );

  const families = parseMetrics(await metrics.families.render());
  const counts = (name: string) => families.get(name)?.samples.map(({ labels, value }) => [labels.code, value]);
  assert.deepEqual(counts("kubeproxy_proxy_healthz_total"), [["503", 2]]);
  assert.deepEqual(counts("kubeproxy_proxy_livez_total"), [
    ["200", 3],
    ["503", 1],
  ]);
  stop.abort();
  await server?.closed;
});

test("a connection that fails through the rules makes healthz 503, and livez not; one that says nothing is named", async () => {
  const clock = new FakeClock();
  const health = new ProxyHealth({ clock, syncPeriodMs: 30_000 });
  const names = { name: "n", uid: "", zone: undefined };
  health.onNode({ ...names, addresses: [], podCIDRs: [], taintKeys: [], isBeingDeleted: false });
  health.updated("IPv4");
  const stop = new AbortController();
  const server = startHealthServer({
    address: "127.0.0.1:0",
    ...{ health, metrics: createMetrics(), log: memoryLog(), clock, signal: stop.signal },
    isBindHardFail: false,
    onHardFail: () => {},
  });
  const { port } = (await server?.listening) ?? assert.fail("it listens");
  const answer = async (path: string) => {
    const { status, text } = await ask(port, path);
    const { failures, degraded } = JSON.parse(text);
    return { status, failures, degraded };
  };
  let finding: { isFailure: boolean; reason: string } | undefined;
  health.setProbe("connection to shop/web:http", async () => finding);
  assert.equal((await answer("/healthz")).status, 200);
  finding = { isFailure: true, reason: "no answer" };
  assert.equal((await answer("/livez")).status, 200, "nothing has looked");
  const named = [{ subject: "connection to shop/web:http", reason: "no answer" }];
  assert.deepEqual(await answer("/healthz"), { status: 503, failures: named, degraded: undefined });
  assert.equal((await answer("/livez")).status, 200);
  finding = { isFailure: false, reason: "no answer" };
  assert.deepEqual(await answer("/healthz"), { status: 200, failures: undefined, degraded: named });
  stop.abort();
  await server?.closed;
});

test("an empty address means no server", () => {
  const clock = new FakeClock();
  const server = startHealthServer({
    address: "",
    health: new ProxyHealth({ clock, syncPeriodMs: 1 }),
    metrics: createMetrics(),
    log: memoryLog(),
    clock,
    signal: new AbortController().signal,
    isBindHardFail: true,
    onHardFail: () => assert.fail("nothing may fail"),
  });
  assert.equal(server, undefined);
});

test("a failure to listen is logged in upstream's words and ends the program when asked to", async () => {
  const clock = new FakeClock();
  const log = memoryLog();
  const reasons: string[] = [];
  const stop = new AbortController();
  const common = {
    health: new ProxyHealth({ clock, syncPeriodMs: 1 }),
    metrics: createMetrics(),
    log,
    clock,
    signal: stop.signal,
    isBindHardFail: true,
    onHardFail: (reason: string) => reasons.push(reason),
  };
  const first = startHealthServer({ ...common, address: "127.0.0.1:0" });
  const { port } = (await first?.listening) ?? assert.fail("it listens");
  const second = startHealthServer({ ...common, address: `127.0.0.1:${port}` });
  assert.equal(await second?.listening, undefined);
  const told = `failed to start proxy healthz on 127.0.0.1:${port}: listen EADDRINUSE: address already in use 127.0.0.1:${port}`;
  assert.deepEqual(log.errors, [`Healthz server failed: ${told}`]);
  assert.deepEqual(reasons, [`healthz server failed: ${told}`]);
  stop.abort();
  await first?.closed;
});
