/** Questions of the page's views: repeated after failures and changes, with timers and answers made here. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

interface Asked {
  readonly answer: unknown;
  readonly failure: string;
  readonly isAsking: boolean;
  ask(query: Readonly<Record<string, string>>, delayMs?: number): void;
  again(): void;
  end(): void;
}

/** The module is for browsers, whose types are not known here. */
const MODULE = new URL("../../src/tools/page/client/question.ts", import.meta.url).href;

async function asking(t: TestContext) {
  const { Question } = (await import(MODULE)) as {
    readonly Question: new (path: string, onChange: () => void) => Asked;
  };
  const timers = new Map<number, () => void>();
  const delays: number[] = [];
  let last = 0;
  const requests: { readonly path: string; readonly signal: AbortSignal; answer(body: unknown): void; fail(): void }[] =
    [];
  const globals = {
    window: {
      clearTimeout: (timer: number) => timers.delete(timer),
      setTimeout(act: () => void, delayMs: number) {
        delays.push(delayMs);
        timers.set(++last, act);
        return last;
      },
    },
    fetch(path: string, { signal }: { readonly signal: AbortSignal }) {
      const { promise, resolve, reject } = Promise.withResolvers<Response>();
      signal.addEventListener("abort", () => reject(signal.reason));
      const fail = () => reject(new TypeError("Failed to fetch"));
      requests.push({ path, signal, answer: (body) => resolve(Response.json(body)), fail });
      return promise;
    },
  };
  const before = { fetch: globalThis.fetch };
  Object.assign(globalThis, globals);
  t.after(() => {
    Object.assign(globalThis, before);
    Reflect.deleteProperty(globalThis, "window");
  });
  const settle = async () => {
    for (let turns = 0; turns < 5; turns += 1) await turn();
  };
  return {
    ...{ requests, timers, delays, settle, question: new Question("api/service", () => {}) },
    async runTimers() {
      const due = [...timers.values()];
      timers.clear();
      for (const act of due) act();
      await settle();
    },
  };
}

test("a question that failed is asked again, though nothing changes on the node, and not after the view has ended", async (t) => {
  const { requests, timers, settle, runTimers, question } = await asking(t);
  question.ask({ key: "shop/web", search: "" });
  assert.deepEqual(
    requests.map(({ path }) => path),
    ["api/service?key=shop%2Fweb"],
  );
  requests[0]?.fail();
  await settle();
  assert.equal(question.failure, "Failed to fetch");
  await runTimers();
  requests[1]?.answer({ key: "shop/web" });
  await settle();
  assert.deepEqual([question.answer, question.failure, timers.size], [{ key: "shop/web" }, "", 0]);
  question.ask({});
  requests[2]?.fail();
  await settle();
  question.end();
  await runTimers();
  assert.equal(requests.length, 3);
});

test("a change while the daemon answers aborts nothing: the question is asked once more after the answer", async (t) => {
  const { requests, timers, settle, runTimers, question } = await asking(t);
  question.ask({ key: "shop/web" });
  question.again();
  question.again();
  await runTimers();
  assert.deepEqual([requests.length, requests[0]?.signal.aborted, question.isAsking], [1, false, true]);
  requests[0]?.answer({ key: "first" });
  await settle();
  assert.deepEqual([question.answer, timers.size], [{ key: "first" }, 1]);
  await runTimers();
  requests[1]?.answer({ key: "second" });
  await settle();
  assert.deepEqual([question.answer, timers.size], [{ key: "second" }, 0]);
});

test("half an answer is a failure, and the last whole answer stays", async (t) => {
  const { requests, settle, question } = await asking(t);
  question.ask({});
  requests[0]?.answer({ key: "whole" });
  await settle();
  globalThis.fetch = async () => new Response('{"key":"ha', { headers: { "content-type": "application/json" } });
  question.ask({});
  await settle();
  assert.deepEqual(question.answer, { key: "whole" });
  assert.match(question.failure, /JSON/);
  question.end();
});

test("a new question replaces the one that is not answered yet", async (t) => {
  const { requests, runTimers, question } = await asking(t);
  question.ask({ search: "a" });
  question.ask({ search: "ab" }, 150);
  assert.equal(requests[0]?.signal.aborted, true);
  await runTimers();
  assert.equal(requests[1]?.path, "api/service?search=ab");
  question.end();
});

test("an answer that costs the daemon much names the pause until the next", async (t) => {
  const { question, requests, delays, settle } = await asking(t);
  for (const [body, least, most] of [
    [{}, 1_000, 2_000],
    [{ pauseMs: 60_000 }, 50_000, 60_000],
  ] as const) {
    question.ask({});
    requests.at(-1)?.answer(body);
    await settle();
    question.again();
    const delay = delays.at(-1) ?? 0;
    assert.ok(least <= delay && delay <= most, `${delay}`);
  }
});
