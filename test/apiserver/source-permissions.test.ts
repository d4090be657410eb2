/** The API source without permissions, or with a token that the server refuses. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { Clock } from "../../src/async/clock.ts";
import { until } from "../../testkit/support/patience.ts";
import { service } from "./example-objects.ts";
import { fastClock, settled } from "./source-under-test.ts";
import { cutServices, some, start } from "./source-with-objects.ts";

test("missing permissions are named by resource, the other resources work, and health is told", async (t) => {
  let isAllowed = false;
  const source = await start(t, {
    waitsForSync: false,
    prepare: (server) => {
      some(server);
      server.switches.isAllowed = (_user, _verb, plural) => isAllowed || plural !== "endpointslices";
    },
  });
  const { sink, log, problems } = source;
  await until("the others", () => sink.synced.length === 3);
  await until("the problem", () => problems.length > 0);
  const problem =
    'watch endpointslices: 403 Forbidden: endpointslices is forbidden: User "system:kube-proxy" cannot watch resource ' +
    '"endpointslices" at the cluster scope: bind the ClusterRole system:node-proxier to this user';
  assert.deepEqual(problems, [["endpointslices", problem]]);
  assert.deepEqual(log.errors(), [`Failed to watch, retrying; everything stays as it is: ${problem}`]);
  isAllowed = true;
  await until("the slices", () => sink.synced.length === 4);
  assert.deepEqual(problems.at(-1), ["endpointslices", undefined]);
});

test("a token that is refused is read again and the watch goes on", async (t) => {
  const source = await start(t, {
    config: { authentication: { kind: "token", token: "one" } },
    prepare: (server) => {
      some(server);
      server.switches.tokens = new Map([["one", "system:kube-proxy"]]);
    },
  });
  const { server, sink, log } = source;
  sink.take("services");
  server.switches.tokens = new Map();
  cutServices(server);
  server.put("services", service(70));
  await until("the complaint", () => log.errors().length > 0);
  assert.match(log.errors()[0] ?? "", /watch services: 401 Unauthorized/);
  server.switches.tokens = new Map([["one", "system:kube-proxy"]]);
  await settled(source, "services");
  assert.deepEqual(sink.take("services"), ["add default/svc-70"]);
});

test("a token file that is mended ends the wait for it at once, however long that is", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-token-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "token");
  writeFileSync(path, "one");
  const clock = fastClock(100);
  // Any sleep but that between checks of the file lasts until something ends it.
  const sleep: Clock["sleep"] = (delayMs, signal) => clock.sleep(delayMs === 500 ? delayMs : 1e9, signal);
  const source = await start(t, {
    clock: { ...clock, sleep },
    config: { authentication: { kind: "tokenFile", path } },
    prepare: (server) => {
      some(server);
      server.switches.tokens = new Map([["one", "system:kube-proxy"]]);
    },
  });
  const { server, sink, log, problems } = source;
  sink.take("services");
  server.switches.tokens = new Map([["two", "system:kube-proxy"]]);
  server.cutConnections();
  await until("all watches to have failed", () => new Set(problems.map(([plural]) => plural)).size === 4);
  assert.equal(log.errors().length, 1, "one line speaks for all");
  const requests = server.requests.length;
  writeFileSync(path, "neither");
  await until("another attempt", () => server.requests.length > requests);
  writeFileSync(path, "two");
  server.put("services", service(70));
  await until("the service", () => sink.state.services.has("default/svc-70"));
});
