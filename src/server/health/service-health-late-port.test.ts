import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { test } from "node:test";
import { parseIpAddress } from "../../net/ip.ts";
import { ask, freePort } from "../testing/http-client.ts";
import { memoryLog } from "../testing/memory-log.ts";
import { createServiceHealth } from "./service-health.ts";

test("a port that could not be opened by the sync, and is opened when the node's addresses are looked at, knows its endpoints", async (t) => {
  const port = await freePort();
  const host = parseIpAddress("127.0.0.2");
  assert.ok(host !== undefined);
  const failures: string[] = [];
  const health = createServiceHealth({
    family: "IPv4",
    addresses: [host],
    isProxyHealthy: () => true,
    log: memoryLog(),
    onListenFailure: (service) => failures.push(service),
  });
  t.after(() => health.close());
  // As anything that lets the first attempt fail: an IPv6 address that is still tentative, a process that is ending.
  const holder = createServer().listen({ host, port });
  await once(holder, "listening");

  const ports = new Map([["ns/svc", port]]);
  const counts = new Map([["ns/svc", 2]]);
  await health.syncServices(ports, new Set(["ns/svc"]));
  health.syncEndpoints(counts, new Set(["ns/svc"]));
  assert.deepEqual(failures, ["ns/svc"]);

  holder.close();
  await once(holder, "close");
  // The announcement of an address of the node; the selected ones are the same, so no sync follows.
  await health.setAddresses([host]);
  const answer = await ask(port, "/", { host: "127.0.0.2" });
  assert.deepEqual([answer.status, JSON.parse(answer.text).localEndpoints], [200, 2]);
});
