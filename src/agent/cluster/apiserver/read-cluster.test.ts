/** Reading a cluster from a server that expires continue tokens or is overloaded. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { service } from "../../../../test/apiserver/example-objects.ts";
import { type ServerSwitches, TestApiServer } from "../../../../test/apiserver/test-api-server.ts";
import { type ClientConfig, UNSAID } from "./connection/client-config.ts";
import { readCluster } from "./read-cluster.ts";

const COUNT = 600;

async function readServices(t: TestContext, faultOf: (server: TestApiServer) => ServerSwitches["fault"]) {
  const server = await TestApiServer.start();
  t.after(() => server.close());
  for (let index = 0; index < COUNT; index++) server.put("services", service(index));
  server.switches.fault = faultOf(server);
  const config: ClientConfig = {
    ...UNSAID,
    server: new URL(server.url),
    ca: { kind: "data", text: server.authority.certificate },
  };
  const warn = (message: string) => void t.diagnostic(message);
  const options = { config, version: "v1.37.0", product: "x", warn };
  return await readCluster(options, new AbortController().signal);
}

test("pages that expire on the way are read again as a whole, as kubectl does", async (t) => {
  const { services } = await readServices(t, (server) => ({ query }) => {
    if (query.has("continue")) server.pages.expireTokens();
    return undefined;
  });
  assert.equal(services.length, COUNT);
});

test("a server that asks for a little time is given it, as kubectl does", async (t) => {
  let refusals = 0;
  const { services } = await readServices(t, () => ({ plural }) => {
    if (plural !== "services" || refusals++ > 0) return undefined;
    return { kind: "status", code: 429, retryAfterSeconds: 1 };
  });
  assert.equal(services.length, COUNT);
});
