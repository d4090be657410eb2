/** Certificates and keys as PEM text, checked when they are read rather than during a handshake. */
import { createPrivateKey, X509Certificate } from "node:crypto";
import { attempt } from "../../../../logging/attempt.ts";

const BLOCK = /-----BEGIN (?:TRUSTED )?CERTIFICATE-----[^-]+-----END (?:TRUSTED )?CERTIFICATE-----/g;

/** A valid certificate chain; the first certificate is the leaf. */
export interface CertificateChain {
  readonly text: string;
  readonly validFromMs: number;
  readonly validToMs: number;
}

/** @throws Error if the text contains no certificate, or one that cannot be parsed. */
export function readCertificates(text: string): CertificateChain {
  const blocks = text.match(BLOCK) ?? [];
  const certificates = blocks.map((block) => new X509Certificate(block));
  const [first] = certificates;
  if (first === undefined) throw new Error("it contains no PEM certificate");
  return { text, validFromMs: first.validFromDate.getTime(), validToMs: first.validToDate.getTime() };
}

/** @throws Error if the text is not a private key. */
export function readPrivateKey(text: string): string {
  if (!text.includes("PRIVATE KEY-----")) throw new Error("it contains no PEM private key");
  createPrivateKey(text);
  return text;
}

/** Whether the key belongs to the chain's leaf certificate. */
export function isPair(chain: CertificateChain, key: string): boolean {
  return attempt(() => new X509Certificate(chain.text).checkPrivateKey(createPrivateKey(key))) ?? false;
}
