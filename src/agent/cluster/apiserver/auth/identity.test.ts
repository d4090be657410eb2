import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { FakeClock } from "../../../sync/testing/fake-clock.ts";
import { type ClientConfig, UNSAID } from "../connection/client-config.ts";
import { CertificateAuthority } from "../testing/certificates.ts";
import { recordingLog } from "../testing/recording-log.ts";
import { createIdentity, type IdentityOptions } from "./identity.ts";

const MINUTE_MS = 60_000;
const authority = new CertificateAuthority();

const base: ClientConfig = {
  ...UNSAID,
  server: new URL("https://cp:6443"),
  ca: { kind: "data", text: authority.certificate },
};

const plugin = {
  apiVersion: "client.authentication.k8s.io/v1",
  command: "get-token",
  args: ["-x"],
  env: { A: "b" },
  installHint: "",
  provideClusterInfo: true,
} as const;

/** The plugin's output. */
const credential = (status: object) =>
  JSON.stringify({ apiVersion: plugin.apiVersion, kind: "ExecCredential", status });

function setUp(config: Partial<ClientConfig>, options: Partial<IdentityOptions> = {}) {
  const clock = new FakeClock(Date.now());
  const log = recordingLog();
  return { clock, log, identity: createIdentity({ config: { ...base, ...config }, clock, log, ...options }) };
}

