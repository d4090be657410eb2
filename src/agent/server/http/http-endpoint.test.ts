import assert from "node:assert/strict";
import { Agent, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer, type Server } from "node:net";
import { afterEach, beforeEach, test } from "node:test";
import { FakeClock } from "../../sync/testing/fake-clock.ts";
import { ask } from "../testing/http-client.ts";
import { memoryLog } from "../testing/memory-log.ts";
import { type HttpEndpoint, type HttpEndpointOptions, startHttpEndpoint } from "./http-endpoint.ts";
import { reply, TEXT } from "./http-reply.ts";
import { parseListenAddress } from "./listen-address.ts";
import { routePaths } from "./routes.ts";

let stop = new AbortController();
let endpoints: HttpEndpoint[] = [];

beforeEach(() => {
  stop = new AbortController();
  endpoints = [];
});

afterEach(async () => {
  stop.abort();
  await Promise.all(endpoints.map(({ closed }) => closed));
});

function start(options: Partial<HttpEndpointOptions> = {}): HttpEndpoint {
  const endpoint = startHttpEndpoint({
    address: "127.0.0.1:0",
    handler: (_request, response) => reply(response, 200, TEXT, "hello"),
    log: memoryLog(),
    clock: new FakeClock(),
    signal: stop.signal,
    isBindHardFail: false,
    onListenFailure: () => {},
    onHardFail: () => {},
    ...options,
  });
  endpoints.push(endpoint);
  return endpoint;
}

async function portOf(endpoint: HttpEndpoint): Promise<number> {
  const address = await endpoint.listening;
  assert.ok(address !== undefined, "it listens");
  return address.port;
}

/** Holds a port until closed. */
async function occupy(host: string): Promise<{ readonly port: number; release(): Promise<void> }> {
  const server: Server = createServer();
  const port = await new Promise<number>((resolve) => {
    server.listen({ host, port: 0 }, () => {
      const address = server.address();
      resolve(typeof address === "object" && address !== null ? address.port : 0);
    });
  });
  return { port, release: () => new Promise((resolve) => server.close(() => resolve())) };
}

const addresses: readonly [text: string, host: string | undefined, port: number | undefined][] = [
  ["10.0.0.1:80", "10.0.0.1", 80],
  ["[fd00::0:1]:10256", "fd00::1", 10256],
  ["0.0.0.0:0", "0.0.0.0", 0],
  [":10256", undefined, undefined],
  ["localhost:80", undefined, undefined],
  ["fd00::1:80", undefined, undefined],
  ["10.0.0.1:65536", undefined, undefined],
  ["10.0.0.1", undefined, undefined],
  ["", undefined, undefined],
];
for (const [text, host, port] of addresses) {
  test(`the address "${text}" is ${host === undefined ? "refused" : "taken apart"}`, () => {
    const parsed = parseListenAddress(text);
    assert.deepEqual([parsed?.host, parsed?.port], [host, port]);
  });
}

test("an address that is not IP:port is a clear error", () => {
  assert.throws(() => start({ address: "localhost:80" }), /cannot listen on "localhost:80": expected IP:port/);
});

for (const wildcard of ["0.0.0.0:0", "[::]:0"]) {
  test(`${wildcard} answers on both families`, async () => {
    const port = await portOf(start({ address: wildcard }));
    assert.equal((await ask(port, "/", { host: "127.0.0.1" })).text, "hello");
    assert.equal((await ask(port, "/", { host: "::1" })).text, "hello");
  });
}

test("a specific address answers on that address only", async () => {
  const port = await portOf(start({ address: "127.0.0.1:0" }));
  await assert.rejects(ask(port, "/", { host: "::1" }));
});

test("a taken port is tried again every five seconds until it is free", async () => {
  const blocker = await occupy("127.0.0.1");
  const clock = new FakeClock();
  const failures: string[] = [];
  const failed = Promise.withResolvers<void>();
  const failedTwice = Promise.withResolvers<void>();
  const endpoint = start({
    address: `127.0.0.1:${blocker.port}`,
    clock,
    onListenFailure(error) {
      failures.push(error.message);
      (failures.length === 1 ? failed : failedTwice).resolve();
    },
  });
  await failed.promise;
  await clock.advance(4_999);
  assert.equal(failures.length, 1);
  await clock.advance(1);
  await failedTwice.promise;
  assert.match(failures[0] ?? "", /EADDRINUSE/);
  await blocker.release();
  await clock.advance(5_000);
  assert.equal((await ask(await portOf(endpoint), "/")).text, "hello");
});

