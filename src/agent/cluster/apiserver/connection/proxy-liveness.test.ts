/** The kernel detects a dead peer on a connection through a proxy, as on a direct one. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { TestApiServer } from "../../../../../test/apiserver/test-api-server.ts";
import { until } from "../../../../../testkit/support/patience.ts";
import { startProxy } from "../testing/test-proxy.ts";
import { transportWith } from "../testing/transport-with.ts";

const hex = (port: number): string => port.toString(16).toUpperCase().padStart(4, "0");

/** `timer:when` (in seconds) of the connections to a port in /proc/net/tcp; timer 2 is keep-alive (proc(5)). */
function timersTo(port: number): string[] {
  return readFileSync("/proc/net/tcp", "utf8")
    .split("\n")
    .map((line) => line.trim().split(/\s+/))
    .filter((f) => f[2]?.endsWith(`:${hex(port)}`) && f[3] === "01")
    .map((f) => {
      const [timer = "", when = ""] = (f[5] ?? "").split(":");
      return `${timer} ${Math.round(Number.parseInt(when, 16) / 100)}`;
    });
}

async function watching(t: TestContext, isProxied: boolean, isReused = false): Promise<string[]> {
  const server = await TestApiServer.start();
  t.after(() => server.close());
  const { port, url } = await startProxy(t);
  const transport = transportWith({
    server: new URL(server.url),
    ca: { kind: "data", text: server.authority.certificate },
    proxyUrl: isProxied ? url : undefined,
  });
  const stop = new AbortController();
  const services = { resource: "services", method: "GET" } as const;
  if (isReused) {
    const { body } = await transport.send({ ...services, verb: "list", path: "/api/v1/services" }, stop.signal);
    for await (const chunk of body) void chunk;
  }
  const path = "/api/v1/services?watch=true&resourceVersion=1&timeoutSeconds=300";
  await transport.send({ ...services, verb: "watch", path }, stop.signal);
  await sleep(300);
  const timers = timersTo(isProxied ? port : server.port);
  stop.abort();
  transport.close();
  server.cutConnections();
  return timers;
}

test("direct", async (t) => {
  const timers = await watching(t, false);
  assert.match(timers.join(), /^02 (29|30)$/);
});

test("direct, on a connection that another request has used before", async (t) => {
  const timers = await watching(t, false, true);
  assert.match(timers.join(), /^02 (29|30)$/);
});

test("through a proxy", async (t) => {
  const timers = await watching(t, true);
  assert.match(timers.join(), /^02 (29|30)$/);
});

test("a request ends with its signal while the proxy has not answered", async (t) => {
  const { url: proxyUrl, connections } = await startProxy(t, (connection) => void connection.resume());
  const transport = transportWith({ server: new URL("https://10.1.2.3:6443"), proxyUrl });
  const signal = AbortSignal.timeout(500);
  const request = { verb: "list", resource: "services", method: "GET", path: "/api/v1/services" } as const;
  const ended = transport.send(request, signal).then(
    () => "answered",
    () => "ended",
  );
  assert.equal(await Promise.race([ended, sleep(20_000, "still waiting after 20 s", { ref: false })]), "ended");
  await until("the connection's end", () => connections.size === 0);
});
