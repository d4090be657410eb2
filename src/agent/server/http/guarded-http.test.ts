import assert from "node:assert/strict";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { afterEach, test } from "node:test";
import { until } from "../../../../testkit/support/patience.ts";
import { systemClock } from "../../../async/clock.ts";
import { sharedReading } from "../../../async/shared-reading.ts";
import { FakeClock } from "../../sync/testing/fake-clock.ts";
import { ask } from "../testing/http-client.ts";
import { ConnectionGate, type ConnectionLimits } from "./connection-gate.ts";
import { createGuardedHttp, type GuardedHttpOptions } from "./guarded-http.ts";
import { reply, TEXT } from "./http-reply.ts";
import type { HttpHandler } from "./routes.ts";
import { toPage } from "./shared-page.ts";

const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

const AMPLE: ConnectionLimits = { total: 64, perPeer: 32 };
const hello: HttpHandler = (_request, response) => reply(response, 200, TEXT, "hello");

async function serve(handler: HttpHandler, options: Partial<GuardedHttpOptions & ConnectionLimits> = {}) {
  const gate = new ConnectionGate({ ...AMPLE, ...options });
  const http = createGuardedHttp({ gate, clock: systemClock, ...options });
  const server = createServer({ allowHalfOpen: true }, (socket) => http.accept(socket, handler));
  server.listen({ host: "127.0.0.1", port: 0 });
  await once(server, "listening");
  closers.push(() => {
    server.close();
    http.closeNow();
  });
  const address = server.address();
  return { gate, port: typeof address === "object" && address !== null ? address.port : 0 };
}

async function open(port: number, localAddress = "127.0.0.1"): Promise<Socket> {
  const socket = connect({ host: "127.0.0.1", port, localAddress });
  closers.push(() => socket.destroy());
  socket.on("error", () => {});
  await once(socket, "connect");
  return socket;
}

const get = (path: string, extra = "") => `GET ${path} HTTP/1.1\r\nHost: a\r\n${extra}\r\n`;
const isClosed = async (socket: Socket) => {
  socket.resume();
  if (!socket.closed) await once(socket, "close");
  return true;
};

test("of 1,000 pipelined requests at most 32 are answered, which cost one page, and hold up no other peer", async () => {
  let renders = 0;
  let answers = 0;
  const makePage = async () => {
    renders += 1;
    return toPage("x".repeat(34_000));
  };
  const page = sharedReading(makePage, 100, systemClock);
  const { port, gate } = await serve(async (request, response) => {
    if (request.url === "/health") return reply(response, 200, TEXT, "ok");
    answers += 1;
    reply(response, 200, TEXT, (await page()).bytes);
  });
  let parsed = 0;
  const count = () => {
    parsed += 1;
  };
  subscribe("http.server.request.start", count);
  closers.push(() => unsubscribe("http.server.request.start", count));
  const startMs = performance.now();
  const flooder = await open(port);
  flooder.pause();
  flooder.write(get("/metrics").repeat(1000));
  assert.equal((await ask(port, "/health")).text, "ok");
  await until("the flooder's end", () => gate.size === 0);
  assert.ok(answers <= 32, `${answers}`);
  // The one too many, and the question about health.
  assert.ok(parsed <= 34, `${parsed} parsed`);
  assert.ok(renders <= 1 + (performance.now() - startMs) / 100, `${renders} pages`);
});

test("the 32nd answer of a connection is its last", async () => {
  const { port } = await serve(hello);
  const client = await open(port);
  const answers: string[] = [];
  for (let count = 0; count < 32; count++) {
    client.write(get("/"));
    answers.push(String((await once(client, "data"))[0]));
  }
  assert.ok(await isClosed(client));
  assert.deepEqual(
    [30, 31].map((index) => /connection: close/i.test(answers[index] ?? "")),
    [false, true],
  );
});

/** Sends this many requests at once, ends its half of the connection, and expects `<PATH>` of each in order. */
async function assertAnswered(port: number, requests: number): Promise<void> {
  const client = await open(port);
  const paths = Array.from({ length: requests }, (_, index) => `/${index}`);
  client.end(paths.map((path) => get(path)).join(""));
  let text = "";
  for await (const bytes of client) text += String(bytes);
  assert.deepEqual(
    [...text.matchAll(/<(.*?)>/g)].map(([, path]) => path),
    paths,
  );
}

test("the last requests of a half-closed connection are answered for as long as answers come", async () => {
  const { port } = await serve(async (request, response) => {
    // All are read at once, and take longer than the end of an unanswered connection may be held back.
    await new Promise((resolve) => setTimeout(resolve, 150));
    reply(response, 200, TEXT, `<${request.url}>`);
  });
  await assertAnswered(port, 12);
});

