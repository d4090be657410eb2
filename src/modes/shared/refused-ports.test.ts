import assert from "node:assert/strict";
import { test } from "node:test";
import type { SyncFailure } from "../../contract/backend.ts";
import { RefusedPorts } from "./refused-ports.ts";

const failure = (name: string, reason = "no"): SyncFailure => ({ subject: `ns/${name}`, reason });

test("tells of a refused port once, and again when the reason is another one or it was accepted meanwhile", () => {
  const told: SyncFailure[] = [];
  const refused = new RefusedPorts((news) => told.push(news));
  refused.refuse("a", "no", "ns/a");
  refused.refuse("a", "no", "ns/a");
  refused.replace(new Map([["a", failure("a")]]));
  assert.deepEqual(told, [failure("a")]);
  refused.refuse("a", "busy");
  refused.delete("a");
  refused.refuse("a", "busy");
  assert.deepEqual(told.slice(1), [failure("a", "busy"), { subject: "a", reason: "busy" }]);
});

test("puts a port that is refused again behind those that were not tried", () => {
  const refused = new RefusedPorts();
  for (const owner of ["a", "b", "c"]) refused.refuse(owner, "no", `ns/${owner}`);
  refused.refuse("a", "no", "ns/a");
  refused.delete("b");
  assert.deepEqual([...refused.keys()], ["c", "a"]);
  assert.deepEqual([...refused.values()], [failure("c"), failure("a")]);
  assert.deepEqual([refused.size, refused.has("a"), refused.has("b")], [2, true, false]);
});

test("has exactly what a sync of everything has left, in its order", () => {
  const refused = new RefusedPorts();
  for (const owner of ["a", "b"]) refused.refuse(owner, "no", `ns/${owner}`);
  refused.replace(
    new Map([
      ["c", failure("c")],
      ["b", failure("b", "busy")],
    ]),
  );
  assert.deepEqual([...refused.values()], [failure("c"), failure("b", "busy")]);
  refused.replace(new Map());
  assert.equal(refused.size, 0);
});

test("tells once that a refused port is over: accepted, gone, or not among the refused ones", () => {
  const over: SyncFailure[] = [];
  const refused = new RefusedPorts(undefined, (failure) => over.push(failure));
  for (const owner of ["a", "b"]) refused.refuse(owner, "no", `ns/${owner}`);
  refused.refuse("a", "busy");
  refused.delete("c");
  assert.deepEqual(over, []);
  refused.replace(new Map([["b", failure("b")]]));
  refused.delete("b");
  refused.delete("b");
  assert.deepEqual(over, [failure("a", "busy"), failure("b")]);
});
