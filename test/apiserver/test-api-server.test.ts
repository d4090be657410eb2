/** The test API server behaves like a real one even where that is inconvenient, or the tests would prove nothing. */
import assert from "node:assert/strict";
import { type RequestOptions, request } from "node:https";
import { type TestContext, test } from "node:test";
import { until } from "../../testkit/support/patience.ts";
import { node, service, serviceCidr } from "./example-objects.ts";
import { TestApiServer } from "./test-api-server.ts";

interface Answer {
  readonly status: number;
  /** Grows while a watch is open. */
  text: string;
}

async function start(t: TestContext): Promise<TestApiServer> {
  const server = await TestApiServer.start();
  t.after(() => server.close());
  server.put("nodes", node("node-a"));
  server.put("servicecidrs", serviceCidr());
  server.put("services", service(1));
  server.store.restart();
  return server;
}

/** Resolves with the response headers. */
function ask(server: TestApiServer, path: string, options: RequestOptions = {}, body?: string | Buffer) {
  return new Promise<Answer>((resolve, reject) => {
    const sent = request(`${server.url}${path}`, { ...options, ca: server.authority.certificate, agent: false });
    sent.on("error", reject);
    sent.on("response", (response) => {
      const answer = { status: response.statusCode ?? 0, text: "" };
      response.setEncoding("utf8").on("data", (text: string) => (answer.text += text));
      response.on("error", () => {});
      resolve(answer);
    });
    sent.end(body);
  });
}

const watchFrom = (server: TestApiServer, path: string, version: number) =>
  ask(server, `${path}?watch=true&allowWatchBookmarks=true&resourceVersion=${version}`);

test("after a restart the history is gone: every version from before is too old, also of what never changed", async (t) => {
  const server = await start(t);
  const { version } = server.store;
  await server.shutDown();
  await server.restart();
  for (const path of ["/api/v1/services", "/apis/networking.k8s.io/v1/servicecidrs"]) {
    const answer = await watchFrom(server, path, version);
    assert.equal(answer.status, 200);
    await until("the event", () => answer.text.endsWith("\n"));
    assert.match(answer.text, /"type":"ERROR".*too old resource version: 104 \(\d+\).*"reason":"Expired","code":410/);
  }
  const now = await watchFrom(server, "/api/v1/services", server.store.version);
  server.put("services", service(2));
  await until("the event", () => now.text.endsWith("\n"));
  assert.match(now.text, /"type":"ADDED".*"svc-2"/);
});

test("bookmarks come for a resource that has changed since the start, for every watcher, and for no other", async (t) => {
  const server = await start(t);
  const { version } = server.store;
  const services = await watchFrom(server, "/api/v1/services", version);
  const serviceCIDRs = await watchFrom(server, "/apis/networking.k8s.io/v1/servicecidrs", version);
  const ownNode = "&fieldSelector=metadata.name%3Dnode-a";
  const nodes = await ask(
    server,
    `/api/v1/nodes?watch=true&allowWatchBookmarks=true&resourceVersion=${version}${ownNode}`,
  );
  server.put("nodes", node("node-b"));
  server.put("services", service(2));
  server.sendBookmarks();
  await until("the bookmark", () => nodes.text.endsWith("\n"));
  assert.match(nodes.text, new RegExp(`^{"type":"BOOKMARK".*"resourceVersion":"${server.store.version}"`));
  assert.match(services.text, /"type":"ADDED".*\n.*"type":"BOOKMARK"/);
  server.store.compact();
  const again = await watchFrom(server, "/apis/networking.k8s.io/v1/servicecidrs", version);
  server.put("servicecidrs", { ...serviceCidr(), metadata: { name: "more" } });
  await until("the event", () => again.text.endsWith("\n") && serviceCIDRs.text.endsWith("\n"));
  assert.match(again.text, /^{"type":"ADDED"/, "its watch cache has lost nothing");
  assert.match(serviceCIDRs.text, /^{"type":"ADDED"/, "the first that it hears");
});

test("protobuf is answered where it is spoken; a body in it is 415, and 406 says that nothing else is accepted", async (t) => {
  const server = await start(t);
  const protobuf = "application/vnd.kubernetes.protobuf";
  const events = "/apis/events.k8s.io/v1/namespaces/default/events";
  const json = { "Content-Type": "application/json" };
  const status = async (path: string, options: RequestOptions, body?: string | Buffer) => {
    const answer = await ask(server, path, options, body);
    await until("the answer", () => answer.status < 300 || answer.text.length > 0);
    return [answer.status, /"reason":"(\w+)"/.exec(answer.text)?.[1]];
  };
  const post = { method: "POST", headers: { "Content-Type": protobuf } };
  assert.deepEqual(await status(events, post, Buffer.from("k8s\0\n\x1c")), [415, "UnsupportedMediaType"]);
  assert.deepEqual(await status(events, { ...post, headers: json }, "k8s\0"), [400, "BadRequest"]);
  const accepting = (accept: string) => status("/api/v1/services", { headers: { Accept: accept } });
  assert.deepEqual(await accepting("application/yaml"), [406, "NotAcceptable"]);
  assert.match((await ask(server, "/api/v1/services", { headers: { Accept: protobuf } })).text, /^k8s\0/);
  const gone = await ask(server, "/api/v1/nothing", { headers: { Accept: `${protobuf}, application/json` } });
  assert.match(gone.text, /"reason":"NotFound"/, "of what is not served nothing says that protobuf is spoken");
  server.switches.hasProtobuf = false;
  assert.deepEqual(await accepting(protobuf), [406, "NotAcceptable"]);
  assert.deepEqual(await accepting(`${protobuf},*/*`), [200, undefined], "upstream's header");
  assert.deepEqual(await accepting(`${protobuf}, application/json;q=0.9`), [200, undefined]);
});
