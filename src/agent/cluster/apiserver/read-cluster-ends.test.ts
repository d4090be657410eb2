/** A failed read of a cluster leaves nothing running that would keep the command from exiting. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Fault, WEB_PAGE } from "../../../../test/apiserver/faults.ts";
import { TestApiServer } from "../../../../test/apiserver/test-api-server.ts";
import { until } from "../../../../testkit/support/patience.ts";
import { UNSAID } from "./connection/client-config.ts";
import { readCluster } from "./read-cluster.ts";

const FORBIDDEN: Fault = { kind: "status", code: 403 };

for (const [title, answers, expected] of [
  ["another list has no answer yet", { services: FORBIDDEN, endpointslices: { kind: "silent" } }, /403 Forbidden/],
  ["it was a web page, which is not read", { services: WEB_PAGE }, /is this an API server/],
  [
    "the server has asked for patience with another",
    { services: FORBIDDEN, endpointslices: { kind: "status", code: 429, retryAfterSeconds: 60 } },
    /403 Forbidden/,
  ],
] as const satisfies readonly (readonly [string, Readonly<Record<string, Fault>>, RegExp])[]) {
  test(`a list fails while ${title}`, async (t) => {
    const server = await TestApiServer.start();
    t.after(() => server.close());
    const faults: Readonly<Record<string, Fault>> = answers;
    server.switches.fault = ({ plural }) => faults[plural];
    const timersBefore = activeTimers();
    const config = {
      ...UNSAID,
      server: new URL(server.url),
      ca: { kind: "data", text: server.authority.certificate } as const,
    };
    const options = { config, version: "v1.37.0", product: "x", warn: () => {} };
    await assert.rejects(readCluster(options, new AbortController().signal), expected);
    await until("all connections to end", () => server.connections === 0, { patienceMs: 3_000 });
    assert.ok(activeTimers() <= timersBefore, "a wait goes on");
  });
}

function activeTimers(): number {
  return process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
}
