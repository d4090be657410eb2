import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "../../sync/testing/fake-clock.ts";
import type { ApiRequest, ApiResponse } from "./connection/transport.ts";
import { removeStartupTaint } from "./startup-taint.ts";
import { recordingLog } from "./testing/recording-log.ts";

test("a Node that is deleted and registered again loses the start-up taint, too, and nothing is asked for meanwhile", async () => {
  const clock = new FakeClock();
  const log = recordingLog();
  const tainted = (uid: string) => ({
    metadata: { uid, resourceVersion: "7" },
    spec: { taints: [{ key: "starting" }] },
  });
  let node: { metadata: { uid: string; resourceVersion: string }; spec: { taints: unknown[] } } | undefined;
  const requests: string[] = [];
  const send = ({ verb, body }: ApiRequest): Promise<ApiResponse> => {
    requests.push(verb);
    if (node === undefined) return Promise.reject(new Error("404"));
    if (verb === "patch") node = { ...node, spec: JSON.parse(body?.text ?? "").spec };
    const answer = Buffer.from(JSON.stringify(node));
    return Promise.resolve({
      contentType: "application/json",
      body: (async function* () {
        yield answer;
      })(),
    });
  };
  const stop = new AbortController();
  const uid = () => node?.metadata.uid;
  const transport = { send, close: () => {} };
  let problem: string | undefined;
  const onProblem = (reason: string | undefined) => {
    problem = reason;
  };
  const options = { transport, nodeName: "n", uid, key: "starting", clock, log, onProblem };
  const removing = removeStartupTaint(options, stop.signal);
  const pass = async () => {
    for (let look = 0; look < 4; look++) await clock.advance(5_000);
    return requests.splice(0).join(" ");
  };
  assert.match(await pass(), /^get( get)+$/, "it is waited for");
  assert.equal(problem, "404");
  node = tainted("one");
  assert.equal(await pass(), "get patch");
  assert.equal(problem, undefined);
  node = undefined;
  assert.equal(await pass(), "");
  node = tainted("two");
  assert.equal(await pass(), "get patch");
  assert.deepEqual(node.spec.taints, []);
  stop.abort();
  await removing;
});
