/** A plugin that prints something unusable is run again. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { TestApiServer } from "../../../../../test/apiserver/test-api-server.ts";
import { ApiError } from "../connection/api-error.ts";
import { CertificateAuthority } from "../testing/certificates.ts";
import { transportWith } from "../testing/transport-with.ts";

const apiVersion = "client.authentication.k8s.io/v1";
const plugin = { apiVersion, command: "get", args: [], env: {}, installHint: "", provideClusterInfo: false } as const;
const authority = new CertificateAuthority();
const one = authority.issue({ commonName: "system:kube-proxy" });
const two = authority.issue({ commonName: "system:kube-proxy" });

const CASES: Readonly<Record<string, object>> = {
  // The certificate was renewed between the plugin's reads of its two files.
  "a key that is not the certificate's": { clientCertificateData: one.certificate, clientKeyData: two.key },
  "half of a certificate": { clientCertificateData: one.certificate.slice(0, 200), clientKeyData: one.key },
  "a token with a line of warning before it": { token: "warning: cache is stale\nabc" },
};

for (const [title, bad] of Object.entries(CASES)) {
  test(title, async (t) => {
    const server = await TestApiServer.start();
    t.after(() => server.close());
    let runs = 0;
    const run = async (): Promise<string> => {
      runs++;
      return JSON.stringify({ apiVersion, kind: "ExecCredential", status: runs === 1 ? bad : { token: "good" } });
    };
    const transport = transportWith(
      {
        server: new URL(server.url),
        ca: { kind: "data", text: server.authority.certificate },
        authentication: { kind: "exec", plugin },
      },
      { run },
    );
    t.after(() => transport.close());
    const signal = new AbortController().signal;
    const list = { verb: "list", resource: "services", method: "GET", path: "/api/v1/services" } as const;
    const outcomes: string[] = [];
    for (let attempt = 0; attempt < 4; attempt++) {
      try {
        const { body } = await transport.send(list, signal);
        for await (const chunk of body) void chunk;
        outcomes.push("ok");
      } catch (error) {
        assert.ok(error instanceof ApiError);
        outcomes.push(error.code);
      }
    }
    assert.equal(outcomes.at(-1), "ok", `${outcomes.join(", ")}; the plugin was run ${runs} times`);
  });
}
