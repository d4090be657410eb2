/** The API source behind a proxy. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { passOn, startProxy } from "../../src/agent/cluster/apiserver/testing/test-proxy.ts";
import { until } from "../../testkit/support/patience.ts";
import { COUNT, some, start } from "./source-with-objects.ts";

test("lists through tunnels whose other end says nothing are given up, and asked for again", async (t) => {
  let isSilent = true;
  const proxy = await startProxy(t, (connection, target) => {
    if (isSilent) connection.resume().write("HTTP/1.1 200 OK\r\n\r\n");
    else passOn(connection, target);
  });
  const { sink } = await start(t, {
    ...{ prepare: some, config: { proxyUrl: proxy.url }, streamsLists: false, waitsForSync: false },
  });
  await until("four tunnels", () => proxy.tunnels() >= 4);
  isSilent = false;
  await until("everything", () => sink.synced.length === 4);
  assert.equal(sink.state.services.size, COUNT);
});
