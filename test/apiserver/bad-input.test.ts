/**
 * What the whole program, with kubeadm's files, tells an operator about bad input, and that it keeps running. The tests
 * in source-*.test.ts cover the same faults one by one, and many more.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { CertificateAuthority } from "../../src/agent/cluster/apiserver/testing/certificates.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { type ApiDaemonOptions, startApiDaemon, startClusterServer } from "./api-daemon.ts";
import { service, slice } from "./example-objects.ts";
import { type Fault, WEB_PAGE } from "./faults.ts";
import { CONFIG_CONF, kubeconfigConf } from "./kubeadm-files.ts";
import type { SeenRequest, TestApiServer } from "./test-api-server.ts";

const authority = new CertificateAuthority();
const YESTERDAY = new Date(Date.now() - 86_400_000);

/** A kubeconfig that uses this client certificate. */
function withClientCertificate(url: string, certificate: string, key: string): string {
  const base64 = (text: string): string => Buffer.from(text).toString("base64");
  const user = `    client-certificate-data: ${base64(certificate)}\n    client-key-data: ${base64(key)}\n`;
  return kubeconfigConf(url).replace(/ {4}tokenFile.*\n/, user);
}

/** Mistakes that end the program, because waiting cannot help. */
const ENDS: readonly (readonly [string, (server: TestApiServer) => Partial<ApiDaemonOptions>, RegExp])[] = [
  [
    "a kubeconfig that is not there",
    () => ({ config: CONFIG_CONF.replace("/kubeconfig.conf", "/other.conf") }),
    /cannot read the kubeconfig: ENOENT.*'\/var\/lib\/kube-proxy\/other\.conf': check clientConnection\.kubeconfig/,
  ],
  [
    "a kubeconfig that is none",
    () => ({ kubeconfig: "current-context: x\ncontexts: 7\n" }),
    /invalid configuration: kubeconfig \/var\/lib\/kube-proxy\/kubeconfig\.conf: current-context \\"x\\" is not among the contexts/,
  ],
  [
    "an empty token",
    () => ({ token: "\n" }),
    /cannot use the token file \S+\/token: it is empty: check tokenFile in the/,
  ],
  [
    "a CA file that is none",
    () => ({ ca: "garbage" }),
    /cannot use the CA file \S+\/ca\.crt: it contains no PEM certificate: check certificate-authority in the kubeconfig/,
  ],
  [
    "a client certificate that cannot be read",
    ({ url }) => ({ kubeconfig: withClientCertificate(url, "-----BEGIN CERTIFICATE-----", "-----BEGIN KEY-----") }),
    /cannot use the client certificate in the kubeconfig: it contains no PEM certificate: check client-certificate-data/,
  ],
  [
    "a key that belongs to another certificate",
    ({ url }) => {
      const [mine, other] = [authority.issue({ commonName: "a" }), authority.issue({ commonName: "b" })];
      return { kubeconfig: withClientCertificate(url, mine.certificate, other.key) };
    },
    /the client key does not match the client certificate: check client-key and client-certificate/,
  ],
];

/** Faults that may be fixed while the program waits. */
const WAITS: readonly (readonly [string, (server: TestApiServer) => Partial<ApiDaemonOptions>, RegExp])[] = [
  [
    "a CA that did not sign the server's certificate",
    () => ({ ca: new CertificateAuthority().certificate }),
    /unknown authority: check certificate-authority/,
  ],
  [
    "a token that the server does not know",
    () => ({ token: "old" }),
    /401 Unauthorized.*check the token or client certificate/,
  ],
  [
    "a client certificate that has expired",
    ({ url, authority: trusted }) => {
      const { certificate, key } = trusted.issue({ commonName: "system:kube-proxy", notAfter: YESTERDAY });
      return { kubeconfig: withClientCertificate(url, certificate, key) };
    },
    /401 Unauthorized.*check the token or client certificate/,
  ],
  [
    "an address without a listener",
    () => ({ kubeconfig: kubeconfigConf("https://127.0.0.1:9") }),
    /nothing listens there/,
  ],
];

async function healthz(): Promise<{ readonly status: number; readonly body: string }> {
  const answer = await fetch("http://127.0.0.1:10256/healthz");
  return { status: answer.status, body: await answer.text() };
}

/** Why a resource cannot be watched, according to the health response. */
async function reasonOf(resource: string): Promise<string | undefined> {
  const { failures = [] } = JSON.parse((await healthz()).body) as { failures?: { subject: string; reason: string }[] };
  return failures.find(({ subject }) => subject === `watch of ${resource}`)?.reason;
}

