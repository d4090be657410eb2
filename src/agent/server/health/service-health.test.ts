import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { Agent } from "node:http";
import { connect, createServer } from "node:net";
import { afterEach, beforeEach, test } from "node:test";
import { signalChild } from "../../../kernel/child-process.ts";
import { parseIpAddress } from "../../../net/ip.ts";
import { ask, freePort } from "../testing/http-client.ts";
import { memoryLog } from "../testing/memory-log.ts";
import { ServiceHealth, type ServiceHealthOptions } from "./service-health.ts";

/** Shorter than the limit of idle connections, so that a close that forgets them fails here. */
const CLOSE_LIMIT = { timeout: 30_000 };

let managers: ServiceHealth[] = [];
let isProxyHealthy = true;

beforeEach(() => {
  managers = [];
  isProxyHealthy = true;
});

afterEach(async () => {
  await Promise.all(managers.map((manager) => manager.close()));
});

function manager(options: Partial<ServiceHealthOptions> = {}): ServiceHealth {
  const made = new ServiceHealth({
    family: "IPv4",
    addresses: "all",
    isProxyHealthy: () => isProxyHealthy,
    log: memoryLog(),
    onListenFailure: (service, port, error) => assert.fail(`${service} ${port}: ${error.message}`),
    ...options,
  });
  managers.push(made);
  return made;
}

function ports(entries: Readonly<Record<string, number>>): ReadonlyMap<string, number> {
  return new Map(Object.entries(entries));
}

async function isRefused(port: number, host = "127.0.0.1"): Promise<boolean> {
  return ask(port, "/", { host }).then(
    () => false,
    (error: Error) => /ECONNREFUSED/.test(error.message),
  );
}

test("the answer is upstream's: tab-indented body, weight header, any path and method", async () => {
  const port = await freePort();
  const health = manager();
  await health.syncServices(ports({ "ns/svc": port }));
  health.syncEndpoints(ports({ "ns/svc": 2, "ns/unknown": 9 }));
  const answer = await ask(port, "/any/path", { method: "POST", body: "x" });
  assert.equal(answer.status, 200);
  assert.equal(
    answer.text,
    '{\n\t"service": {\n\t\t"namespace": "ns",\n\t\t"name": "svc"\n\t},\n\t"localEndpoints": 2,\n\t"serviceProxyHealthy": true\n}',
  );
  assert.equal(answer.headers["content-type"], "application/json");
  assert.equal(answer.headers["x-content-type-options"], "nosniff");
  assert.equal(answer.headers["x-load-balancing-endpoint-weight"], "2");
});

test("503 without local endpoints, and while the proxy lags", async () => {
  const port = await freePort();
  const health = manager();
  await health.syncServices(ports({ "ns/svc": port }));
  const empty = await ask(port, "/");
  assert.deepEqual([empty.status, JSON.parse(empty.text).localEndpoints], [503, 0]);
  health.syncEndpoints(ports({ "ns/svc": 1 }));
  assert.equal((await ask(port, "/")).status, 200);
  isProxyHealthy = false;
  const lagging = await ask(port, "/");
  assert.deepEqual([lagging.status, JSON.parse(lagging.text).serviceProxyHealthy], [503, false]);
  isProxyHealthy = true;
  health.syncEndpoints(ports({}));
  assert.equal((await ask(port, "/")).status, 503);
});

test("a service that stays keeps its listener and count; one that goes frees its port", async () => {
  const [kept, gone] = [await freePort(), await freePort()];
  const health = manager();
  await health.syncServices(ports({ "ns/kept": kept, "ns/gone": gone }));
  health.syncEndpoints(ports({ "ns/kept": 3, "ns/gone": 1 }));
  const agent = new Agent({ keepAlive: true });
  await ask(kept, "/", { agent });
  await health.syncServices(ports({ "ns/kept": kept }));
  const answer = await ask(kept, "/", { agent });
  assert.equal(answer.headers["x-load-balancing-endpoint-weight"], "3");
  assert.equal(await isRefused(gone), true);
  agent.destroy();
});

test("counts of changed services alone are taken, and no others are gone through", async () => {
  const [one, other] = [await freePort(), await freePort()];
  const health = manager();
  await health.syncServices(ports({ "ns/one": one, "ns/other": other }));
  health.syncEndpoints(ports({ "ns/one": 1, "ns/other": 1 }));
  const changed = new Set(["ns/one"]);
  changed.has = () => assert.fail("of thousands of services one has changed");
  health.syncEndpoints(ports({ "ns/one": 2, "ns/other": 2 }), changed);
  const counts = [await ask(one, "/"), await ask(other, "/")].map(({ text }) => JSON.parse(text).localEndpoints);
  assert.deepEqual(counts, [2, 1]);
});

