import assert from "node:assert/strict";
import { test } from "node:test";
import { getCACertificates } from "node:tls";
import { CertificateAuthority } from "../testing/certificates.ts";
import { connectionOptions } from "./secure-context.ts";

const ca = new CertificateAuthority().certificate;

test("all connections with the same material share one context, which is passed as such", () => {
  const material = { ca, rejectUnauthorized: true, servername: "cp" };
  const { secureContext, ...rest } = connectionOptions(material);
  assert.deepEqual(rest, { rejectUnauthorized: true, servername: "cp" });
  assert.ok(secureContext !== undefined);
  assert.equal(connectionOptions(material).secureContext, secureContext);
  assert.notEqual(connectionOptions({ ...material }).secureContext, secureContext);
});

test("roots are loaded only where they verify something, and each once", () => {
  const known = new Set([...getCACertificates("default"), ...getCACertificates("system")].map(bodyOf));
  const before = getCACertificates("default");
  connectionOptions({ ca: "", rejectUnauthorized: false });
  assert.equal(getCACertificates("default"), before);
  connectionOptions({ ca: undefined, rejectUnauthorized: true });
  const bodies = getCACertificates("default").map(bodyOf);
  assert.equal(new Set(bodies).size, bodies.length);
  assert.deepEqual(new Set(bodies), known);
});

function bodyOf(certificate: string): string {
  return certificate.replaceAll(/-----[^-]+-----|\s/g, "");
}
