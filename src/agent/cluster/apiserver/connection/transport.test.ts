import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer as createTcpServer, type Server } from "node:net";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { service } from "../../../../../test/apiserver/example-objects.ts";
import type { Fault } from "../../../../../test/apiserver/faults.ts";
import { TestApiServer } from "../../../../../test/apiserver/test-api-server.ts";
import { createServer as createHttpServer } from "../../../../kernel/node-http.ts";
import { CertificateAuthority } from "../testing/certificates.ts";
import { startProxy } from "../testing/test-proxy.ts";
import { transportWith } from "../testing/transport-with.ts";
import { ApiError } from "./api-error.ts";
import type { ClientConfig, ExecPlugin } from "./client-config.ts";
import type { ApiRequest, Transport, TransportOptions } from "./transport.ts";

const never = new AbortController().signal;
const LIST: ApiRequest = { verb: "list", resource: "services", method: "GET", path: "/api/v1/services", idleMs: 2_000 };

async function startServer(t: TestContext, options: Parameters<typeof TestApiServer.start>[0] = {}) {
  const server = await TestApiServer.start(options);
  t.after(() => server.close());
  return server;
}

function client(url: string, ca: string, config: Partial<ClientConfig> = {}, options: Partial<TransportOptions> = {}) {
  return transportWith({ server: new URL(url), ca: { kind: "data", text: ca }, ...config }, options);
}

async function read(transport: Transport, request: ApiRequest = LIST): Promise<string> {
  const { body } = await transport.send(request, never);
  const chunks: Buffer[] = [];
  for await (const chunk of body) chunks.push(chunk);
  return Buffer.concat(chunks).toString("utf8");
}

async function failure(promise: Promise<unknown>): Promise<ApiError> {
  try {
    await promise;
  } catch (error) {
    assert.ok(error instanceof ApiError, String(error));
    return error;
  }
  return assert.fail("it succeeded");
}

test("requests go over one kept-alive connection, with the headers that upstream sends", async (t) => {
  const server = await startServer(t);
  const transport = client(server.url, server.authority.certificate, {
    impersonation: { "Impersonate-Group": ["a", "b"] },
  });
  for (let index = 0; index < 3; index++) assert.equal(JSON.parse(await read(transport)).kind, "ServiceList");
  assert.equal(server.connections, 1);
  const headers = server.requests[0]?.headers;
  assert.equal(headers?.["user-agent"], "kube-proxy/v1.36.2 (linux/amd64) kubernetes/unknown");
  assert.equal(headers?.accept, "application/json;drop=metadata.managedFields, application/json");
  assert.equal(headers?.["accept-encoding"], "gzip");
  assert.equal(headers?.["impersonate-group"], "a, b");
  transport.close();
  const plain = client(server.url, server.authority.certificate, { isCompressionDisabled: true });
  await read(plain);
  assert.equal(server.requests.at(-1)?.headers["accept-encoding"], undefined, "disable-compression");
  plain.close();
});

test("compressed answers are read, and counted as what they say", async (t) => {
  const server = await startServer(t);
  for (let index = 0; index < 1000; index++) server.put("services", service(index));
  const sizes: number[] = [];
  const observer = {
    answered() {},
    rateLimited() {},
    retried() {},
    requestSize() {},
    responseSize: (_v: string, _h: string, bytes: number) => sizes.push(bytes),
  };
  const transport = client(server.url, server.authority.certificate, {}, { observer });
  const text = await read(transport);
  assert.equal(JSON.parse(text).items.length, 1000);
  assert.deepEqual(sizes, [text.length]);
  transport.close();
});

test("a token or a client certificate says who we are", async (t) => {
  const server = await startServer(t);
  server.switches.tokens = new Map([["secret", "system:kube-proxy"]]);
  const ca = server.authority.certificate;
  const { certificate, key } = server.authority.issue({ commonName: "system:kube-proxy" });
  const clientCertificate = {
    certificate: { kind: "data", text: certificate },
    key: { kind: "data", text: key },
  } as const;
  const accepted = [
    client(server.url, ca, { authentication: { kind: "token", token: "secret" } }),
    client(server.url, ca, { clientCertificate }),
  ];
  for (const transport of accepted) {
    assert.match(await read(transport), /ServiceList/);
    transport.close();
  }
  const refused = client(server.url, ca, { authentication: { kind: "token", token: "wrong" } });
  const { code, message } = await failure(read(refused));
  assert.equal(code, "unauthorized");
  assert.equal(
    message,
    "list services: 401 Unauthorized: Unauthorized: check the token or client certificate of the kubeconfig",
  );
  refused.close();
});

