/** Views of the page whose question fails, with a document and answers made here. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

type View = (main: object, query: URLSearchParams, state: object) => () => void;

/** The modules are for browsers, whose types are not known here. */
const moduleAt = (name: string): string => new URL(`../../src/page/client/${name}-view.ts`, import.meta.url).href;

const VIEWS = [
  { name: "service", answer: { key: "shop/web", families: [] } },
  { name: "services", answer: { total: 0, matching: 0, offset: 0, namespaces: [], rows: [] } },
];

for (const { name, answer } of VIEWS) {
  test(`${name}: a question that failed is asked again, though nothing changes on the node, and not after the view has ended`, async (t) => {
    const view = ((await import(moduleAt(name))) as Record<string, View>)[`${name}View`];
    assert.ok(view !== undefined);
    const element = () => ({
      ...{ append() {}, before() {}, replaceChildren() {}, setAttribute() {}, addEventListener() {}, value: "" },
      ...{ options: [], contains: () => false, querySelectorAll: () => [], textContent: "" },
    });
    const timers = new Map<number, () => void>();
    let last = 0;
    let asked = 0;
    let isAnswered = false;
    const globals = {
      document: { title: "", createElement: element },
      history: { replaceState() {} },
      window: {
        clearTimeout: (timer: number) => timers.delete(timer),
        setTimeout(act: () => void) {
          timers.set(++last, act);
          return last;
        },
      },
      async fetch() {
        asked += 1;
        if (!isAnswered) throw new TypeError("Failed to fetch");
        return Response.json(answer);
      },
    };
    const before = { fetch: globalThis.fetch };
    Object.assign(globalThis, globals);
    t.after(() => {
      Object.assign(globalThis, before);
      for (const one of ["document", "history", "window"]) Reflect.deleteProperty(globalThis, one);
    });
    const settle = async () => {
      for (let turns = 0; turns < 5; turns += 1) await turn();
    };
    const runTimers = async () => {
      const due = [...timers.values()];
      timers.clear();
      for (const act of due) act();
      await settle();
    };
    const start = () =>
      view(element(), new URLSearchParams({ key: "shop/web" }), { place: "1 1", onChange: () => () => {} });
    const end = start();
    await settle();
    assert.equal(asked, 1);
    isAnswered = true;
    await runTimers();
    assert.deepEqual([asked, timers.size], [2, 0]);
    end();
    isAnswered = false;
    const endOther = start();
    await settle();
    endOther();
    await runTimers();
    assert.equal(asked, 3);
  });
}
