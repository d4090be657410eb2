/** A half-open connection: the network silently drops all its packets in both directions. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { createApiClient } from "../../src/agent/cluster/apiserver/connection/api-client.ts";
import { ApiError } from "../../src/agent/cluster/apiserver/connection/api-error.ts";
import { UNSAID } from "../../src/agent/cluster/apiserver/connection/client-config.ts";
import type { ApiRequest, ApiResponse, Transport } from "../../src/agent/cluster/apiserver/connection/transport.ts";
import { recordingLog } from "../../src/agent/cluster/apiserver/testing/recording-log.ts";
import { systemClock } from "../../src/async/clock.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { PATIENCE, until } from "../../testkit/support/patience.ts";
import { node, service } from "./example-objects.ts";
import { startSource } from "./source-under-test.ts";
import { TestApiServer } from "./test-api-server.ts";

/** Upstream's limit: HTTP/2 pings after 30 s, and a timeout of 15 s. */
const LIMIT_MS = 45_000;
const never = new AbortController().signal;
const LIST: ApiRequest = { verb: "list", resource: "services", method: "GET", path: "/api/v1/services" };

/** Drops every packet of the connections with these client ports; other connections work. */
function losePackets(ports: readonly number[]): void {
  const rules = ["sport", "dport"].map(
    (side) => `add rule inet kpts-half-open input tcp ${side} { ${ports.join(", ")} } drop`,
  );
  const input = [
    "add table inet kpts-half-open",
    "flush table inet kpts-half-open",
    "add chain inet kpts-half-open input { type filter hook input priority -300; }",
    ...rules,
  ].join("\n");
  execFileSync("nft", ["-f", "-"], { input });
}

function transportTo(server: TestApiServer, host: string): Transport {
  const client = createApiClient({
    config: {
      ...UNSAID,
      server: new URL(`https://${host}:${server.port}`),
      ca: { kind: "data", text: server.authority.certificate },
    },
    qps: -1,
    burst: 0,
    version: "v1.36.2",
    product: "kube-proxy-ts/1.2.3 (abc)",
    clock: systemClock,
    log: recordingLog(),
  });
  return client.newTransport();
}

async function readAll({ body }: ApiResponse): Promise<void> {
  for await (const chunk of body) void chunk;
}

inNetns(import.meta.url, { name: "halfopen", timeoutMs: 150_000 }, () => {
  test("a connection that is dead is found within 45 s, quiet watches and sent requests alike", async (t) => {
    const source = await startSource(t, {
      clock: systemClock,
      prepare: (s) => s.put("nodes", node("node-a")),
    });
    const { server, sink, log } = source;
    const transport = transportTo(server, "127.0.0.1");
    t.after(async () => transport.close());
    await readAll(await transport.send(LIST, never));
    await until("the watches", () => server.watches().length === 4);
    const watches = server.requests.length;
    assert.equal(server.connections, 5);

    losePackets(server.clientPorts);
    server.put("services", service(1));
    const startMs = performance.now();
    const sent = transport.send(LIST, never).then(readAll);
    const sentMs = sent.then(
      () => assert.fail("it was answered"),
      (error: unknown) => {
        assert.ok(error instanceof ApiError && error.code === "timeout", String(error));
        return performance.now() - startMs;
      },
    );
    await until("the change", () => sink.state.services.has("default/svc-1"), { patienceMs: 2 * LIMIT_MS });
    const watchMs = performance.now() - startMs;
    await until("all watches again", () => server.requests.length >= watches + 4, { patienceMs: LIMIT_MS });
    const allMs = performance.now() - startMs;
    t.diagnostic(`request ${await sentMs} ms, first change ${watchMs} ms, all watches again ${allMs} ms`);
    assert.ok((await sentMs) <= LIMIT_MS * PATIENCE, `a request that was sent: ${await sentMs} ms`);
    assert.ok(allMs <= LIMIT_MS * PATIENCE, `quiet watches: ${allMs} ms`);
    assert.deepEqual(log.complaints(), [], "that is ordinary");
  });

  test("a server whose packets are lost is tried again after three seconds, and not when the kernel thinks so", async (t) => {
    const server = await TestApiServer.start();
    t.after(() => server.close());
    losePackets([server.port]);
    for (const host of ["127.0.0.1", "localhost"]) {
      const transport = transportTo(server, host);
      const startMs = performance.now();
      await assert.rejects(transport.send(LIST, never), (error: unknown) => {
        assert.ok(error instanceof ApiError && error.code === "timeout", String(error));
        assert.equal(error.facts.reached, "absent");
        assert.match(error.message, /nothing arrived for 3 s/);
        return true;
      });
      const tookMs = performance.now() - startMs;
      assert.ok(tookMs >= 2_900 && tookMs < 8_000 * PATIENCE, `${host}: ${tookMs} ms`);
      transport.close();
    }
  });
});
