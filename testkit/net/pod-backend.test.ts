import assert from "node:assert/strict";
import { test } from "node:test";
import { kernelSkip } from "../support/topology.ts";
import { fetchInside } from "./fetch-inside.ts";
import { startProber } from "./namespace-prober.ts";
import { NetworkNamespace } from "./network-namespace.ts";
import { startBackend } from "./pod-backend.ts";
import { newRunName } from "./run-name.ts";

const HTTP = { protocol: "TCP", port: 8080 } as const;
const URL_INSIDE = "http://127.0.0.1:8080/";

test("the servers of several pods, in one thread, are each in the namespace of their pod", {
  skip: kernelSkip,
}, async (t) => {
  const [one, other] = await Promise.all([1, 2].map(() => NetworkNamespace.create(newRunName("backend"))));
  assert.ok(one !== undefined && other !== undefined);
  t.after(() => NetworkNamespace.removeAll([one, other]));
  const asked = async (namespace: NetworkNamespace) => {
    const { status, body } = await fetchInside(namespace, URL_INSIDE, 5_000);
    return status === 200 ? JSON.parse(body).pod : body;
  };
  const first = startBackend(one, "first");
  const second = startBackend(other, "second");
  const datagrams = { protocol: "UDP", port: 53, address: "127.0.0.1" } as const;
  await Promise.all([first.listen([HTTP, datagrams]), second.listen([HTTP])]);
  assert.deepEqual([await asked(one), await asked(other)], ["first", "second"]);

  const prober = startProber(one);
  const to = { protocol: "UDP", address: "127.0.0.1", port: 53, timeoutMs: 5_000 } as const;
  assert.deepEqual(await prober.connect(to), [{ ok: true, pod: "first", peer: "127.0.0.1" }]);

  await assert.rejects(startBackend(one, "late").listen([HTTP]), {
    message: "pod late cannot listen: TCP 8080: bind EADDRINUSE :::8080",
  });
  await first.close();
  await assert.rejects(first.listen([HTTP]), { message: "pod first: its server has ended" });
  assert.deepEqual([await asked(one), await asked(other)], ["connect ECONNREFUSED 127.0.0.1:8080", "second"]);

  await NetworkNamespace.removeAll([one, other]);
  const again = await NetworkNamespace.create(newRunName("backend"));
  t.after(() => again.remove());
  await startBackend(again, "third").listen([HTTP]);
  assert.equal(await asked(again), "third");
});