test("a connection is answered one request at a time, in order, a half-closed one too, however long it takes", async () => {
  let running = 0;
  let most = 0;
  const { port } = await serve(async (request, response) => {
    running += 1;
    most = Math.max(most, running);
    // Together they take longer than the second after which an end is reported while an answer is being made.
    await new Promise((resolve) => setTimeout(resolve, 40));
    reply(response, 200, TEXT, `<${request.url}>`);
    running -= 1;
  });
  await assertAnswered(port, 32);
  assert.equal(most, 1);
});

test("a client that hangs up and is given nothing for a second is gone", async () => {
  const clock = new FakeClock();
  let hasEnded = false;
  const never: HttpHandler = (request) => void request.socket.once("end", () => (hasEnded = true));
  const { port, gate } = await serve(never, { clock });
  const client = await open(port);
  client.end(get("/never"));
  await until("its end", () => hasEnded);
  await clock.advance(999);
  assert.equal(gate.size, 1);
  await clock.advance(1);
  await until("it to be gone", () => gate.size === 0);
});

test("between two answers of one connection the others have their turn", async () => {
  let firsts = 0;
  let seen = -1;
  const { port } = await serve((request, response) => {
    if (request.url === "/other") seen = firsts;
    else firsts += 1;
    reply(response, 200, TEXT, "ok");
  });
  const flooder = await open(port);
  const other = await open(port);
  flooder.resume();
  flooder.write(get("/flood").repeat(32));
  other.write(get("/other"));
  await until("the answer to the other", () => seen >= 0);
  assert.ok(seen < 32, `after ${seen}`);
});

test("a body larger than what is read at a time reaches its handler", async () => {
  const { port } = await serve(async (request, response) => {
    let size = 0;
    for await (const bytes of request) size += Buffer.from(bytes).length;
    reply(response, 200, TEXT, `${size}`);
  });
  assert.equal((await ask(port, "/", { method: "PUT", body: "b".repeat(50_000) })).text, "50000");
});

test("who has not asked within 10 s is closed, byte by byte too; who has been answered may wait for 120 s", async () => {
  const clock = new FakeClock();
  const { port, gate } = await serve(hello, { clock });
  const slow = await open(port);
  const kept = await open(port);
  slow.write("GET / HT");
  kept.write(get("/"));
  await once(kept, "data");
  await until("two connections in the gate", () => gate.size === 2);
  await clock.advance(9_999);
  assert.equal(gate.size, 2);
  slow.write("TP/1.1\r\nHost:");
  await clock.advance(1);
  assert.ok(await isClosed(slow));
  await clock.advance(109_999);
  await until("one connection in the gate", () => gate.size === 1);
  await clock.advance(1);
  assert.ok(await isClosed(kept));
  await until("an empty gate", () => gate.size === 0);
  assert.equal(clock.timerCount, 0);
});

test("a body that does not come is waited for 10 s", async () => {
  const clock = new FakeClock();
  const entered = Promise.withResolvers<void>();
  const { port } = await serve(
    async (request) => {
      entered.resolve();
      request.resume();
      await once(request, "end").catch(() => {});
    },
    { clock },
  );
  const client = await open(port);
  client.write("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx");
  await entered.promise;
  await clock.advance(10_000);
  assert.ok(await isClosed(client));
});

test("a peer that holds all it may have keeps out neither others nor its own probes", async () => {
  const { port, gate } = await serve(hello, { total: 20, perPeer: 8 });
  const held = await Promise.all(Array.from({ length: 60 }, () => open(port)));
  assert.equal(held.length, 60);
  await until("eight connections in the gate", () => gate.size === 8);
  assert.equal((await ask(port, "/")).text, "hello");
  for (const localAddress of ["127.0.0.2", "127.0.0.3"]) {
    for (let count = 0; count < 8; count++) await open(port, localAddress);
  }
  assert.equal((await ask(port, "/")).text, "hello");
  const scraper = await open(port, "127.0.0.9");
  scraper.write(get("/"));
  assert.match(String((await once(scraper, "data"))[0]), /hello$/);
  assert.ok(gate.size <= 20, `${gate.size}`);
});

test("bytes that are no HTTP get a 400, and the connection is closed", async () => {
  const { port, gate } = await serve(hello);
  const client = await open(port);
  client.write("\u0000\u0001\r\n\r\n");
  assert.match(String((await once(client, "data"))[0]), /^HTTP\/1\.1 400 /);
  assert.ok(await isClosed(client));
  await until("an empty gate", () => gate.size === 0);
});
