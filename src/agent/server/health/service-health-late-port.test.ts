import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { test } from "node:test";
import { parseIpAddress } from "../../../net/ip.ts";
import { FakeClock } from "../../sync/testing/fake-clock.ts";
import { ask, freePort } from "../testing/http-client.ts";
import { memoryLog } from "../testing/memory-log.ts";
import { ServiceHealth } from "./service-health.ts";

test("a port that could not be opened by the sync, and is opened when the node's addresses are looked at, knows its endpoints", async (t) => {
  const port = await freePort();
  const host = parseIpAddress("127.0.0.2");
  assert.ok(host !== undefined);
  const failures: string[] = [];
  const health = new ServiceHealth({
    family: "IPv4",
    addresses: [host],
    isProxyHealthy: () => true,
    log: memoryLog(),
    onListenFailure: (service) => failures.push(service),
  });
  t.after(() => health.close());
  // Anything can make the first attempt fail: an IPv6 address that is still tentative, a process that is ending.
  const holder = createServer().listen({ host, port });
  await once(holder, "listening");

  const ports = new Map([["ns/svc", port]]);
  const counts = new Map([["ns/svc", 2]]);
  await health.syncServices(ports, new Set(["ns/svc"]));
  health.syncEndpoints(counts, new Set(["ns/svc"]));
  // Pod addresses come and go all the time: that is no news.
  await health.setAddresses([host]);
  assert.deepEqual(failures, ["ns/svc"]);

  holder.close();
  await once(holder, "close");
  // The notification of an address of the node; the selected ones are the same, so no sync follows.
  await health.setAddresses([host]);
  const answer = await ask(port, "/", { host: "127.0.0.2" });
  assert.deepEqual([answer.status, JSON.parse(answer.text).localEndpoints], [200, 2]);
});

test("a port that another process held opens soon after it is free, with its endpoints, though no sync follows", {
  timeout: 30_000,
}, async (t) => {
  const port = await freePort();
  const clock = new FakeClock();
  const told: string[] = [];
  const health = new ServiceHealth({
    family: "IPv4",
    addresses: "all",
    isProxyHealthy: () => true,
    clock,
    log: memoryLog(),
    onListenFailure: (service) => told.push(service),
  });
  t.after(() => health.close());
  // A daemon that is being replaced and has not ended yet.
  const holder = createServer().listen({ host: "0.0.0.0", port });
  await once(holder, "listening");
  const ports = new Map([["ns/svc", port]]);
  await health.syncServices(ports, new Set(["ns/svc"]));
  health.syncEndpoints(new Map([["ns/svc", 2]]), new Set(["ns/svc"]));

  await clock.advance(5_000);
  // The reason is the same: it must not flood log and events.
  await health.syncServices(ports, new Set());
  assert.deepEqual(told, ["ns/svc", "ns/svc"]);
  holder.close();
  await once(holder, "close");
  await clock.advance(5_000);
  while (health.failures.length > 0) await new Promise((resolve) => setImmediate(resolve));
  const answer = await ask(port, "/");
  assert.deepEqual([answer.status, JSON.parse(answer.text).localEndpoints], [200, 2]);
  await health.close();
  assert.equal(clock.timerCount, 0);
});
