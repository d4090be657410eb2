/**
 * A certificate authority for tests: creates X.509 certificates with given names and dates in memory. Node.js can sign
 * but not build certificates, so this file writes the few DER structures that one needs (RFC 5280).
 */
import { createHash, generateKeyPairSync, type KeyObject, randomBytes, sign } from "node:crypto";
import { isIPv4, isIPv6 } from "node:net";
import { ipBytes, parseIpAddress } from "../../../../net/ip.ts";

export interface KeyPair {
  /** PEM. */
  readonly certificate: string;
  /** PEM. */
  readonly key: string;
}

export interface LeafOptions {
  readonly commonName: string;
  /** Organisations, which Kubernetes uses as groups. */
  readonly organisations?: readonly string[];
  /** A server's DNS names and addresses. @default none */
  readonly names?: readonly string[];
  /** @default an hour ago */
  readonly notBefore?: Date;
  /** @default in a day */
  readonly notAfter?: Date;
}

const HOUR_MS = 3_600_000;

export class CertificateAuthority {
  readonly certificate: string;
  readonly #name: Buffer;
  readonly #key: KeyObject;
  readonly #publicKey: KeyObject;

  constructor(commonName = "test CA") {
    const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    this.#key = privateKey;
    this.#publicKey = publicKey;
    this.#name = nameOf(commonName, []);
    const extensions = [
      extension("2.5.29.19", true, sequence(boolean(true))),
      extension("2.5.29.15", true, bitString(Buffer.of(0x06), 1)),
      extension("2.5.29.14", false, octetString(keyIdentifier(publicKey))),
    ];
    this.certificate = this.#issue(this.#name, publicKey, extensions, {});
  }

  /** Issues a certificate and key for a server (with `names`) or a client. */
  issue(options: LeafOptions): KeyPair {
    const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    const { names = [] } = options;
    const extensions = [
      extension("2.5.29.15", true, bitString(Buffer.of(0x80), 7)),
      extension("2.5.29.37", false, sequence(objectId("1.3.6.1.5.5.7.3.1"), objectId("1.3.6.1.5.5.7.3.2"))),
      extension("2.5.29.35", false, sequence(tagged(0x80, keyIdentifier(this.#publicKey)))),
      ...(names.length === 0 ? [] : [extension("2.5.29.17", false, sequence(...names.map(alternativeName)))]),
    ];
    const subject = nameOf(options.commonName, options.organisations ?? []);
    return {
      certificate: this.#issue(subject, publicKey, extensions, options),
      key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    };
  }

  #issue(
    subject: Buffer,
    publicKey: KeyObject,
    extensions: readonly Buffer[],
    { notBefore, notAfter }: Pick<LeafOptions, "notBefore" | "notAfter">,
  ): string {
    const algorithm = sequence(objectId("1.2.840.10045.4.3.2")); // ecdsa-with-SHA256
    const serial = randomBytes(12);
    serial[0] = 0x40; // positive and without needless zeros
    const toBeSigned = sequence(
      tagged(0xa0, tagged(0x02, Buffer.of(2))), // version 3
      tagged(0x02, serial),
      algorithm,
      this.#name,
      sequence(
        time(notBefore ?? new Date(Date.now() - HOUR_MS)),
        time(notAfter ?? new Date(Date.now() + 24 * HOUR_MS)),
      ),
      subject,
      publicKey.export({ type: "spki", format: "der" }),
      tagged(0xa3, sequence(...extensions)),
    );
    const der = sequence(toBeSigned, algorithm, bitString(sign("sha256", toBeSigned, this.#key), 0));
    const lines = der.toString("base64").match(/.{1,64}/g) ?? [];
    return `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`;
  }
}

function tagged(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const size = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.of(tag, ...size), content]);
}

function sequence(...parts: readonly Uint8Array[]): Buffer {
  return tagged(0x30, ...parts);
}

function boolean(value: boolean): Buffer {
  return tagged(0x01, Buffer.of(value ? 0xff : 0));
}

function octetString(bytes: Uint8Array): Buffer {
  return tagged(0x04, bytes);
}

function bitString(bytes: Uint8Array, unusedBits: number): Buffer {
  return tagged(0x03, Buffer.of(unusedBits), bytes);
}

function objectId(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split(".").map(Number);
  const bytes = [first * 40 + second];
  for (const arc of rest) {
    const groups = [arc & 0x7f];
    for (let left = arc >>> 7; left > 0; left >>>= 7) groups.unshift((left & 0x7f) | 0x80);
    bytes.push(...groups);
  }
  return tagged(0x06, Buffer.from(bytes));
}

function extension(id: string, isCritical: boolean, value: Buffer): Buffer {
  return sequence(objectId(id), ...(isCritical ? [boolean(true)] : []), octetString(value));
}

function nameOf(commonName: string, organisations: readonly string[]): Buffer {
  const attribute = (id: string, text: string) =>
    tagged(0x31, sequence(objectId(id), tagged(0x0c, Buffer.from(text, "utf8"))));
  return sequence(...organisations.map((text) => attribute("2.5.4.10", text)), attribute("2.5.4.3", commonName));
}

function alternativeName(name: string): Buffer {
  const address = isIPv4(name) || isIPv6(name) ? parseIpAddress(name) : undefined;
  return address === undefined ? tagged(0x82, Buffer.from(name, "latin1")) : tagged(0x87, ipBytes(address));
}

/** GeneralizedTime, which OpenSSL accepts for any year. */
function time(date: Date): Buffer {
  const digits = date.toISOString().replaceAll(/[-:T]|\.\d+/g, "");
  return tagged(0x18, Buffer.from(digits, "latin1"));
}

function keyIdentifier(publicKey: KeyObject): Buffer {
  return createHash("sha1")
    .update(publicKey.export({ type: "spki", format: "der" }))
    .digest();
}
