/** The kernel looks after a connection through a proxy as it does after a direct one. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { type AddressInfo, connect } from "node:net";
import type { Duplex } from "node:stream";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { TestApiServer } from "../../../../test/apiserver/test-api-server.ts";
import { until } from "../../../../testkit/support/patience.ts";
import { systemClock } from "../../../async/clock.ts";
import { createServer as createHttpServer } from "../../../kernel/node-http.ts";
import { silentLogger } from "../../../logging/logger.ts";
import { createIdentity } from "../auth/identity.ts";
import { type ClientConfig, UNSAID } from "./client-config.ts";
import { RateLimiter } from "./rate-limiter.ts";
import { Transport } from "./transport.ts";

const hex = (port: number): string => port.toString(16).toUpperCase().padStart(4, "0");

/** The sockets that are or were connected to a port, in words of /proc/net/tcp (proc(5)), and not only remembered by the kernel. */
const connectionsTo = (port: number): string[][] =>
  readFileSync("/proc/net/tcp", "utf8")
    .split("\n")
    .map((line) => line.trim().split(/\s+/))
    .filter((f) => f[2]?.endsWith(`:${hex(port)}`) && f[3] !== "06");

/** `timer:when` of the connections to a port (timer 2 is the keep-alive one), in seconds. */
function timersTo(port: number): string[] {
  return connectionsTo(port)
    .filter((f) => f[3] === "01")
    .map((f) => {
      const [timer = "", when = ""] = (f[5] ?? "").split(":");
      return `${timer} ${Math.round(Number.parseInt(when, 16) / 100)}`;
    });
}

async function watching(t: TestContext, isProxied: boolean, isReused = false): Promise<string[]> {
  const server = await TestApiServer.start();
  t.after(() => server.close());
  const proxy = createHttpServer().on("connect", (request, socket) => {
    const [host = "", port] = String(request.url).split(":");
    const upstream = connect(Number(port), host, () => {
      socket.write("HTTP/1.1 200 OK\r\n\r\n");
      upstream.pipe(socket).pipe(upstream);
    });
    for (const end of [upstream, socket]) end.on("error", () => {});
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  t.after(() => proxy.close());
  const { port } = proxy.address() as AddressInfo;
  const config: ClientConfig = {
    ...UNSAID,
    server: new URL(server.url),
    ca: { kind: "data", text: server.authority.certificate },
    proxyUrl: isProxied ? `http://127.0.0.1:${port}` : undefined,
  };
  const transport = new Transport({
    config,
    identity: createIdentity({ config, clock: systemClock, log: silentLogger }),
    limiter: new RateLimiter({ qps: -1, burst: 0, clock: systemClock }),
    userAgent: "x",
    clock: systemClock,
    env: {},
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
  const tunnels: Duplex[] = [];
  const proxy = createHttpServer().on("connect", (_request, socket) => void tunnels.push(socket));
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  const { port } = proxy.address() as AddressInfo;
  t.after(async () => {
    proxy.close();
    await until("both ends are closed", () => {
      // On a busy machine the proxy hears of the request only now.
      for (const tunnel of tunnels) tunnel.destroy();
      return connectionsTo(port).length === 0;
    });
  });
  const config: ClientConfig = {
    ...UNSAID,
    server: new URL("https://10.1.2.3:6443"),
    proxyUrl: `http://127.0.0.1:${port}`,
  };
  const transport = new Transport({
    config,
    identity: createIdentity({ config, clock: systemClock, log: silentLogger }),
    limiter: new RateLimiter({ qps: -1, burst: 0, clock: systemClock }),
    ...{ userAgent: "x", clock: systemClock, env: {} },
  });
  const signal = AbortSignal.timeout(500);
  const request = { verb: "list", resource: "services", method: "GET", path: "/api/v1/services" } as const;
  const ended = transport.send(request, signal).then(
    () => "answered",
    () => "ended",
  );
  assert.equal(await Promise.race([ended, sleep(20_000, "still waiting after 20 s", { ref: false })]), "ended");
});
