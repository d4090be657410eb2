import assert from "node:assert/strict";
import { Session } from "node:inspector/promises";
import { type TestContext, test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { FakeClock } from "../../sync/testing/fake-clock.ts";
import { startHttpEndpoint } from "../http/http-endpoint.ts";
import { routePaths } from "../http/routes.ts";
import { ask } from "../testing/http-client.ts";
import { memoryLog } from "../testing/memory-log.ts";
import { profilingPages } from "./debug-pages.ts";

async function start(t: TestContext): Promise<number> {
  const stop = new AbortController();
  const endpoint = startHttpEndpoint({
    address: "127.0.0.1:0",
    handler: routePaths(profilingPages()),
    log: memoryLog(),
    clock: new FakeClock(),
    signal: stop.signal,
    isBindHardFail: false,
    onListenFailure: () => {},
    onHardFail: () => {},
  });
  t.after(async () => {
    stop.abort();
    await endpoint.closed;
  });
  return (await endpoint.listening)?.port ?? 0;
}

test("upstream's addresses lead to an index, and profiles that do not exist are named so", async (t) => {
  const port = await start(t);
  const { status, headers } = await ask(port, "/debug/pprof");
  assert.deepEqual([status, headers.location], [302, "/debug/pprof/"]);
  const index = await ask(port, "/debug/pprof/");
  assert.equal(index.status, 200);
  for (const [, path = ""] of index.text.matchAll(/href="([a-z]+)/g)) {
    assert.notEqual((await ask(port, `/debug/pprof/${path}?seconds=999`)).status, 404, path);
  }
  for (const unknown of ["cmdline", "goroutine", "trace"]) {
    const answer = await ask(port, `/debug/pprof/${unknown}`);
    assert.deepEqual([answer.status, answer.text], [404, "Unknown profile\n"]);
  }
});

function burn(milliseconds: number): void {
  const end = performance.now() + milliseconds;
  while (performance.now() < end) Math.sqrt(end);
}

test("a CPU profile names the functions that ran, and is recorded one at a time", async (t) => {
  const ended = t.mock.method(Session.prototype, "disconnect");
  const port = await start(t);
  const profile = ask(port, "/debug/pprof/profile?seconds=1");
  const other = await ask(port, "/debug/pprof/allocs?seconds=1");
  assert.equal(other.status, 500);
  assert.match(other.text, /another profile is being recorded/);
  burn(200);
  const { status, headers, text } = await profile;
  assert.equal(status, 200);
  assert.equal(headers["content-disposition"], 'attachment; filename="kube-proxy.cpuprofile"');
  const { nodes }: { nodes: { callFrame: { functionName: string } }[] } = JSON.parse(text);
  assert.ok(nodes.some(({ callFrame }) => callFrame.functionName === "burn"));
  assert.equal(ended.mock.callCount(), 1, "the inspector's session has ended");
});

/** Sampled bytes of everything in the tree. */
function bytesOf({ selfSize, children }: ProfileNode): number {
  return selfSize + children.reduce((sum, child) => sum + bytesOf(child), 0);
}

interface ProfileNode {
  readonly selfSize: number;
  readonly children: readonly ProfileNode[];
}

function collectGarbage(): void {
  setFlagsFromString("--expose-gc");
  runInNewContext("gc()");
}

test("an allocation profile has what was allocated, or what is left of that", async (t) => {
  const port = await start(t);
  const profile = async (query: string): Promise<number> => {
    const asked = ask(port, `/debug/pprof/allocs?seconds=1${query}`);
    // Unreferenced objects are collected at each turn: what lives does not depend on when the engine would have collected it.
    const allocating = setInterval(() => {
      Array.from({ length: 100_000 }, (_, index) => ({ index }));
      collectGarbage();
    }, 20);
    const { text } = await asked;
    clearInterval(allocating);
    return bytesOf(JSON.parse(text).head);
  };
  const all = await profile("");
  const live = await profile("&live");
  assert.ok(all > 4 * live, `${all} bytes in all, ${live} of them live`);
});

test("a reader that goes away ends the recording", async (t) => {
  const port = await start(t);
  const gone = new AbortController();
  const asked = fetch(`http://127.0.0.1:${port}/debug/pprof/profile?seconds=200`, { signal: gone.signal });
  let isBusy = false;
  while (!isBusy) isBusy = (await ask(port, "/debug/pprof/allocs?seconds=1")).status === 500;
  gone.abort();
  await assert.rejects(asked);
  while ((await ask(port, "/debug/pprof/allocs?seconds=1")).status === 500);
});

test("more than five minutes are refused before anything is recorded", async (t) => {
  const port = await start(t);
  const { status, text } = await ask(port, "/debug/pprof/profile?seconds=301");
  assert.deepEqual([status, text], [400, "seconds must be at most 300\n"]);
});
