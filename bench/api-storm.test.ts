import assert from "node:assert/strict";
import { test } from "node:test";
import { CLIENTS, FORMS, type StormTask, simulateStorm, stormTable } from "./api-storm.ts";

const TASK: Omit<StormTask, "client"> = {
  nodes: 20,
  form: "refused",
  awaySeconds: 10,
  listsPerSecond: 1_000,
  objects: 10_000,
  listBytes: 1e6,
};

test("every node has everything again, with the requests that are needed and no more", async () => {
  const results = await Promise.all(CLIENTS.map((client) => simulateStorm({ ...TASK, client })));
  for (const { client, back, recoveredMs } of results) {
    assert.ok(recoveredMs.every(Number.isFinite), client);
    const sum = (of: (second: (typeof back)[number]) => number) =>
      back.reduce((total, second) => total + of(second), 0);
    // An expired watch and a list for each of four resources.
    assert.deepEqual([sum(({ requests }) => requests), sum(({ lists }) => lists)], [160, 80], client);
    assert.equal(Math.round(sum(({ bytes }) => bytes)), 20e6, client);
  }
  const [ours, theirs] = results.map(({ recoveredMs }) => recoveredMs.at(-1) ?? 0);
  // The large lists are delayed by up to 18 s.
  assert.ok((ours ?? 0) < 20_000 && (theirs ?? 0) > 30_000, `${ours}, ${theirs}`);
  assert.match(stormTable(results), /^ +kube-proxy-ts, 20, refused for 10 s +client-go, 20, refused for 10 s\n/);
});

test("a server that refuses most lists is asked ever more rarely", async () => {
  const { back, recoveredMs } = await simulateStorm({ ...TASK, client: "kube-proxy-ts", listsPerSecond: 2 });
  assert.ok(recoveredMs.every(Number.isFinite));
  const refused = back.map((second) => second.refused);
  // Until the last large list has been requested for the first time, after 18 s and the time to find the server.
  const early = Math.max(...refused.slice(0, 20));
  assert.ok(Math.max(...refused.slice(28)) < early / 2, refused.join(" "));
});

for (const form of FORMS) {
  test(`${form}: a node hears of changes within a second of the server's return, and asks twice a second until then`, async () => {
    const { heardMs, away } = await simulateStorm({ ...TASK, client: "kube-proxy-ts", form, awaySeconds: 60 });
    assert.ok((heardMs.at(-1) ?? 0) <= 1_000, `${heardMs.at(-1)} ms`);
    const each = away.knocks / TASK.nodes / 60;
    assert.ok(each <= 1.8, `${each} attempts a second`);
  });
}
