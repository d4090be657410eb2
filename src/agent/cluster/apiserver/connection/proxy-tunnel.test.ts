/** A proxy that establishes no tunnel: both the request and the connection to the proxy end. */
import assert from "node:assert/strict";
import type { Duplex } from "node:stream";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../../../../../testkit/support/patience.ts";
import { startProxy } from "../testing/test-proxy.ts";
import { transportWith } from "../testing/transport-with.ts";
import { ApiError } from "./api-error.ts";

const WAITS = "still waiting after 5 s";

/** Sends a list through a proxy that runs `answer`. @returns the outcome, and the proxy's open connections. */
async function listThrough(
  t: TestContext,
  answer: (connection: Duplex) => void,
  { signal = new AbortController().signal, idleMs = 500 } = {},
) {
  const { url: proxyUrl, connections } = await startProxy(t, answer);
  const transport = transportWith({ server: new URL("https://10.1.2.3:6443"), proxyUrl });
  t.after(() => transport.close());
  const request = { verb: "list", resource: "services", method: "GET", path: "/", idleMs } as const;
  const sent = transport.send(request, signal).then(
    () => "answered",
    (error: unknown) => error,
  );
  const ended = await Promise.race([sent, sleep(5_000, WAITS, { ref: false })]);
  return { ended, connections };
}

const bytes = (text: string) => (connection: Duplex) => void connection.resume().write(text);
const ESTABLISHED = "HTTP/1.1 200 Connection established\r\n\r\n";
const REFUSAL = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html\r\n\r\n";

test("a tunnel whose other end says nothing is given up, handshake or not", async (t) => {
  const { ended, connections } = await listThrough(t, bytes(ESTABLISHED));
  assert.ok(ended instanceof ApiError, String(ended));
  assert.equal(ended.code, "timeout");
  await until("the connection to end", () => connections.size === 0, { patienceMs: 3_000 });
});

test("a proxy that refuses and keeps its connection", async (t) => {
  const { ended, connections } = await listThrough(t, bytes(REFUSAL));
  assert.match(String(ended), /HTTP\/1\.1 503 Service Unavailable/);
  await until("the connection to end", () => connections.size === 0, { patienceMs: 3_000 });
});

test("a proxy that refuses, and whose connection then breaks, does not end the program", async (t) => {
  let wasReset = false;
  const { ended } = await listThrough(t, (connection) => {
    bytes(REFUSAL)(connection);
    setTimeout(() => {
      if ("resetAndDestroy" in connection && typeof connection.resetAndDestroy === "function")
        connection.resetAndDestroy();
      wasReset = true;
    }, 200);
  });
  assert.match(String(ended), /HTTP\/1\.1 503 Service Unavailable/);
  await until("the end of the connection", () => wasReset);
  await sleep(100);
});

test("an abort ends a tunnel that is not through yet", async (t) => {
  const options = { signal: AbortSignal.timeout(200), idleMs: 20_000 };
  const { ended, connections } = await listThrough(t, bytes(ESTABLISHED), options);
  assert.match(String(ended), /stopped/);
  await until("the connection to end", () => connections.size === 0, { patienceMs: 3_000 });
});
