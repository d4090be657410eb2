/** A login page or a moved API server: redirects are not followed, so the token goes to no other server. */
import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { createServer } from "../../../../kernel/node-http.ts";
import { transportWith } from "../testing/transport-with.ts";
import { ApiError } from "./api-error.ts";

for (const status of [301, 302, 307, 308]) {
  test(`a redirect (${status}) is an error that names its target, where nothing is sent`, async (t) => {
    const asked: unknown[] = [];
    const server = createServer(({ url, headers }, response) => {
      asked.push([url, headers.host]);
      const Location = `http://localhost:${port}/login?state=secret`;
      response.writeHead(status, { Location, "Content-Type": "text/html" });
      response.end(`<a href="${Location}">Moved</a>`);
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    t.after(() => server.close());
    const { port } = server.address() as AddressInfo;
    const transport = transportWith({ server: new URL(`http://127.0.0.1:${port}`) });
    t.after(() => transport.close());
    const list = { verb: "list", resource: "services", method: "GET", path: "/api/v1/services" } as const;
    const error = await transport.send(list, new AbortController().signal).catch((failure: unknown) => failure);
    assert.ok(error instanceof ApiError, String(error));
    assert.deepEqual([error.code, error.facts.status], ["refused", status]);
    const advice = "which is not followed: make the kubeconfig's server the address of the API server itself";
    const target = `"http://localhost:${port}/login"`;
    assert.equal(error.message, `list services: HTTP status ${status}: a redirect to ${target}, ${advice}`);
    assert.deepEqual(asked, [["/api/v1/services", `127.0.0.1:${port}`]]);
  });
}
