/** Certificates and keys as PEM text, checked when they are read and not in the middle of a handshake. */
import { createPrivateKey, X509Certificate } from "node:crypto";
import { attempt } from "../../../logging/attempt.ts";

const BLOCK = /-----BEGIN (?:TRUSTED )?CERTIFICATE-----[^-]+-----END (?:TRUSTED )?CERTIFICATE-----/g;

/** A readable certificate chain; the first one is the holder's own. */
export interface CertificateChain {
  readonly text: string;
  readonly validFromMs: number;
  readonly validToMs: number;
}

/** @throws Error when there is no certificate in the text, or one that cannot be read. */
export function readCertificates(text: string): CertificateChain {
  const blocks = text.match(BLOCK) ?? [];
  const certificates = blocks.map((block) => new X509Certificate(block));
  const [first] = certificates;
  if (first === undefined) throw new Error("there is no PEM certificate in it");
  return { text, validFromMs: first.validFromDate.getTime(), validToMs: first.validToDate.getTime() };
}

/** @throws Error when the text is no private key. */
export function readPrivateKey(text: string): string {
  if (!text.includes("PRIVATE KEY-----")) throw new Error("there is no PEM private key in it");
  createPrivateKey(text);
  return text;
}

/** Whether the key is that of the chain's own certificate. */
export function isPair(chain: CertificateChain, key: string): boolean {
  return attempt(() => new X509Certificate(chain.text).checkPrivateKey(createPrivateKey(key))) ?? false;
}
