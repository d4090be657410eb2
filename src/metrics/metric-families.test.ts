/** The Prometheus text format, as the library printed it that made it before. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createFamilies } from "./metric-families.ts";

test("families are printed by name, series in the order of their first use", async () => {
  const families = createFamilies();
  const calls = families.counter({ name: "calls_total", help: 'A "call"\nor \\', labels: ["code", "verb"] });
  calls.inc({ code: 200, verb: 'G"E\\T\n' });
  calls.inc({ code: 500, verb: "PUT" }, 0);
  calls.inc({ code: 200, verb: 'G"E\\T\n' }, 2.5);
  families.gauge({ name: "age", help: "Age.", stability: "none" }).set(Number.NEGATIVE_INFINITY);
  families.counter({ name: "unused", help: "None.", labels: ["x"] });
  const seconds = families.histogram({ name: "seconds", help: "How long.", labels: ["kind"], buckets: [0.001, 1] });
  for (const value of [0.001, 0.5, 7]) seconds.observe({ kind: "a" }, value);
  assert.equal(
    await families.render(),
    `# HELP age Age.
# TYPE age gauge
age -Inf
# HELP calls_total [ALPHA] A "call"\\nor \\\\
# TYPE calls_total counter
calls_total{code="200",verb="G\\"E\\\\T\\n"} 3.5
calls_total{code="500",verb="PUT"} 0
# HELP seconds [ALPHA] How long.
# TYPE seconds histogram
seconds_bucket{le="0.001",kind="a"} 1
seconds_bucket{le="1",kind="a"} 2
seconds_bucket{le="+Inf",kind="a"} 3
seconds_sum{kind="a"} 7.501
seconds_count{kind="a"} 3
`,
  );
});

test("a family that is read at each scrape shows nothing where nothing can be read", async () => {
  const families = createFamilies();
  let read: () => number | undefined = () => 4;
  families.scraped("gauge", { name: "size", help: "Size.", stability: "none" }, () => read());
  assert.match(await families.render(), /^size 4$/m);
  read = () => undefined;
  assert.equal(await families.render(), "");
  read = () => assert.fail("unreadable");
  assert.equal(await families.render(), "");
});

test("what a family cannot count is refused", () => {
  const families = createFamilies();
  const counter = families.counter({ name: "a", help: "A.", labels: ["x"] });
  const histogram = families.histogram({ name: "b", help: "B.", buckets: [1] });
  assert.throws(() => counter.inc({ x: "1" }, -1), /a counts, and cannot change by -1/);
  assert.throws(() => counter.inc({ y: "1" }), /a has no label y/);
  assert.throws(() => histogram.observe(Number.NaN), /b cannot observe NaN/);
  assert.throws(() => families.gauge({ name: "a", help: "A." }), /the family a is defined already/);
});