test("two services can swap their ports in one sync, and start again from no endpoints", async () => {
  const [first, second] = [await freePort(), await freePort()];
  const health = manager();
  await health.syncServices(ports({ "ns/a": first, "ns/b": second }));
  health.syncEndpoints(ports({ "ns/a": 1, "ns/b": 1 }));
  await health.syncServices(ports({ "ns/a": second, "ns/b": first }));
  const body = JSON.parse((await ask(second, "/")).text);
  assert.deepEqual([body.service.name, body.localEndpoints], ["a", 0]);
});

test("both families can have the same port, each answering for itself", async () => {
  const port = await freePort();
  const [ipv4, ipv6] = [manager({ family: "IPv4" }), manager({ family: "IPv6" })];
  await Promise.all([ipv4.syncServices(ports({ "ns/s": port })), ipv6.syncServices(ports({ "ns/s": port }))]);
  ipv4.syncEndpoints(ports({ "ns/s": 4 }));
  ipv6.syncEndpoints(ports({ "ns/s": 6 }));
  const weight = async (host: string) => (await ask(port, "/", { host })).headers["x-load-balancing-endpoint-weight"];
  assert.deepEqual([await weight("127.0.0.1"), await weight("::1")], ["4", "6"]);
});

test("with fixed addresses nothing else answers", async () => {
  const port = await freePort();
  const address = parseIpAddress("127.0.0.2") ?? assert.fail();
  const health = manager({ addresses: [address] });
  await health.syncServices(ports({ "ns/s": port }));
  assert.equal((await ask(port, "/", { host: "127.0.0.2" })).status, 503);
  assert.equal(await isRefused(port, "127.0.0.1"), true);
});

test("listeners follow the addresses, and one that could not be had is tried again", async () => {
  const port = await freePort();
  const address = (text: string) => parseIpAddress(text) ?? assert.fail();
  const [one, two, absent] = [address("127.0.0.2"), address("127.0.0.3"), address("192.0.2.77")];
  const failures: string[] = [];
  const health = manager({
    addresses: [one],
    onListenFailure: (service) => failures.push(service),
  });
  await health.syncServices(ports({ "ns/s": port }));
  health.syncEndpoints(ports({ "ns/s": 1 }));
  await health.setAddresses([one, two]);
  assert.equal((await ask(port, "/", { host: two })).status, 200);
  await health.setAddresses([two, absent]);
  assert.equal(await isRefused(port, one), true);
  assert.equal((await ask(port, "/", { host: two })).status, 200);
  assert.deepEqual([failures, health.failures.length], [["ns/s"], 1]);
  await health.setAddresses([two]);
  assert.deepEqual(health.failures, []);
});

test("an address that cannot be had keeps no other from being followed", async () => {
  const port = await freePort();
  const address = (text: string) => parseIpAddress(text) ?? assert.fail();
  const [one, two, absent] = [address("127.0.0.2"), address("127.0.0.3"), address("192.0.2.77")];
  const failures: string[] = [];
  const onListenFailure = (service: string, _port: number, { message }: Error) =>
    failures.push(`${service} ${message}`);
  const health = manager({ addresses: [one], onListenFailure });
  await health.syncServices(ports({ "ns/s": port }));
  health.syncEndpoints(ports({ "ns/s": 1 }));
  await health.setAddresses([absent, two]);
  assert.equal((await ask(port, "/", { host: two })).status, 200);
  assert.deepEqual(failures, [`ns/s listen EADDRNOTAVAIL: address not available ${absent}:${port}`]);
});

test("when one address cannot be had the service has none, it is told, and the next sync tries again", async () => {
  const port = await freePort();
  const blocker = createServer();
  await new Promise<void>((resolve) => blocker.listen({ host: "127.0.0.3", port }, resolve));
  const failures: string[] = [];
  const health = manager({
    addresses: ["127.0.0.2", "127.0.0.3"].map((text) => parseIpAddress(text) ?? assert.fail()),
    onListenFailure: (service, failedPort, error) => failures.push(`${service} ${failedPort} ${error.message}`),
  });
  const other = await freePort();
  await health.syncServices(ports({ "ns/s": port, "ns/other": other }));
  assert.equal(failures.length, 1);
  assert.deepEqual(
    health.failures.map(({ subject }) => subject),
    [`health-check port ${port} of ns/s`],
  );
  assert.match(failures[0] ?? "", new RegExp(`^ns/s ${port} listen EADDRINUSE`));
  assert.equal(await isRefused(port, "127.0.0.2"), true);
  assert.equal((await ask(other, "/", { host: "127.0.0.2" })).status, 503, "the other service is served");
  await new Promise<void>((resolve) => blocker.close(() => resolve()));
  await health.syncServices(ports({ "ns/s": port, "ns/other": other }));
  assert.equal((await ask(port, "/", { host: "127.0.0.2" })).status, 503);
  assert.equal(failures.length, 1);
  assert.deepEqual(health.failures, []);
});