function temporaryFolder(t: { after(callback: () => void): void }): string {
  const folder = mkdtempSync(join(tmpdir(), "kpts-identity-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

test("a rotated token file is read again after a minute, and at once after a refusal", async (t) => {
  const path = join(temporaryFolder(t), "token");
  writeFileSync(path, "one\n");
  const { identity, clock } = setUp({ authentication: { kind: "tokenFile", path } });
  const authorization = async () => (await identity.current()).headers.Authorization;
  assert.equal(await authorization(), "Bearer one");
  writeFileSync(path, "two\n");
  assert.equal(await authorization(), "Bearer one");
  await clock.advance(MINUTE_MS);
  assert.equal(await authorization(), "Bearer two");
  writeFileSync(path, "three\n");
  identity.refused();
  assert.equal(await authorization(), "Bearer three");
});

test("a token file that goes bad keeps the last good token and is complained of once", async (t) => {
  const path = join(temporaryFolder(t), "token");
  writeFileSync(path, "one");
  const { identity, clock, log } = setUp({ authentication: { kind: "tokenFile", path } });
  await identity.current();
  for (const content of ["", "a b"]) {
    writeFileSync(path, content);
    await clock.advance(MINUTE_MS);
    assert.equal((await identity.current()).headers.Authorization, "Bearer one");
  }
  assert.deepEqual(log.errors(), ["Cannot use the new token file, keeping the last good one: it is empty"]);
});

test("a file is news once, also when what it says is of no use: who waits for news would ask on and on", async (t) => {
  const path = join(temporaryFolder(t), "token");
  writeFileSync(path, "one");
  const { identity } = setUp({ authentication: { kind: "tokenFile", path } });
  await identity.current();
  assert.equal(await identity.hasChanged(), false);
  for (const content of ["", "a b", "two"]) {
    writeFileSync(path, content);
    assert.equal(await identity.hasChanged(), true, content);
    identity.refused();
    await identity.current();
    assert.equal(await identity.hasChanged(), false, content);
  }
});

test("a file that others have read since is news for who sent what it said before", async (t) => {
  const path = join(temporaryFolder(t), "token");
  writeFileSync(path, "one");
  const { identity } = setUp({ authentication: { kind: "tokenFile", path } });
  const one = await identity.current();
  writeFileSync(path, "two");
  identity.refused();
  const two = await identity.current();
  assert.equal(await identity.hasChanged(one), true);
  assert.equal(await identity.hasChanged(two), false);
});

test("a client key that is not used, since a plugin gives one, is no news", async (t) => {
  const path = join(temporaryFolder(t), "key");
  const { certificate, key } = authority.issue({ commonName: "plugin" });
  writeFileSync(path, key);
  const { identity } = setUp(
    {
      clientCertificate: { certificate: { kind: "data", text: certificate }, key: { kind: "file", path } },
      authentication: { kind: "exec", plugin },
    },
    { run: () => Promise.resolve(credential({ clientCertificateData: certificate, clientKeyData: key })) },
  );
  await identity.current();
  assert.equal(await identity.hasChanged(), false);
});

test("a token file that was never there is an error with its path", async () => {
  const { identity } = setUp({ authentication: { kind: "tokenFile", path: "/nowhere/token" } });
  await assert.rejects(identity.current(), /cannot use the token file \/nowhere\/token: ENOENT/);
});

test("TLS material is one object until a file changes", async (t) => {
  const path = join(temporaryFolder(t), "ca.crt");
  writeFileSync(path, authority.certificate);
  const { identity, clock } = setUp({ ca: { kind: "file", path } });
  const first = (await identity.current()).tls;
  await clock.advance(MINUTE_MS);
  assert.equal((await identity.current()).tls, first);
  const next = new CertificateAuthority("next");
  writeFileSync(path, next.certificate);
  await clock.advance(MINUTE_MS);
  assert.equal((await identity.current()).tls?.ca, next.certificate);
});

test("a client certificate and its key are exchanged together", async (t) => {
  const folder = temporaryFolder(t);
  const paths = { certificate: join(folder, "c.pem"), key: join(folder, "k.pem") };
  const [one, two] = [authority.issue({ commonName: "one" }), authority.issue({ commonName: "two" })];
  writeFileSync(paths.certificate, one.certificate);
  writeFileSync(paths.key, one.key);
  const { identity, clock } = setUp({
    clientCertificate: {
      certificate: { kind: "file", path: paths.certificate },
      key: { kind: "file", path: paths.key },
    },
  });
  assert.equal((await identity.current()).tls?.cert, one.certificate);
  writeFileSync(paths.certificate, two.certificate);
  await clock.advance(MINUTE_MS);
  assert.equal((await identity.current()).tls?.cert, one.certificate, "the key is still the old one");
  writeFileSync(paths.key, two.key);
  await clock.advance(MINUTE_MS);
  const { tls } = await identity.current();
  assert.deepEqual([tls?.cert, tls?.key], [two.certificate, two.key]);
});

test("a new CA is taken also while a client certificate and its key do not match", async (t) => {
  const folder = temporaryFolder(t);
  const file = (name: string) => ({ kind: "file", path: join(folder, name) }) as const;
  const [one, two] = [authority.issue({ commonName: "one" }), authority.issue({ commonName: "two" })];
  const next = new CertificateAuthority("next");
  const write = (name: string, text: string) => writeFileSync(join(folder, name), text);
  write("ca.crt", authority.certificate);
  write("c.pem", one.certificate);
  write("k.pem", one.key);
  const { identity, clock } = setUp({
    ca: file("ca.crt"),
    clientCertificate: { certificate: file("c.pem"), key: file("k.pem") },
  });
  await identity.current();
  write("c.pem", two.certificate);
  await clock.advance(MINUTE_MS);
  await identity.current();
  write("ca.crt", next.certificate);
  await clock.advance(MINUTE_MS);
  const { tls } = await identity.current();
  assert.deepEqual([tls?.ca, tls?.cert, tls?.key], [next.certificate, one.certificate, one.key]);
});

test("an expired client certificate is named once, with the date", async () => {
  const { certificate, key } = authority.issue({ commonName: "old", notAfter: new Date("2020-01-01T00:00:00Z") });
  const { identity, log } = setUp({
    clientCertificate: { certificate: { kind: "data", text: certificate }, key: { kind: "data", text: key } },
  });
  await identity.current();
  await identity.current();
  assert.equal(log.errors().length, 1);
  assert.match(log.errors()[0] ?? "", /client certificate has expired.*renew it/);
  assert.equal(log.lines[0]?.facts.notAfter, "2020-01-01T00:00:00.000Z");
});

test("unreadable certificates are refused by name", () => {
  const bad = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
  assert.throws(() => setUp({ ca: { kind: "data", text: bad } }), /cannot use the CA file in the kubeconfig/);
});

test("the server's name can be another than the one that is called, also an address", async () => {
  const named = (await setUp({ serverName: "kubernetes" }).identity.current()).tls;
  assert.equal(named?.servername, "kubernetes");
  const address = (await setUp({ serverName: "10.0.0.1" }).identity.current()).tls;
  assert.equal(address?.servername, "", "an address cannot be sent as server name");
});

test("an exec plugin is asked once, again when its credential expires, and again when it is refused", async () => {
  const calls: { readonly args: readonly string[]; readonly info: unknown; readonly a: string | undefined }[] = [];
  const { clock, identity } = setUp(
    { authentication: { kind: "exec", plugin } },
    {
      run: (_file, args, env) => {
        calls.push({ args, info: JSON.parse(env.KUBERNETES_EXEC_INFO ?? ""), a: env.A });
        const expirationTimestamp = new Date(clock.now() + MINUTE_MS).toISOString();
        const status = { token: `t${calls.length}`, expirationTimestamp };
        return Promise.resolve(credential(status));
      },
    },
  );
  const authorization = async () => (await identity.current()).headers.Authorization;
  assert.deepEqual(await Promise.all([authorization(), authorization()]), ["Bearer t1", "Bearer t1"]);
  await clock.advance(MINUTE_MS + 1);
  assert.equal(await authorization(), "Bearer t2");
  identity.refused();
  assert.equal(await authorization(), "Bearer t3");
  assert.equal(calls.length, 3);
  assert.deepEqual(calls[0], {
    args: ["-x"],
    a: "b",
    info: {
      kind: "ExecCredential",
      apiVersion: plugin.apiVersion,
      spec: {
        interactive: false,
        cluster: {
          server: "https://cp:6443",
          "certificate-authority-data": Buffer.from(authority.certificate).toString("base64"),
        },
      },
    },
  });
});
