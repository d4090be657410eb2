import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { FakeClock } from "../../../sync/testing/fake-clock.ts";
import { UNSAID } from "../connection/client-config.ts";
import { CertificateAuthority } from "../testing/certificates.ts";
import { recordingLog } from "../testing/recording-log.ts";
import { createIdentity } from "./identity.ts";

const MINUTE_MS = 60_000;

test("a client certificate that was renewed without its key is told once, unless the key comes within a minute", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-identity-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const authority = new CertificateAuthority();
  const [one, two, three] = ["one", "two", "three"].map((commonName) => authority.issue({ commonName }));
  const paths = { certificate: join(folder, "c.pem"), key: join(folder, "k.pem") };
  const write = (certificate = "", key = ""): void => {
    writeFileSync(paths.certificate, certificate);
    writeFileSync(paths.key, key);
  };
  write(one?.certificate, one?.key);
  const clock = new FakeClock(Date.now());
  const log = recordingLog();
  const identity = createIdentity({
    config: {
      ...UNSAID,
      server: new URL("https://cp:6443"),
      ca: { kind: "data", text: authority.certificate },
      clientCertificate: {
        certificate: { kind: "file", path: paths.certificate },
        key: { kind: "file", path: paths.key },
      },
    },
    clock,
    log,
  });
  const certificateAfter = async (ms: number): Promise<string | undefined> => {
    await clock.advance(ms);
    return (await identity.current()).tls?.cert;
  };
  await identity.current();
  write(two?.certificate, one?.key);
  assert.equal(await certificateAfter(MINUTE_MS), one?.certificate);
  assert.deepEqual(log.errors(), [], "perhaps the key is about to come");
  write(two?.certificate, two?.key);
  assert.equal(await certificateAfter(MINUTE_MS), two?.certificate);
  assert.deepEqual(log.errors(), []);
  write(three?.certificate, two?.key);
  for (let minute = 0; minute < 4; minute++) assert.equal(await certificateAfter(MINUTE_MS), two?.certificate);
  assert.deepEqual(log.errors(), [
    "The new client key does not match the client certificate, keeping the last good pair",
  ]);
  assert.deepEqual(log.lines.at(-1)?.facts, paths);
});
