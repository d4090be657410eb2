/** A connection that fails at a proxy: the error names the proxy, which users may not know is in the environment. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { transportWith } from "../testing/transport-with.ts";

async function failureWith(proxyUrl: string | undefined, env: Readonly<Record<string, string>>): Promise<string> {
  const transport = transportWith({ server: new URL("https://10.1.2.3:6443"), proxyUrl }, { env });
  const request = { verb: "list", resource: "services", method: "GET", path: "/", idleMs: 5_000 } as const;
  const said = await transport.send(request, new AbortController().signal).then(
    () => "answered",
    (error: unknown) => String(error),
  );
  transport.close();
  return said;
}

const NAMED = /list services: 10\.1\.2\.3:6443 through the proxy 127\.0\.0\.1:1: connect ECONNREFUSED 127\.0\.0\.1:1/;

test("a proxy of the kubeconfig is named, without its password", async () => {
  const said = await failureWith("http://user:secret@127.0.0.1:1", {});
  assert.match(said, NAMED);
  assert.doesNotMatch(said, /secret/);
});

test("a proxy of the environment is named", async () => {
  assert.match(await failureWith(undefined, { HTTPS_PROXY: "127.0.0.1:1" }), NAMED);
});

test("a proxy's URL that cannot be read is told without its password", async () => {
  const said = await failureWith(undefined, { HTTPS_PROXY: "http://user:sec#ret@proxy.example:3128" });
  assert.match(
    said,
    /through the proxy proxy\.example:3128: the URL of the proxy cannot be read: check proxy-url and HTTPS/,
  );
  assert.doesNotMatch(said, /user|sec#|#ret/);
});
