/** Kubeconfigs are resolved as upstream resolves them: client-go tools/clientcmd/client_config.go. */
import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { systemClock } from "../../../../async/clock.ts";
import { createServer } from "../../../../kernel/node-http.ts";
import { silentLogger } from "../../../../logging/logger.ts";
import { createApiClient } from "./api-client.ts";
import { resolveKubeconfig } from "./kubeconfig.ts";

const kubeconfig = (cluster: object, user: object | undefined) => ({
  clusters: [{ name: "c", cluster: { server: "https://10.0.0.1:6443", ...cluster } }],
  contexts: [{ name: "x", context: { cluster: "c", ...(user && { user: "u" }) } }],
  "current-context": "x",
  users: user === undefined ? [] : [{ name: "u", user }],
});
const resolve = (content: object, master = "") => resolveKubeconfig({ files: [{ path: "/k", content }], master });

test("--master clears the tls-server-name that belongs to the server of the file (getCluster)", () => {
  const config = resolve(kubeconfig({ "tls-server-name": "old.example" }, { token: "t" }), "https://new.example:6443");
  assert.equal(config.serverName, undefined);
});

test("a context without a user is anonymous (getAuthInfo: not required)", () => {
  assert.equal(resolve(kubeconfig({}, undefined)).authentication.kind, "none");
});

test("a client certificate goes before the exec plugin, which is not run (UpdateTransportConfig: HasCertAuth)", () => {
  const exec = { apiVersion: "client.authentication.k8s.io/v1", command: "get-token", interactiveMode: "Never" };
  const files = { "client-certificate": "/c.pem", "client-key": "/k.pem" };
  const both = resolve(kubeconfig({}, { ...files, exec }));
  assert.deepEqual([both.authentication.kind, both.clientCertificate?.key], ["none", { kind: "file", path: "/k.pem" }]);
  assert.equal(resolve(kubeconfig({}, { exec })).authentication.kind, "exec");
});

test("no token goes over http:// (ClientConfig: only try to read the auth information if we are secure)", async (t) => {
  const seen: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    seen.push(request.headers.authorization);
    response.setHeader("Content-Type", "application/json");
    response.end('{"kind":"ServiceList","metadata":{"resourceVersion":"1"},"items":[]}');
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  for (const user of [{ token: "secret" }, { username: "u", password: "secret" }]) {
    const config = resolve(kubeconfig({}, user), `http://127.0.0.1:${port}`);
    const client = createApiClient({
      ...{ config, qps: -1, burst: 0, version: "v1.37.0", product: "x", clock: systemClock, log: silentLogger },
    });
    const transport = client.newTransport();
    const path = "/api/v1/services";
    const request = { verb: "list", resource: "services", method: "GET", path } as const;
    for await (const chunk of (await transport.send(request, new AbortController().signal)).body) void chunk;
    transport.close();
  }
  assert.deepEqual(seen, [undefined, undefined]);
});
