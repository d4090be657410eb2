/** Questions to the page of clients that do not wait for an answer, or ask too many. */
import assert from "node:assert/strict";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { until } from "../../testkit/support/patience.ts";
import { examplesAsJson } from "../cli/run-command.ts";
import { servedPage } from "./page-daemon.ts";

const { items } = JSON.parse(examplesAsJson()) as { items: unknown[] };
const KNOWN = `/api/service?key=${encodeURIComponent("shop/web:http/TCP")}&traffic`;

/** A page whose kernel counts for as long as `release` has not been called; `counted` is how often it was asked. */
async function countingPage(t: TestContext) {
  const { promise, resolve } = Promise.withResolvers<void>();
  let counted = 0;
  const counting = async (): Promise<void> => {
    counted += 1;
    await promise;
  };
  const open = new Set<unknown>();
  const note = (message: unknown): void => {
    const { socket } = message as { readonly socket: Socket };
    open.add(socket.once("close", () => open.delete(socket)));
  };
  subscribe("net.server.socket", note);
  t.after(() => unsubscribe("net.server.socket", note));
  const { url } = await servedPage(t, { items, counting });
  const port = Number(new URL(url).port);
  /** Sends requests on a connection of their own. */
  const ask = async (text: string): Promise<Socket> => {
    const socket = connect({ host: "127.0.0.1", port });
    t.after(() => socket.destroy());
    socket.on("error", () => {});
    await once(socket, "connect");
    socket.write(text);
    return socket;
  };
  t.after(() => resolve());
  /** Ends connections, and waits until the page has seen that. @param left that stay. */
  const hangUp = async (sockets: readonly Socket[], left: number): Promise<void> => {
    for (const socket of sockets) socket.resetAndDestroy();
    await until("the end of connections", () => open.size === left);
  };
  return { url, ask, hangUp, release: resolve, counted: () => counted };
}

const get = (path: string, host = "127.0.0.1") => `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`;

async function answerOn(socket: Socket): Promise<string> {
  let text = "";
  socket.setEncoding("utf8").on("data", (part: string) => {
    text += part;
  });
  await until("an answer", () => text.includes("\r\n\r\n"));
  return text;
}

test("questions of clients that have hung up are not answered", async (t) => {
  const { ask, hangUp, url, release, counted } = await countingPage(t);
  await ask(get(KNOWN));
  await until("the first question", () => counted() === 1);
  const others = await Promise.all(Array.from({ length: 10 }, () => ask(get(KNOWN))));
  // Those wait behind the first.
  await new Promise((resolve) => setTimeout(resolve, 100));
  await hangUp(others, 1);
  const last = fetch(`${url}${KNOWN.slice(1)}`);
  release();
  assert.equal((await last).status, 200);
  assert.equal(counted(), 2);
});

test("one that has hung up takes no place; beyond twelve questions the answer is 503 with Retry-After", async (t) => {
  const { ask, hangUp, release, counted } = await countingPage(t);
  const kept: Socket[] = [await ask(get(KNOWN))];
  await until("the first question", () => counted() === 1);
  for (let round = 0; round < 8; round += 1) {
    const gone = await Promise.all(Array.from({ length: 10 }, () => ask(get(KNOWN))));
    await new Promise((resolve) => setTimeout(resolve, 50));
    await hangUp(gone, 1);
  }
  for (let more = 0; more < 11; more += 1) kept.push(await ask(get(KNOWN)));
  await new Promise((resolve) => setTimeout(resolve, 200));
  const refused = await answerOn(await ask(get("/api/services")));
  assert.match(refused, /^HTTP\/1\.1 503 /);
  assert.match(refused, /\r\nRetry-After: 1\r\n/);
  assert.match(refused, /\{"error":"Too many requests are waiting for an answer\."\}$/);
  // What takes no turn is answered all the same.
  assert.match(await answerOn(await ask(get("/api/state"))), /^HTTP\/1\.1 200 /);
  for (const socket of kept.slice(1)) socket.resetAndDestroy();
  release();
  assert.match(await answerOn(kept[0] ?? assert.fail()), /^HTTP\/1\.1 200 /);
});

test("a service port that is not served is refused at once, however often the kernel is asked", async (t) => {
  const { url, release } = await countingPage(t);
  release();
  assert.equal((await fetch(`${url}${KNOWN.slice(1)}`)).status, 200);
  const beginMs = performance.now();
  for (let count = 0; count < 5; count += 1) {
    assert.equal((await fetch(`${url}api/service?key=x&traffic`)).status, 404);
  }
  // Each took a second, less what has passed since the count before.
  assert.ok(performance.now() - beginMs < 900, `${performance.now() - beginMs} ms`);
});

test("a request for another host is refused, wherever it names it, and one with two hosts as well", async (t) => {
  const { ask } = await countingPage(t);
  const status = async (request: string) => /^HTTP\/1\.1 (\d+) /.exec(await answerOn(await ask(request)))?.[1];
  assert.equal(await status(get("http://127.0.0.1/api/state")), "200");
  assert.equal(await status(get("http://127.0.0.1/api/state", "elsewhere.example")), "200");
  for (const address of [
    "http://evil.example/api/state",
    "http://x@127.0.0.1/",
    "HTTP://127.0.0.1.nip.io?x",
    "http://",
  ]) {
    assert.equal(await status(get(address)), "421", address);
  }
  assert.equal(await status(get("/api/state").replace("\r\n\r\n", "\r\nHost: 127.0.0.1\r\n\r\n")), "400");
  assert.equal(await status(get("/api/state").replace("\r\n\r\n", "\r\nhost: x\r\nHOST: y\r\n\r\n")), "400");
});
