import assert from "node:assert/strict";
import { constants } from "node:os";
import { test } from "node:test";
import { kernelSkip } from "../support/topology.ts";
import { fetchInside, isRefusal } from "./fetch-inside.ts";
import { NetworkNamespace } from "./network-namespace.ts";
import { startBackend } from "./pod-backend.ts";
import { newRunName } from "./run-name.ts";

test("a server in a namespace is asked from outside; a refusal is an answer", { skip: kernelSkip }, async (t) => {
  const namespace = await NetworkNamespace.create(newRunName("fetch"));
  t.after(() => namespace.remove());
  const refused = { status: 0, body: "connect ECONNREFUSED 127.0.0.1:8080" };
  assert.deepEqual(await fetchInside(namespace, "http://127.0.0.1:8080/", 5_000), refused);
  await startBackend(namespace, "web").listen([{ protocol: "TCP", port: 8080 }]);
  for (const [host, peer] of [
    ["127.0.0.1", "127.0.0.1"],
    ["[::1]", "::1"],
  ]) {
    const { status, body } = await fetchInside(namespace, `http://${host}:8080/any?thing`, 5_000);
    assert.deepEqual([status, JSON.parse(body)], [200, { pod: "web", peer }]);
  }
  assert.equal((await fetchInside(namespace, "http://10.9.9.9:80/", 50)).status, 0);
  assert.match((await fetchInside(namespace, "http://web:80/", 50)).body, /no IP address: web/);
});

test("what the engine leaves as the cause of a connection that is on its way is no refusal", () => {
  const { ECONNREFUSED, ETIMEDOUT, EAGAIN, EINPROGRESS, EALREADY, EISCONN } = constants.errno;
  assert.ok(isRefusal(ECONNREFUSED));
  for (const errno of [-1, 0, ETIMEDOUT, EAGAIN, EINPROGRESS, EALREADY, EISCONN]) assert.ok(!isRefusal(errno));
});