test("a 401 makes the credentials be read again", async (t) => {
  const server = await startServer(t);
  server.switches.tokens = new Map([["new", "u"]]);
  let token = "old";
  const tls = { ca: server.authority.certificate, rejectUnauthorized: true };
  const identity = {
    current: () => Promise.resolve({ headers: { Authorization: `Bearer ${token}` }, tls, files: [] }),
    refused: () => {
      token = "new";
    },
    hasChanged: () => Promise.resolve(false),
  };
  const transport = client(server.url, server.authority.certificate, {}, { identity });
  await failure(read(transport));
  assert.match(await read(transport), /ServiceList/);
  transport.close();
});

test("error answers become typed errors in one line", async (t) => {
  const server = await startServer(t);
  const transport = client(server.url, server.authority.certificate);
  const answer = async (fault: Fault) => {
    server.switches.fault = () => fault;
    return await failure(read(transport));
  };
  const forbidden = await answer({ kind: "status", code: 403, message: 'services is forbidden:\nUser "x"' });
  assert.equal(forbidden.code, "forbidden");
  assert.equal(
    forbidden.message,
    'list services: 403 Forbidden: services is forbidden: User "x": bind the ClusterRole system:node-proxier to this user',
  );
  assert.equal((await answer({ kind: "status", code: 410 })).code, "expired");
  assert.equal((await answer({ kind: "status", code: 404 })).code, "not_found");
  assert.equal((await answer({ kind: "status", code: 500 })).code, "server_error");
  assert.equal((await answer({ kind: "status", code: 422 })).code, "refused");
  const busy = await answer({ kind: "status", code: 429, retryAfterSeconds: 7 });
  assert.deepEqual([busy.code, busy.facts.retryAfterMs], ["too_many_requests", 7_000]);
  const ahead = await answer({ kind: "status", code: 504, cause: "ResourceVersionTooLarge" });
  assert.equal(ahead.code, "version_too_large");
  assert.equal((await answer({ kind: "reset" })).code, "unreachable");
  assert.equal((await answer({ kind: "cut", afterBytes: 20 })).code, "unreachable");
  transport.close();
});

test("silence before and in the middle of an answer ends after the limit", async (t) => {
  const server = await startServer(t);
  const transport = client(server.url, server.authority.certificate);
  for (const kind of ["silent", "stall"] as const) {
    server.switches.fault = () => ({ kind, afterBytes: 10 });
    const error = await failure(read(transport, { ...LIST, idleMs: 50 }));
    assert.equal(error.code, "timeout", kind);
    assert.match(error.message, /nothing arrived for/);
  }
  transport.close();
});

test("an abort while credentials are read: nothing is sent", async (t) => {
  const server = await startServer(t);
  const stop = new AbortController();
  const stopping = {
    current: async () => {
      await sleep(1);
      stop.abort();
      return { headers: {}, tls: { ca: server.authority.certificate, rejectUnauthorized: true }, files: [] };
    },
    refused: () => {},
    hasChanged: async () => false,
  };
  const transport = client(server.url, server.authority.certificate, {}, { identity: stopping });
  const watch = { ...LIST, verb: "watch", path: "/api/v1/services?watch=true", idleMs: 500 } as const;
  const { code, message } = await failure(transport.send(watch, stop.signal));
  assert.equal(code, "unreachable");
  assert.match(message, /stopped before it was sent/);
  assert.equal(server.requests.length, 0);
  transport.close();
});

test("an abort while an exec plugin runs ends the request and the plugin", { timeout: 10_000 }, async () => {
  const plugin: ExecPlugin = {
    ...{ apiVersion: "client.authentication.k8s.io/v1", command: "/bin/sleep", args: ["60"], env: {}, installHint: "" },
    provideClusterInfo: false,
  };
  const transport = client("https://127.0.0.1:1", new CertificateAuthority().certificate, {
    authentication: { kind: "exec", plugin },
  });
  const stop = new AbortController();
  const sent = transport.send(LIST, stop.signal);
  await sleep(50);
  stop.abort();
  assert.match((await failure(sent)).message, /stopped before it was sent/);
  transport.close();
});

test("an abort ends a running answer and leaves no connection behind", async (t) => {
  const server = await startServer(t);
  const transport = client(server.url, server.authority.certificate);
  const stop = new AbortController();
  const { body } = await transport.send({ ...LIST, verb: "watch", path: "/api/v1/services?watch=true" }, stop.signal);
  const reading = failure(
    (async () => {
      for await (const _ of body);
    })(),
  );
  stop.abort();
  await reading;
  while (server.connections > 0) await sleep(5);
  transport.close();
});

test("a kept-alive connection that the server has closed is replaced without an error", async (t) => {
  const server = await startServer(t);
  const transport = client(server.url, server.authority.certificate);
  let count = 0;
  await read(transport);
  // The server closes the connection on the second request, as when its idle timeout expires.
  server.switches.fault = () => (count++ === 0 ? { kind: "reset" } : undefined);
  assert.match(await read(transport), /ServiceList/);
  assert.equal(count, 2);
  transport.close();
});