test("with hard fail the first failure is the last and its reason is told", async () => {
  const blocker = await occupy("127.0.0.1");
  const reasons: string[] = [];
  const clock = new FakeClock();
  const endpoint = start({
    address: `127.0.0.1:${blocker.port}`,
    clock,
    isBindHardFail: true,
    onHardFail: (reason) => reasons.push(reason),
  });
  assert.equal(await endpoint.listening, undefined);
  assert.equal(reasons.length, 1);
  assert.match(reasons[0] ?? "", /EADDRINUSE/);
  assert.equal(clock.timerCount, 0);
  await blocker.release();
});

test("abort while waiting for a retry ends it and leaves no timer", async () => {
  const blocker = await occupy("127.0.0.1");
  const clock = new FakeClock();
  const failed = Promise.withResolvers<void>();
  const endpoint = start({ address: `127.0.0.1:${blocker.port}`, clock, onListenFailure: () => failed.resolve() });
  await failed.promise;
  await clock.settle();
  stop.abort();
  await endpoint.closed;
  assert.deepEqual([await endpoint.listening, clock.timerCount], [undefined, 0]);
  await blocker.release();
});

test("abort lets a running request finish, closes idle connections and frees the port", async () => {
  const entered = Promise.withResolvers<void>();
  const release = Promise.withResolvers<void>();
  const endpoint = start({
    handler: async (request: IncomingMessage, response: ServerResponse) => {
      if (request.url === "/slow") {
        entered.resolve();
        await release.promise;
      }
      reply(response, 200, TEXT, "done");
    },
  });
  const port = await portOf(endpoint);
  const agent = new Agent({ keepAlive: true });
  await ask(port, "/", { agent });
  const slow = ask(port, "/slow");
  await entered.promise;
  stop.abort();
  await assert.rejects(ask(port, "/"), /ECONNREFUSED/);
  release.resolve();
  assert.equal((await slow).text, "done");
  await endpoint.closed;
  agent.destroy();
});

test("a request that does not end is cut a second after abort", async () => {
  const clock = new FakeClock();
  const entered = Promise.withResolvers<void>();
  const endpoint = start({ clock, handler: () => entered.resolve() });
  const isCut = assert.rejects(ask(await portOf(endpoint), "/"), /socket hang up|ECONNRESET/);
  await entered.promise;
  stop.abort();
  await clock.advance(1_000);
  await isCut;
  await endpoint.closed;
  assert.equal(clock.timerCount, 0);
});

test("a handler that fails answers 500 and is logged with the path", async () => {
  const log = memoryLog();
  const endpoint = start({
    log,
    handler: async () => {
      throw new Error("broken");
    },
  });
  const answer = await ask(await portOf(endpoint), "/x");
  assert.deepEqual([answer.status, answer.text], [500, "internal error\n"]);
  assert.deepEqual(log.errors, ["HTTP handler failed: broken"]);
});

test("paths match exactly, for any method; below a /* everything matches", async () => {
  const named = (name: string) => (_request: IncomingMessage, response: ServerResponse) =>
    reply(response, 200, TEXT, name);
  const port = await portOf(
    start({ handler: routePaths({ "/a": named("a"), "/a/b": named("b"), "/tree/*": named("tree") }) }),
  );
  const text = async (path: string, method = "GET") => {
    const answer = await ask(port, path, { method });
    return answer.status === 200 ? answer.text : answer.status;
  };
  assert.deepEqual(await Promise.all([text("/a"), text("/a?x=1"), text("/a/b"), text("/a", "POST")]), [
    "a",
    "a",
    "b",
    "a",
  ]);
  // As a proxy sends it; the query is not part of the path.
  assert.deepEqual(await Promise.all([text("http://10.0.0.1:10256/a"), text("HTTP://a/a?x=http://b/c")]), ["a", "a"]);
  assert.deepEqual(await Promise.all([text("http://a"), text("http://a?/a"), text("ftp://a/a")]), [404, 404, 404]);
  assert.deepEqual(await Promise.all([text("/tree/x/y"), text("/tree/"), text("/a", "DELETE")]), ["tree", "tree", "a"]);
  const missing = ["/", "/a/", "//a", "/A", "/a/b/c", "/%zz", "/a%2fb", "/__proto__", "/tree"];
  assert.deepEqual(
    await Promise.all(missing.map((path) => text(path))),
    missing.map(() => 404),
  );
});
