import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "./create-logger.ts";
import { ProblemMemory } from "./problem-memory.ts";

function logged(nowMs: () => number = () => 0) {
  const memory = new ProblemMemory();
  const log = createLogger({ write: () => {}, now: nowMs, onRecord: (record) => memory.note(record) });
  return { memory, log };
}

test("warnings and errors are kept, with facts and cause, the newest first; the rest is not", () => {
  const { memory, log } = logged();
  log.info("Starting");
  log.with({ ipFamily: "IPv4" }).warn("Slow", { ms: 7, names: ["a"] });
  log.error("Sync failed", new Error("no kernel"));
  assert.deepEqual(
    memory.problems.map(({ severity, message, details }) => [severity, message, details]),
    [
      ["error", "Sync failed", "err=no kernel"],
      ["warning", "Slow", 'ipFamily=IPv4, ms=7, names=["a"]'],
    ],
  );
});

test("what is said again is counted, and is the newest", () => {
  let nowMs = 1;
  const { memory, log } = logged(() => nowMs);
  log.warn("A");
  nowMs = 2;
  log.warn("B");
  nowMs = 3;
  log.warn("A");
  assert.deepEqual(
    memory.problems.map(({ message, count, firstMs, lastMs }) => [message, count, firstMs, lastMs]),
    [
      ["A", 2, 1, 3],
      ["B", 1, 2, 2],
    ],
  );
});

test("it stays small, however many and however long the texts are", () => {
  const { memory, log } = logged();
  for (let index = 0; index < 1000; index += 1) log.warn(`problem ${index}`, { value: "x".repeat(5000) });
  const { problems } = memory;
  assert.deepEqual(
    [problems.length, problems[0]?.message, problems.at(-1)?.message],
    [50, "problem 999", "problem 950"],
  );
  assert.ok(problems.every(({ details }) => details.length === 500));
});

test("what the node cannot do is known by the fact cannot, until can takes it back", () => {
  const { memory, log } = logged();
  log.error("No programs", new Error("no cgroup"), { cannot: "sockets" });
  log.info("No nfacct", { cannot: "counters", why: "not in the kernel" });
  log.with({ ipFamily: "IPv6" }).warn("The kernel lacks a part", { cannot: "the flat layout" });
  log.error("No programs", new Error("not permitted"), { cannot: "sockets" });
  assert.deepEqual(memory.limits, [
    { what: "sockets", why: "not permitted" },
    { what: "counters", why: "not in the kernel" },
    { what: "the flat layout (IPv6)", why: "The kernel lacks a part" },
  ]);
  assert.deepEqual(
    memory.problems.map(({ details }) => details),
    ["err=not permitted", "ipFamily=IPv6", "err=no cgroup"],
  );
  log.with({ ipFamily: "IPv6" }).info("Back", { can: "the flat layout" });
  log.info("Decided at the socket", { can: "sockets" });
  assert.deepEqual(
    memory.limits.map(({ what }) => what),
    ["counters"],
  );
});

test("a problem is over once the node can do again what it reported, and not before; when it returns, it is not", () => {
  let nowMs = 1;
  const { memory, log } = logged(() => nowMs);
  const overOf = () => memory.problems.map(({ message, overMs }) => [message, overMs]);
  log.error("No programs", undefined, { cannot: "sockets" });
  log.with({ ipFamily: "IPv6" }).warn("No sets", { cannot: "sockets" });
  log.warn("Something else");
  const open = [
    ["Something else", undefined],
    ["No sets", undefined],
    ["No programs", undefined],
  ];
  assert.deepEqual(overOf(), open);
  nowMs = 5;
  log.info("Decided at the socket", { can: "sockets" });
  nowMs = 7;
  log.info("Decided at the socket", { can: "sockets" });
  assert.deepEqual(overOf(), [...open.slice(0, 2), ["No programs", 5]], "of IPv6 nothing is known");
  nowMs = 9;
  log.error("No programs", undefined, { cannot: "sockets" });
  assert.deepEqual(overOf(), [["No programs", undefined], ...open.slice(0, 2)]);
  assert.equal(memory.problems[0]?.count, 2);
});

test("a line that solves a problem ends it where both have the same facts, and no other; said again, it is not over", () => {
  let nowMs = 1;
  const { memory, log } = logged(() => nowMs);
  const overs = () => memory.problems.map(({ details, overMs }) => [details, overMs]);
  const [ipv4, ipv6] = (["IPv4", "IPv6"] as const).map((ipFamily) => log.with({ ipFamily }));
  ipv4?.error("Sync failed", undefined, { tries: 1 });
  ipv6?.error("Sync failed", undefined, { tries: 1 });
  ipv4?.warn("Slow");
  nowMs = 2;
  ipv4?.info("Works", { solves: "Sync failed", after: 3 });
  nowMs = 3;
  ipv4?.info("Works", { solves: "Sync failed", after: 3 });
  assert.deepEqual(overs(), [
    ["ipFamily=IPv4", undefined],
    ["ipFamily=IPv6, tries=1", undefined],
    ["ipFamily=IPv4, tries=1", 2],
  ]);
  ipv4?.error("Sync failed", undefined, { tries: 1 });
  assert.deepEqual(overs()[0], ["ipFamily=IPv4, tries=1", undefined]);
});