test("of changed services alone the ports are opened and closed, and what failed is tried again; nothing else is looked at", async () => {
  const [first, second] = [await freePort(), await freePort()];
  const live = new Map([["ns/a", first]]);
  const counts = new Map([
    ["ns/a", 1],
    ["ns/b", 1],
  ]);
  const blocker = createServer();
  const standing: number[] = [];
  const health = manager({ onListenFailure() {} });
  const sync = async (...changed: string[]): Promise<void> => {
    await health.syncServices(live, new Set(changed));
    health.syncEndpoints(counts, new Set(changed));
    standing.push(health.failures.length);
  };
  await sync("ns/a");
  assert.equal((await ask(first, "/")).status, 200);
  await new Promise<void>((resolve) => blocker.listen({ host: "0.0.0.0", port: second }, resolve));
  live.set("ns/b", second);
  await sync("ns/b");
  await sync("ns/none");
  assert.deepEqual(standing, [0, 1, 1]);
  await new Promise<void>((resolve) => blocker.close(() => resolve()));
  counts.set("ns/a", 0);
  await sync("ns/none");
  assert.equal((await ask(second, "/")).status, 200, "with the count of its endpoints");
  assert.equal((await ask(first, "/")).status, 200, "its endpoints were not said to have changed");
  live.delete("ns/b");
  for (const map of [live, counts]) {
    for (const walk of ["keys", "entries", "values", Symbol.iterator] as const) {
      map[walk] = () => assert.fail("walked over all services");
    }
  }
  await sync("ns/a", "ns/b");
  assert.equal(await isRefused(second), true);
  assert.equal((await ask(first, "/")).status, 503);
  assert.deepEqual(standing, [0, 1, 1, 0, 0]);
});

test("overlapping syncs end in the state of the last one", async () => {
  const candidates = [await freePort(), await freePort(), await freePort()];
  const health = manager();
  await Promise.all(candidates.map((port) => health.syncServices(ports({ "ns/s": port }))));
  assert.deepEqual(await Promise.all(candidates.map((port) => isRefused(port))), [true, true, false]);
});

test("a request on a connection that outlives its service gets an empty 200", async () => {
  const port = await freePort();
  const health = manager();
  await health.syncServices(ports({ "ns/s": port }));
  const agent = new Agent({ keepAlive: true });
  await ask(port, "/", { agent });
  await health.syncServices(ports({}));
  const answer = await ask(port, "/", { agent });
  assert.deepEqual([answer.status, answer.text, answer.headers["content-type"]], [200, "", undefined]);
  agent.destroy();
});

test("close cuts connections and refuses later syncs", CLOSE_LIMIT, async () => {
  const port = await freePort();
  const health = manager();
  await health.syncServices(ports({ "ns/s": port }));
  const socket = connect(port, "127.0.0.1");
  await new Promise<void>((resolve) => socket.once("connect", () => resolve()));
  await ask(port, "/");
  const ended = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  socket.on("error", () => {});
  await health.close();
  await ended;
  await health.syncServices(ports({ "ns/s": port }));
  assert.equal(await isRefused(port), true);
});

test("a process that closed its servers ends, even with clients connected", CLOSE_LIMIT, async (context) => {
  const port = await freePort();
  const from = (file: string) => JSON.stringify(new URL(file, import.meta.url).href);
  const script = `
    const { ServiceHealth } = await import(${from("./service-health.ts")});
    const { startHttpEndpoint } = await import(${from("../http/http-endpoint.ts")});
    const { systemClock } = await import(${from("../../../async/clock.ts")});
    const { silentLogger } = await import(${from("../../../logging/logger.ts")});
    const health = new ServiceHealth({ family: "IPv4", addresses: "all", isProxyHealthy: () => true, log: silentLogger, onListenFailure() {} });
    await health.syncServices(new Map([["ns/s", ${port}]]));
    const stop = new AbortController();
    const endpoint = startHttpEndpoint({ address: "127.0.0.1:0", handler: (q, r) => r.end("x"), log: silentLogger,
      clock: systemClock, signal: stop.signal, isBindHardFail: false, onListenFailure() {}, onHardFail() {} });
    await endpoint.listening;
    process.stdin.once("data", async () => {
      process.stdin.destroy();
      stop.abort();
      await Promise.all([health.close(), endpoint.closed]);
    });
    console.log("ready");`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", script], { stdio: ["pipe", "pipe", "inherit"] });
  context.after(() => signalChild(child, "SIGKILL"));
  await new Promise((resolve) => child.stdout.once("data", resolve));
  const agent = new Agent({ keepAlive: true });
  await ask(port, "/", { agent });
  const exit = new Promise<number | null>((resolve) => child.once("exit", resolve));
  child.stdin.write("stop\n");
  assert.equal(await exit, 0);
  agent.destroy();
});
