/** What a browser's page keeps of the daemon, with a document and answers made here. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../testkit/support/patience.ts";

interface PageState {
  readonly known: { readonly syncs: readonly { readonly number: number }[] } | undefined;
  readonly isSilent: boolean;
  readonly answeredMs: number | undefined;
  readonly place: string;
  start(): void;
  onChange(listener: () => void): () => void;
}

/** The module is for browsers, whose types are not known here. */
const MODULE = new URL("../../src/tools/page/client/state.ts", import.meta.url).href;

test("a sync that two answers bring is kept once, and none of a daemon that was started again", async (t) => {
  const { State } = (await import(MODULE)) as { readonly State: new () => PageState };
  const answers = [
    { startedMs: 1, syncs: [1, 2] },
    { startedMs: 1, syncs: [2, 3] },
    { startedMs: 9, syncs: [1] },
  ];
  const asked: string[] = [];
  let look = (): void => {};
  const globals = {
    document: { hidden: false, addEventListener: (_name: string, listener: () => void) => (look = listener) },
    window: { addEventListener() {}, clearTimeout() {}, setTimeout: () => 0 },
    fetch: async (path: string) => {
      const answer = answers[asked.push(path) - 1];
      if (answer === undefined) throw new Error("no answer");
      const syncs = answer.syncs.map((number) => ({ number }));
      return Response.json({ ...answer, syncs, lastSync: syncs.at(-1)?.number });
    },
  };
  const before = { fetch: globalThis.fetch };
  Object.assign(globalThis, globals);
  t.after(() => {
    Object.assign(globalThis, before);
    for (const name of ["document", "window"]) Reflect.deleteProperty(globalThis, name);
  });
  const state = new State();
  let told = 0;
  const end = state.onChange(() => {
    told += 1;
  });
  const numbers = () => state.known?.syncs.map(({ number }) => number);
  state.start();
  await until("the first answer", () => told === 1);
  assert.deepEqual(numbers(), [2, 1]);
  look();
  await until("the second answer", () => told === 2);
  assert.deepEqual([numbers(), state.place], [[3, 2, 1], "1 3"]);
  look();
  await until("the third answer", () => told === 3);
  assert.deepEqual(numbers(), [1]);
  assert.deepEqual(asked, ["api/state?after=0&of=0", "api/state?after=2&of=1", "api/state?after=3&of=1"]);
  look();
  await until("silence", () => state.isSilent);
  assert.equal(told, 4);
  end();
});

test("a daemon that hangs is silent three seconds after it had to answer, also where it holds the question", async (t) => {
  const { State } = (await import(MODULE)) as { readonly State: new () => PageState };
  const timers = new Map<number, { readonly run: () => void; readonly delayMs: number }>();
  const asked: string[] = [];
  let last = 0;
  let answer = (): void => {};
  const globals = {
    document: { hidden: false, addEventListener() {} },
    window: {
      addEventListener() {},
      clearTimeout: (timer: number) => timers.delete(timer),
      setTimeout(run: () => void, delayMs: number) {
        last += 1;
        timers.set(last, { run, delayMs });
        return last;
      },
    },
    fetch: (path: string) => {
      asked.push(path);
      return new Promise((resolve) => {
        answer = () => resolve(Response.json({ startedMs: 1, syncs: [], lastSync: 1 }, { headers: { etag: '"one"' } }));
      });
    },
  };
  const before = { fetch: globalThis.fetch };
  Object.assign(globalThis, globals);
  t.after(() => {
    Object.assign(globalThis, before);
    for (const name of ["document", "window"]) Reflect.deleteProperty(globalThis, name);
  });
  const state = new State();
  state.start();
  const [waiting] = timers.values();
  assert.equal(waiting?.delayMs, 3000);
  assert.deepEqual([state.isSilent, state.answeredMs], [false, undefined]);
  waiting?.run();
  assert.equal(state.isSilent, true);
  answer();
  await until("the answer", () => !state.isSilent);
  assert.ok(Math.abs(Date.now() - Number(state.answeredMs)) < 60_000);
  // After the pause, what it knows may be held.
  const [pause] = [...timers.values()].slice(-1);
  assert.equal(pause?.delayMs, 2000);
  pause?.run();
  const held = [...timers.values()].at(-1);
  assert.deepEqual([asked.at(-1), held?.delayMs], ["api/state?after=1&of=1&hold", 33_000]);
  held?.run();
  assert.equal(state.isSilent, true);
});
