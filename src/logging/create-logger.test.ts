import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { beforeEach, test } from "node:test";
import { createLogger, type LoggerOptions } from "./create-logger.ts";
import { errorText } from "./fact-values.ts";
import type { LogStream } from "./standard-streams.ts";

let lines: { stream: LogStream; text: string }[] = [];

beforeEach(() => {
  lines = [];
});

function logger(options: LoggerOptions = {}) {
  const write = (stream: LogStream, text: string) => {
    lines.push({ stream, text });
  };
  return createLogger({ write, pid: 1234, now: () => new Date(2026, 0, 2, 3, 4, 5, 67).getTime() + 0.89, ...options });
}

function only(): string {
  assert.equal(lines.length, 1, "exactly one write");
  return lines[0]?.text ?? "";
}

test("the text look has severity, local time with microseconds, padded pid, file and line, quoted message, facts", () => {
  logger().info("Syncing", { elapsed: "1ms", numServices: 3, fullSync: true, list: ["a", "b"], nothing: null });
  assert.match(
    only(),
    /^I0102 03:04:05\.067889 {4}1234 create-logger\.test\.ts:\d+\] "Syncing" elapsed="1ms" numServices=3 fullSync=true list=\["a","b"\] nothing=<nil>\n$/,
  );
});

test("without a clock of its own, a line's time has microseconds", () => {
  const log = createLogger({ write: (stream, text) => lines.push({ stream, text }) });
  for (let line = 0; line < 20; line++) log.info("Syncing");
  assert.ok(
    lines.some(({ text }) => /:\d\d\.\d{3}(?!000)\d{3} /.test(text)),
    lines[0]?.text,
  );
});

test("the line number is that of the call, for every method and for derived loggers", () => {
  const log = logger({ verbosity: 1 }).with({ ipFamily: "IPv4" });
  log.info("a");
  log.v(1, "b");
  log.warn("c");
  log.error("d", undefined);
  const numbers = lines.map(({ text }) => Number(/\.ts:(\d+)\]/.exec(text)?.[1]));
  const [first = 0] = numbers;
  assert.deepEqual(numbers, [first, first + 1, first + 2, first + 3]);
  assert.equal(lines.map(({ text }) => text[0]).join(""), "IIWE");
});

test("what a message already has of its causes is said once", () => {
  const denied = new Error("EACCES: open '/proc/sys/x'");
  const sysctl = new Error("cannot write x (EACCES)", { cause: denied });
  const error = new Error("could not tune: cannot write x (EACCES)", { cause: sysctl });
  assert.equal(errorText(error), "could not tune: cannot write x (EACCES): EACCES: open '/proc/sys/x'");
});

test("an error line names the error and its causes first", () => {
  const error = new Error("sync failed", { cause: new Error("exit status 4") });
  logger().with({ ipFamily: "IPv6" }).error("Sync failed", error, { retryingTime: "30s" });
  assert.match(only(), /\] "Sync failed" err="sync failed: exit status 4" ipFamily="IPv6" retryingTime="30s"\n$/);
});

test("anything that was thrown can be logged", () => {
  const circular: Record<string, unknown> = {};
  circular.self = circular;
  const hostile = {
    toJSON() {
      throw new Error("no");
    },
  };
  const log = logger();
  for (const thrown of [
    "text",
    7,
    null,
    circular,
    hostile,
    Symbol("s"),
    new Error(""),
    new AggregateError([1n, "x"]),
  ]) {
    log.error("failed", thrown, { thrown });
  }
  assert.equal(lines.length, 8);
  assert.match(lines[6]?.text ?? "", /err="Error"/);
  assert.match(lines[7]?.text ?? "", /err="\[\\"1\\", x\]"/);
});

test("a value of several lines becomes an indented block that no line of it can leave", () => {
  logger().info("output", { text: "first\nI0102 forged] x\r\x1b[2J\n", next: 1 });
  assert.match(only(), /"output" text=<\n\tfirst\n\tI0102 forged\] x\\r\\x1b\[2J\n > next=1\n$/);
});

test("control characters and direction marks from others never reach the terminal", () => {
  const loneSurrogate = String.fromCharCode(0xd800);
  const nasty = `a"b\\\x00\x07\x1b[31m\x7f\u0085\u2028\u202e${loneSurrogate}\u{e0001}\u00a0é😀`;
  logger().info(nasty, { nasty, list: [nasty] });
  const text = only();
  assert.doesNotMatch(text.slice(0, -1), /(?! )[\p{C}\p{Z}]/u);
  assert.ok(text.includes('"a\\"b\\\\\\x00\\a\\x1b[31m\\x7f\\u0085\\u2028\\u202e\\ud800\\U000e0001\\u00a0é😀"'), text);
});

