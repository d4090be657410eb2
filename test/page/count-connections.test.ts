/** The button that counts a Service's connections, with a document and answers made here. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

/** The module is for browsers, whose types are not known here. */
const MODULE = new URL("../../src/page/client/service-view.ts", import.meta.url).href;

interface ViewModule {
  serviceView(main: object, query: URLSearchParams, state: object): () => void;
}

test("a count of connections goes on while the Service's state changes, and the state is asked for after it", async (t) => {
  const { serviceView } = (await import(MODULE)) as ViewModule;
  let click = (): void => {};
  const element = () => ({
    ...{ append() {}, before() {}, replaceChildren() {}, setAttribute() {}, querySelectorAll: () => [] },
    addEventListener(name: string, listener: () => void) {
      if (name === "click") click = listener;
    },
  });
  const asked: { readonly isCount: boolean; readonly signal: AbortSignal; answer(): void }[] = [];
  const globals = {
    document: { title: "", createElement: element },
    window: { clearTimeout() {}, setTimeout: () => 0 },
    fetch(path: string, { signal }: { readonly signal: AbortSignal }) {
      const { promise, resolve, reject } = Promise.withResolvers<Response>();
      signal.addEventListener("abort", () => reject(signal.reason));
      const answer = () => resolve(Response.json({ key: "shop/web", families: [] }));
      asked.push({ isCount: path.includes("traffic"), signal, answer });
      return promise;
    },
  };
  const before = { fetch: globalThis.fetch };
  Object.assign(globalThis, globals);
  t.after(() => {
    Object.assign(globalThis, before);
    for (const name of ["document", "window"]) Reflect.deleteProperty(globalThis, name);
  });
  let onChange = (): void => {};
  const state = {
    place: "1 1",
    onChange(listener: () => void) {
      onChange = listener;
      return () => {};
    },
  };
  const end = serviceView(element(), new URLSearchParams({ key: "shop/web" }), state);
  const settle = async () => {
    for (let turns = 0; turns < 5; turns += 1) await turn();
  };
  asked[0]?.answer();
  await settle();
  click();
  state.place = "1 2";
  onChange();
  assert.deepEqual([asked.length, asked[1]?.isCount, asked[1]?.signal.aborted], [2, true, false]);
  asked[1]?.answer();
  await settle();
  assert.deepEqual(
    asked.map(({ isCount }) => isCount),
    [false, true, false],
  );
  asked[2]?.answer();
  await settle();
  click();
  end();
  await settle();
  assert.equal(asked.length, 4);
});