test("a rotated CA is used for new connections", async (t) => {
  const authority = new CertificateAuthority("second");
  const first = await startServer(t);
  const config: { text: string } = { text: first.authority.certificate };
  const identity = {
    tls: { ca: config.text, rejectUnauthorized: true },
    current: () => Promise.resolve({ headers: {}, tls: identity.tls, files: [] }),
    refused() {},
    hasChanged: () => Promise.resolve(false),
  };
  const transport = client(first.url, config.text, {}, { identity });
  await read(transport);
  identity.tls = { ca: authority.certificate, rejectUnauthorized: true };
  assert.equal((await failure(read(transport))).code, "tls");
  identity.tls = { ca: first.authority.certificate, rejectUnauthorized: true };
  await read(transport);
  transport.close();
});

test("what is wrong with a server's certificate is said with what to do", async (t) => {
  const authority = new CertificateAuthority();
  const serverWith = async (options: { names?: readonly string[]; notAfter?: Date; notBefore?: Date }) =>
    await startServer(t, {
      authority,
      certificate: authority.issue({ commonName: "s", names: ["127.0.0.1"], ...options }),
    });
  const other = await serverWith({ names: ["kubernetes", "10.0.0.1"] });
  const cases: readonly [Transport, RegExp][] = [
    [
      client(other.url, authority.certificate),
      /the certificate is not for 127\.0\.0\.1 but for DNS:kubernetes, IP Address:10\.0\.0\.1: set tls-server-name/,
    ],
    [client(other.url, new CertificateAuthority().certificate), /unknown authority: check certificate-authority/],
    [
      client((await serverWith({ notAfter: new Date("2020-01-01") })).url, authority.certificate),
      /server's certificate has expired/,
    ],
    [
      client(
        (await serverWith({ notBefore: new Date("2999-01-01"), notAfter: new Date("3000-01-01") })).url,
        authority.certificate,
      ),
      /not valid yet: check this node's clock/,
    ],
  ];
  for (const [transport, expected] of cases) {
    const error = await failure(read(transport));
    assert.equal(error.code, "tls");
    assert.match(error.message, expected);
    assert.ok(!error.message.includes("\n"));
  }
  for (const serverName of ["kubernetes", "10.0.0.1"]) {
    const transport = client(other.url, authority.certificate, { serverName });
    assert.match(await read(transport), /ServiceList/, serverName);
    transport.close();
  }
  const insecure = client(other.url, authority.certificate, { ca: undefined, isServerVerified: false });
  assert.match(await read(insecure), /ServiceList/);
  insecure.close();
});

test("credentials that cannot be sent are an error like any other", async (t) => {
  const server = await startServer(t);
  const ca = server.authority.certificate;
  const token = client(server.url, ca, { authentication: { kind: "token", token: "a\nb" } });
  const error = await failure(read(token));
  assert.equal(error.code, "credentials");
  assert.match(error.message, /must be single lines of plain text/);
  const tls = { ca, cert: "no certificate", key: "no key", rejectUnauthorized: true };
  const current = () => Promise.resolve({ headers: {}, tls, files: [] });
  const identity = { current, refused() {}, hasChanged: () => Promise.resolve(false) };
  assert.equal((await failure(read(client(server.url, ca, {}, { identity })))).code, "tls");
});

test("a server that is not there, or speaks something else, is said with what to do", async (t) => {
  const listen = async (server: Server): Promise<number> => {
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    t.after(() => server.close());
    return (server.address() as AddressInfo).port;
  };
  const plain = await listen(createHttpServer((_request, response) => response.end("{}")));
  const babble = await listen(
    createTcpServer((socket) =>
      socket
        .on("error", () => {})
        .resume()
        .end("SSH-2.0-x\r\n"),
    ),
  );
  const ca = new CertificateAuthority().certificate;
  assert.match((await failure(read(client("https://127.0.0.1:1", ca)))).message, /ECONNREFUSED.*nothing listens there/);
  assert.match((await failure(read(client(`https://127.0.0.1:${plain}`, ca)))).message, /does not speak TLS/);
  assert.match((await failure(read(client(`http://127.0.0.1:${babble}`, ca)))).message, /that is not HTTP/);
  const secure = await startServer(t);
  assert.match((await failure(read(client(`http://127.0.0.1:${secure.port}`, ca)))).message, /^list services: 127/);
});

test("a proxy named in the kubeconfig carries the connection", async (t) => {
  const server = await startServer(t);
  const { url: proxyUrl, tunnels } = await startProxy(t);
  const transport = client(server.url, server.authority.certificate, { proxyUrl });
  assert.match(await read(transport), /ServiceList/);
  assert.equal(tunnels(), 1);
  transport.close();
  server.cutConnections();
});