test("JSON lines carry ts, caller, msg, v and facts, and parse to the exact values", () => {
  const nasty = '\x1b\u2028\u202e\u{e0001}"';
  const log = logger({ format: "json", verbosity: 4 });
  log.v(4, "Wrote", { file: nasty, n: 3, big: 5n, set: new Set(["x"]), missing: undefined });
  const text = only();
  assert.doesNotMatch(text.slice(0, -1), /(?! )[\p{C}\p{Z}]/u);
  const { ts, caller, ...rest } = JSON.parse(text);
  assert.equal(ts, Number((new Date(2026, 0, 2, 3, 4, 5, 67).getTime() + 0.89).toFixed(4)));
  assert.match(caller, /^logging\/create-logger\.test\.ts:\d+$/);
  assert.deepEqual(rest, { msg: "Wrote", v: 4, file: nasty, n: 3, big: "5", set: ["x"] });
});

test("JSON error lines carry err and no v", () => {
  logger({ format: "json" }).error("Sync failed", new Error("boom"));
  const { err, msg, ...rest } = JSON.parse(only());
  assert.deepEqual([msg, err, "v" in rest], ["Sync failed", "boom", false]);
});

test("verbosity decides what prints and can change while derived loggers exist", () => {
  const root = logger({ verbosity: 2 });
  const derived = root.with({});
  derived.v(3, "hidden");
  assert.deepEqual([derived.isVerbose(2), derived.isVerbose(3)], [true, false]);
  root.setVerbosity(3);
  derived.v(3, "shown");
  assert.equal(root.verbosity, 3);
  assert.match(only(), /"shown"/);
});

test("a vmodule pattern raises the level of the files it matches only", () => {
  const matching = logger({ vmodule: [{ filePattern: "create-*.test", verbosity: 4 }] });
  matching.v(4, "shown");
  matching.v(5, "hidden");
  assert.deepEqual([matching.isVerbose(4), matching.isVerbose(5)], [true, false]);
  for (const filePattern of ["create", "logger.test", "create-logger?test.*"]) {
    logger({ vmodule: [{ filePattern, verbosity: 9 }] }).v(1, "hidden");
  }
  logger({ vmodule: [{ filePattern: "logging/create-logger.tes?", verbosity: 1 }] }).v(1, "by path");
  assert.deepEqual(
    lines.map(({ text }) => /"(.*)"/.exec(text)?.[1]),
    ["shown", "by path"],
  );
});

test("everything goes to standard error unless streams are split", () => {
  const log = logger();
  log.info("a");
  log.error("b", undefined);
  const split = logger({ splitStream: true });
  split.info("c");
  split.error("d", undefined);
  assert.deepEqual(
    lines.map(({ stream }) => stream),
    ["stderr", "stderr", "stdout", "stderr"],
  );
});

test("lines written just before process.exit all arrive through a pipe", () => {
  const module = new URL("./create-logger.ts", import.meta.url).href;
  const script = `const { createLogger } = await import(${JSON.stringify(module)});
    const log = createLogger();
    for (let i = 0; i < 5000; i++) log.info("line " + i);
    process.exit(0);`;
  const child = spawnSync(process.execPath, ["--input-type=module", "-e", script], { encoding: "utf8" });
  const printed = child.stderr.trimEnd().split("\n");
  assert.equal(printed.length, 5000);
  assert.match(printed[4999] ?? "", /"line 4999"$/);
});

test("of one message a hundred lines a minute are printed, and how many were left out", () => {
  let nowMs = 0;
  const records: string[] = [];
  const log = logger({
    verbosity: 2,
    now: () => nowMs,
    onRecord: ({ facts }) => void records.push(String(facts.port)),
  });
  const flood = (): void => {
    for (let port = 1; port <= 10_000; port++) log.with({ ipFamily: "IPv4" }).warn("An address is taken", { port });
  };
  flood();
  assert.equal(lines.length, 101);
  assert.match(lines[100]?.text ?? "", /"Lines like the last are left out for up to a minute"/);
  assert.equal(records.length, 100);
  log.error("Another sentence", undefined, { port: 1 });
  for (let line = 0; line < 100; line++) log.v(2, "Syncing");
  assert.equal(lines.length, 202, "others are not held down");
  nowMs = 59_999;
  flood();
  assert.equal(lines.length, 202);
  nowMs = 60_000;
  flood();
  assert.equal(lines.length, 202 + 102);
  assert.match(lines[202]?.text ?? "", /"Lines like the next were left out" count=19900/);
});

test("what the node cannot do is remembered, also where its line is left out", () => {
  const cannot: unknown[] = [];
  const log = logger({ onRecord: ({ facts }) => void cannot.push(facts.cannot) });
  for (let line = 0; line < 130; line++) log.error("Cannot listen", undefined, { cannot: `port ${line}` });
  assert.equal(cannot.length, 130);
});

test("objects of the API server, named one by one, are held down at verbosity 2 too", () => {
  const log = logger({ verbosity: 2 });
  for (let line = 0; line < 500; line++) log.v(2, "Left out parts of an object", { object: `Service "${line}"` });
  assert.equal(lines.length, 101);
});
