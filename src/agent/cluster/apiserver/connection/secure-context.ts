/**
 * The TLS context of all connections with the same CA and client certificate. Node.js would make one for each attempt to connect: 1.8 MB
 * and 40 ms with the machine's roots, in memory that no garbage collection sees.
 */
import {
  type ConnectionOptions,
  createSecureContext,
  getCACertificates,
  type SecureContext,
  setDefaultCACertificates,
} from "node:tls";
import type { TlsMaterial } from "../auth/identity.ts";

const contexts = new WeakMap<TlsMaterial, SecureContext>();
let areRootsSet = false;

/** @throws Error if OpenSSL refuses a certificate or key. */
export function connectionOptions(material: TlsMaterial): ConnectionOptions {
  const { ca, cert, key, ...checks } = material;
  let secureContext = contexts.get(material);
  if (secureContext === undefined) {
    if (ca === undefined) trustMachine();
    secureContext = createSecureContext({ cert, key, ...(ca === undefined ? {} : { ca: ca === "" ? [] : ca }) });
    contexts.set(material, secureContext);
  }
  return { ...checks, secureContext };
}

/**
 * Without a configured CA, Go programs trust the system's CAs; Node.js alone would trust its built-in list. As the process's default they
 * are in memory once, also while client certificates rotate.
 */
function trustMachine(): void {
  if (areRootsSet) return;
  areRootsSet = true;
  const roots = new Map<string, string>();
  // The system's list repeats most roots, and those of the built-in one: 169 of 841 differ.
  for (const root of [...getCACertificates("default"), ...getCACertificates("system")])
    roots.set(root.replace(/-----[^-]+-----|\s/g, ""), root);
  setDefaultCACertificates([...roots.values()]);
}