function rules(): string {
  const saved = execFileSync("iptables-save", { encoding: "utf8" });
  return saved.replaceAll(/^#.*\n/gm, "").replaceAll(/ \[\d+:\d+\]$/gm, "");
}

inNetns(import.meta.url, { name: "badinput", timeoutMs: 240_000 }, () => {
  for (const [what, options, expected] of ENDS) {
    test(`${what} ends the program with a line that says what to do`, async (t) => {
      const server = await startClusterServer(t);
      const daemon = startApiDaemon(t, server, options(server));
      assert.equal(await daemon.ended(), 1);
      const [line, ...others] = daemon.lines(/"command failed"/);
      assert.match(line ?? "", expected);
      assert.deepEqual(others, []);
      assert.equal(server.requests.length, 0);
    });
  }

  for (const [what, options, expected] of WAITS) {
    test(`${what} is said in one line and by /healthz, and waited for`, async (t) => {
      const server = await startClusterServer(t);
      const daemon = startApiDaemon(t, server, options(server));
      await daemon.said(/Failed to watch/);
      const complaints = daemon.lines(/^E.*Failed to watch/);
      assert.equal(complaints.length, 1);
      assert.match(complaints[0] ?? "", expected);
      // The log has one line for all watches; the health response names each as soon as it has failed.
      for (const resource of ["nodes", "services", "endpointslices"]) {
        await daemon.until(`the watch of ${resource}`, async () => (await reasonOf(resource)) !== undefined);
        const reason = (await reasonOf(resource)) ?? "";
        assert.match(reason, new RegExp(`^(?:watch|list) ${resource}: `));
        assert.match(reason, expected);
      }
      assert.equal((await healthz()).status, 503);
      assert.equal(daemon.child.exitCode, null);
    });
  }

  for (const [what, issued, expected] of [
    [
      "another name",
      { names: ["kubernetes.default", "10.96.0.1"] },
      /the certificate is not for 127\.0\.0\.1 but for DNS:kubernetes\.default, IP Address:10\.96\.0\.1: set tls-server-name/,
    ],
    [
      "a date in the past",
      { names: ["127.0.0.1"], notAfter: YESTERDAY },
      /certificate has expired: renew it, and check/,
    ],
  ] as const) {
    test(`a server's certificate with ${what} is said with what to do`, async (t) => {
      const certificate = authority.issue({ commonName: "kube-apiserver", ...issued });
      const server = await startClusterServer(t, { authority, certificate });
      const daemon = startApiDaemon(t, server);
      await daemon.said(expected);
      assert.equal(daemon.lines(/^E.*Failed to watch/).length, 1);
    });
  }

  test("an expired client certificate is also named with its date", async (t) => {
    const server = await startClusterServer(t);
    const { certificate, key } = server.authority.issue({ commonName: "system:kube-proxy", notAfter: YESTERDAY });
    const daemon = startApiDaemon(t, server, { kubeconfig: withClientCertificate(server.url, certificate, key) });
    await daemon.said(/client certificate has expired, the API server will refuse it: renew it" .*notAfter="/);
  });

  test("every resource failing in another way is named, keeps its rules, and comes back", async (t) => {
    const server = await startClusterServer(t);
    const daemon = startApiDaemon(t, server);
    await daemon.synced();
    const before = rules();
    const { pid } = daemon;
    let isOver = false;
    const faults: Readonly<Record<string, Fault>> = {
      services: WEB_PAGE,
      endpointslices: { kind: "text", contentType: "application/json", text: '{"kind":"EndpointSliceList","ite' },
      nodes: { kind: "status", code: 401 },
      servicecidrs: { kind: "status", code: 403 },
    };
    server.switches.fault = ({ plural }: SeenRequest) => (isOver ? undefined : faults[plural]);
    server.store.compact();
    server.cutConnections();
    for (const expected of [
      /(?:watch|list) services: .*text\/html\\" and not JSON: is this an API server\?" resource="services"/,
      /watch endpointslices: .*: the response ends in the middle of an event, after 32 bytes of it" resource="endpointslices"/,
      /(?:watch|list) nodes: 401 Unauthorized.* resource="nodes"/,
      /(?:watch|list) servicecidrs: 403 Forbidden.*bind the ClusterRole system:node-proxier.* resource="servicecidrs"/,
    ]) {
      await daemon.said(expected);
    }
    assert.equal(daemon.lines(/^E.*Failed to watch/).length, 4, daemon.log);
    const { status, body } = await healthz();
    assert.equal(status, 200, "the rules are in force");
    const subjects = JSON.parse(body).failures.map(({ subject }: { subject: string }) => subject);
    assert.deepEqual(
      subjects.toSorted(),
      Object.keys(faults)
        .sort()
        .map((plural) => `watch of ${plural}`),
    );
    assert.equal(rules(), before);
    isOver = true;
    server.put("endpointslices", slice(1, 1, 9));
    await daemon.until("the new rules", () => rules().includes("10.137.1.1:8080"));
    await daemon.until("all to be well", async () => !(await healthz()).body.includes("failures"));
    assert.equal(daemon.lines(/"Watching again"/).length, 4);
    assert.equal(daemon.pid, pid);
    assert.equal(daemon.child.exitCode, null);
  });

  test("objects that cannot be used are named, one of 40 MB is read, and the others' rules follow", async (t) => {
    const server = await startClusterServer(t);
    const daemon = startApiDaemon(t, server);
    await daemon.synced();
    server.put("services", service(1, { externalName: "x".repeat(40 * 1_048_576) }), service(2));
    server.put("endpointslices", slice(2));
    await daemon.until("the rules behind it", () => rules().includes("10.128.2.1:8080"));
    for (const watch of server.watches("services")) watch.sendNow("MODIFIED", {});
    await daemon.said(/the object of a MODIFIED event has no name: .* resource="services"/);
    server.put("services", service(3));
    server.put("endpointslices", slice(3));
    await daemon.until("the other rules", () => rules().includes("10.128.3.1:8080"));
    assert.match(rules(), /10\.128\.1\.1:8080/, "the last good version stays in force");
    const peakKb = Number(/^VmHWM:\s+(\d+) kB/m.exec(readFileSync(`/proc/${daemon.pid}/status`, "utf8"))?.[1]);
    assert.ok(peakKb < 320_000, `${peakKb} kB`);
  });
});
