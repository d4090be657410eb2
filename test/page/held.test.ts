/** Questions about the state that wait for a change: the daemon answers them then, and not before. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { StateAnswer } from "../../src/tools/page/answers.ts";
import { until } from "../../testkit/support/patience.ts";
import { type PageOptions, servedPage, syncRecord } from "./page-daemon.ts";

/** What the daemon answers to one who knows the state. */
async function holding(t: TestContext, options: Partial<PageOptions> = {}) {
  const served = await servedPage(t, { items: [], ...options });
  const { url, journal } = served;
  const first = await fetch(`${url}api/state`);
  await first.text();
  const tag = String(first.headers.get("etag"));
  /** Asks on a connection of its own. */
  const ask = async () => {
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    t.after(() => socket.destroy());
    let text = "";
    socket.setEncoding("utf8").on("data", (part: string) => {
      text += part;
    });
    await once(socket, "connect");
    socket.write(`GET /api/state?hold HTTP/1.1\r\nHost: 127.0.0.1\r\nIf-None-Match: ${tag}\r\n\r\n`);
    return {
      socket,
      status: () => /^HTTP\/1\.1 (\d+)/.exec(text)?.[1],
      body: () => JSON.parse(text.replace(/^.*?\r\n\r\n/s, "")) as StateAnswer,
    };
  };
  const held = async (count: number): Promise<void> => {
    await until(`${count} held`, () => journal.readers === count);
  };
  return { ...served, ask, held };
}

test("what is known is held until there is a sync, and then told at once", async (t) => {
  const { ask, held, journal } = await holding(t);
  const one = await ask();
  await held(1);
  await sleep(1_500);
  assert.equal(one.status(), undefined);
  journal.add(syncRecord());
  await until("the answer", () => one.status() === "200");
  assert.equal(one.body().syncs.length, 1);
  // Nothing looks any more.
  assert.equal(journal.readers, 0);
});

test("a change that is no sync is told within a second or so; a state that is not known at once", async (t) => {
  const failures: { subject: string; reason: string }[] = [];
  const { ask, held } = await holding(t, { failures });
  const one = await ask();
  await held(1);
  failures.push({ subject: "watch of services", reason: "refused" });
  await until("the answer", () => one.status() === "200");
  assert.deepEqual(
    one.body().status.failures.map(({ subject }) => subject),
    ["watch of services"],
  );
  const other = await ask();
  await until("the answer", () => other.status() === "200");
});

test("connection tracking that changes too little to be seen holds on, what is seen is told", async (t) => {
  const tracking = { entries: 1_000, max: 100_000 };
  t.mock.timers.enable({ apis: ["setInterval"] });
  const { ask, held, journal } = await holding(t, { tracking });
  let laterMs = 0;
  t.mock.method(performance, "now", () => 1e9 + laterMs);
  const one = await ask();
  await held(1);
  const look = async (): Promise<void> => {
    laterMs += 11_000;
    t.mock.timers.tick(1_000);
    await sleep(50);
  };
  tracking.entries = 1_010;
  await look();
  assert.equal(one.status(), undefined);
  tracking.entries = 1_200;
  await look();
  await until("the answer", () => one.status() === "200");
  assert.equal(one.body().status.connectionTracking?.entries, 1_200);
  assert.equal(journal.readers, 0);
});

test("of more than five the longest held is answered, and one that hangs up is forgotten", async (t) => {
  const { ask, held, journal } = await holding(t);
  const all: { socket: Socket; status: () => string | undefined }[] = [];
  for (let count = 0; count < 6; count += 1) {
    all.push(await ask());
    await held(Math.min(count + 1, 5));
    await sleep(20);
  }
  await until("the first answer", () => all[0]?.status() === "304");
  assert.deepEqual(
    all.slice(1).map(({ status }) => status()),
    Array(5).fill(undefined),
  );
  for (const { socket } of all) socket.destroy();
  await until("nobody waits", () => journal.readers === 0);
});

test("the daemon's stop answers what is held, and does not wait for it", async (t) => {
  const { ask, held, end } = await holding(t);
  const one = await ask();
  await held(1);
  const beganMs = performance.now();
  await end();
  assert.ok(performance.now() - beganMs < 900, `${performance.now() - beganMs} ms`);
  await until("the answer", () => one.status() === "304");
});
