/**
 * The credentials and TLS material of requests, read from their configured sources and kept fresh, because tokens and
 * certificates are rotated while the program runs.
 */

import { readFile } from "node:fs/promises";
import { isIP } from "node:net";
import { checkServerIdentity, type PeerCertificate } from "node:tls";
import type { Clock } from "../../../../async/clock.ts";
import type { Logger } from "../../../../logging/logger.ts";
import { messageOf } from "../../../../logging/message-of.ts";
import {
  type Authentication,
  type ClientConfig,
  ClientConfigError,
  type Material,
} from "../connection/client-config.ts";
import { ExecCredentials, type ExecPluginObserver, type RunProgram } from "./exec-credentials.ts";
import { type CertificateChain, isPair, readCertificates, readPrivateKey } from "./pem.ts";

const cannotUse = (title: string): string => `Cannot use the new ${title}, keeping the last good one`;

/** TLS options of connections to the server. The same object until any of them changes. */
export interface TlsMaterial {
  /** Undefined: the machine's roots. Empty if nothing is verified. */
  readonly ca: string | undefined;
  readonly cert?: string;
  readonly key?: string;
  readonly servername?: string;
  readonly rejectUnauthorized: boolean;
  readonly checkServerIdentity?: (host: string, certificate: PeerCertificate) => Error | undefined;
}

export interface Credentials {
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  /** `undefined` for a server without TLS. */
  readonly tls: TlsMaterial | undefined;
  /** The content of each file that they were made from. */
  readonly files: readonly (string | undefined)[];
}

/** The client's identity: the source of its credentials. */
export type Identity = ReturnType<typeof createIdentity>;

export interface IdentityOptions {
  readonly config: ClientConfig;
  readonly clock: Clock;
  readonly log: Logger;
  readonly observer?: ExecPluginObserver | undefined;
  /** Runs exec plugins. @default starts a process */
  readonly run?: RunProgram;
}

/** Creates the identity; it reads nothing before the first `current()`. */
export function createIdentity(options: IdentityOptions) {
  const { config, clock, log, observer, run } = options;
  const { authentication, clientCertificate: own } = config;
  const pem = <T>(material: Material, field: string, title: string, parse: (text: string) => T): RotatingText<T> => {
    const hint = `${field} in the kubeconfig, and what is mounted there`;
    return new RotatingText({ material, field, title, hint, parse, clock, log });
  };
  const ca = config.ca && pem(config.ca, "certificate-authority", "CA file", readCertificates);
  const certificate = own && pem(own.certificate, "client-certificate", "client certificate", readCertificates);
  const key = own && pem(own.key, "client-key", "client key", readPrivateKey);
  const token = authentication.kind === "tokenFile" ? tokenFile(authentication.path, options) : undefined;
  const cluster = async (): Promise<object> => clusterInfo(config, (await ca?.read())?.value.text);
  const program =
    authentication.kind === "exec"
      ? new ExecCredentials({ plugin: authentication.plugin, cluster, clock, observer, ...(run && { run }) })
      : undefined;
  const texts = [ca, certificate, key, token];
  let tls: { readonly inputs: readonly unknown[]; readonly material: TlsMaterial } | undefined;
  const pair = new ClientKeyPair(options);

  function tlsOf(trusted: CertificateChain | undefined, certified: KeyPair | undefined): TlsMaterial {
    const inputs = [trusted, certified?.certificate, certified?.key];
    if (tls !== undefined && inputs.every((input, index) => input === tls?.inputs[index])) return tls.material;
    const cert = certified && { cert: certified.certificate, key: certified.key };
    tls = { inputs, material: { ...tlsBase(config, trusted?.text), ...cert } };
    return tls.material;
  }

  return {
    /** Fresh credentials. @throws ClientConfigError if they could never be read; Error if the signal aborts. */
    async current(signal?: AbortSignal): Promise<Credentials> {
      const given = await program?.current(signal);
      const bearer = await token?.read();
      const chain = await certificate?.read();
      pair.warnOfExpiry(chain?.value);
      const authorization = authorizationOf(authentication, given?.token ?? bearer?.value);
      const headers = { ...config.impersonation, ...(authorization && { Authorization: authorization }) };
      const isTls = config.server.protocol === "https:";
      const trusted = isTls ? await ca?.read() : undefined;
      const ownKey = isTls && given?.certificate === undefined ? await key?.read() : undefined;
      return {
        headers,
        tls: isTls ? tlsOf(trusted?.value, given?.certificate ?? pair.from(chain?.value, ownKey?.value)) : undefined,
        files: [trusted, chain, ownKey, bearer].map((reading) => reading?.seen),
      };
    },
    /** The server returned 401: everything is read again before the next request. */
    refused(): void {
      for (const part of [...texts, program]) part?.expire();
    },
    /**
     * Whether the content of a file has changed. Ignores plugins, which run before each attempt anyway.
     *
     * @param sent the refused credentials: another request may have read the files since. @default those last read
     */
    async hasChanged(sent?: Credentials): Promise<boolean> {
      const changed = await Promise.all(texts.map((text, index) => text?.hasChanged(sent?.files[index])));
      return changed.includes(true);
    },
  };
}

interface KeyPair {
  readonly certificate: string;
  readonly key: string;
}

interface Strangers {
  readonly chain: CertificateChain;
  readonly key: string;
  readonly sinceMs: number;
  isTold: boolean;
}

/** The client's certificate and key: the last that match. */
class ClientKeyPair {
  readonly #options: IdentityOptions;
  #pair: KeyPair | undefined;
  #expired: CertificateChain | undefined;
  #strangers: Strangers | undefined;

  constructor(options: IdentityOptions) {
    this.#options = options;
  }

  /** Certificate and key files are not replaced in one step: the previous pair stays in use until they match. */
  from(chain: CertificateChain | undefined, key: string | undefined): KeyPair | undefined {
    if (chain === undefined || key === undefined) return undefined;
    const pair = this.#pair;
    if (pair?.certificate === chain.text && pair.key === key) return pair;
    if (isPair(chain, key)) this.#pair = { certificate: chain.text, key };
    else if (pair === undefined) {
      throw new ClientConfigError(
        "the client key does not match the client certificate: check client-key and client-certificate",
      );
    } else this.#warnOfStrangers(chain, key);
    return this.#pair;
  }

  warnOfExpiry(chain: CertificateChain | undefined): void {
    const { clock, log, config } = this.#options;
    if (chain === undefined || chain === this.#expired || chain.validToMs > clock.now()) return;
    this.#expired = chain;
    log.error("The client certificate has expired, the API server will refuse it: renew it", undefined, {
      path: pathOf(config.clientCertificate?.certificate, "client-certificate-data"),
      notAfter: new Date(chain.validToMs).toISOString(),
    });
  }

  /** Files that still do not match after a minute are not just being replaced. */
  #warnOfStrangers(chain: CertificateChain, key: string): void {
    const { clock, log, config } = this.#options;
    const nowMs = clock.monotonicMs();
    if (this.#strangers?.chain !== chain || this.#strangers.key !== key) {
      this.#strangers = { chain, key, sinceMs: nowMs, isTold: false };
    }
    if (this.#strangers.isTold || nowMs - this.#strangers.sinceMs < MAX_AGE_MS) return;
    this.#strangers.isTold = true;
    log.error("The new client key does not match the client certificate, keeping the last good pair", undefined, {
      certificate: pathOf(config.clientCertificate?.certificate, "client-certificate-data"),
      key: pathOf(config.clientCertificate?.key, "client-key-data"),
    });
  }
}

function pathOf(material: Material | undefined, otherwise: string): string {
  return material?.kind === "file" ? material.path : otherwise;
}

/** @param bearer the token from a file or a plugin. */
function authorizationOf(authentication: Authentication, bearer: string | undefined): string | undefined {
  if (authentication.kind === "basic") {
    const { username, password } = authentication;
    return `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
  }
  const token = authentication.kind === "token" ? authentication.token : bearer;
  return token === undefined ? undefined : `Bearer ${token}`;
}

function tokenFile(path: string, { clock, log }: IdentityOptions): RotatingText<string> {
  const hint = "tokenFile in the kubeconfig, and whether the service account's token is mounted there";
  const about = { field: "tokenFile", title: "token file", hint, parse: readToken };
  return new RotatingText({ material: { kind: "file", path }, ...about, clock, log });
}

function readToken(text: string): string {
  const token = text.trim();
  if (token === "") throw new Error("it is empty");
  if (/[^\x21-\x7e]/.test(token)) throw new Error("it contains something other than a single token");
  return token;
}

function clusterInfo(config: ClientConfig, ca: string | undefined): object {
  return {
    server: config.server.href.replace(/\/$/, ""),
    ...(config.serverName === undefined ? {} : { "tls-server-name": config.serverName }),
    ...(config.isServerVerified ? {} : { "insecure-skip-tls-verify": true }),
    ...(ca === undefined ? {} : { "certificate-authority-data": Buffer.from(ca, "latin1").toString("base64") }),
    ...(config.proxyUrl === undefined ? {} : { "proxy-url": config.proxyUrl }),
    ...(config.isCompressionDisabled === true ? { "disable-compression": true } : {}),
    ...(config.execConfig === undefined ? {} : { config: config.execConfig }),
  };
}

function tlsBase({ serverName, isServerVerified }: ClientConfig, ca: string | undefined): TlsMaterial {
  const base = {
    ca: isServerVerified ? ca : "",
    rejectUnauthorized: isServerVerified,
  };
  if (serverName === undefined) return base;
  const check = (_host: string, certificate: PeerCertificate) => checkServerIdentity(serverName, certificate);
  // An IP address cannot be sent as SNI; it is only compared.
  return { ...base, servername: isIP(serverName) === 0 ? serverName : "", checkServerIdentity: check };
}

/** Upstream rereads token files after a minute less ten seconds (reference operation.md §8.1). */
const MAX_AGE_MS = 50_000;

interface RotatingTextOptions<T> {
  readonly material: Material;
  readonly field: string;
  /** The name for messages: `token file`. */
  readonly title: string;
  /** What to check if the file is unusable: `tokenFile in the kubeconfig`. */
  readonly hint: string;
  /** Parses the text; throws if it is unusable. */
  readonly parse: (text: string) => T;
  readonly clock: Clock;
  readonly log: Logger;
}

/** The current value of a text. */
interface Reading<T> {
  /** The same object while the text is unchanged; the last good one while the file is unusable. */
  readonly value: T;
  /** The file's content at that read; undefined if the text is not from a file. */
  readonly seen: string | undefined;
}

/** The parsed content of a file, at most about a minute old, or the last good value. Data never changes. */
class RotatingText<T> {
  readonly #options: RotatingTextOptions<T>;
  /** Undefined for data. */
  readonly #path: string | undefined;
  #known: { readonly text: string; readonly value: T } | undefined;
  /** The file's content at the last read, usable or not. */
  #seen: string | undefined;
  #readAtMs = Number.NEGATIVE_INFINITY;
  #isUsed = false;
  #isBad = false;

  /** @throws ClientConfigError if data is unusable. */
  constructor(options: RotatingTextOptions<T>) {
    this.#options = options;
    const { material, field, title, parse } = options;
    if (material.kind === "file") {
      this.#path = material.path;
      return;
    }
    try {
      this.#known = { text: material.text, value: parse(material.text) };
    } catch (error) {
      const reason = messageOf(error);
      const message = `cannot use the ${title} in the kubeconfig: ${reason}: check ${field}-data`;
      throw new ClientConfigError(message, { cause: error });
    }
  }

  /** @throws ClientConfigError if there has never been a good value. */
  async read(): Promise<Reading<T>> {
    const { clock, log, parse, title } = this.#options;
    this.#isUsed = true;
    const isFresh = this.#path === undefined || clock.monotonicMs() - this.#readAtMs < MAX_AGE_MS;
    if (this.#known !== undefined && isFresh) return { value: this.#known.value, seen: this.#seen };
    try {
      const text = await readFile(this.#path ?? "", "utf8");
      this.#seen = text;
      if (this.#known?.text !== text) this.#known = { text, value: parse(text) };
      this.#readAtMs = clock.monotonicMs();
      if (this.#isBad) log.info(`The new ${title} is used`, { path: this.#path ?? "", solves: cannotUse(title) });
      this.#isBad = false;
      return { value: this.#known.value, seen: text };
    } catch (error) {
      return { value: this.#lastGood(error), seen: this.#seen };
    }
  }

  /**
   * Whether the file has changed. False if it cannot be read now, if it was unusable and still has the same content, or
   * if it was never read.
   * @param seen from a {@link Reading}. @default from the last one
   */
  async hasChanged(seen: string | undefined = this.#seen): Promise<boolean> {
    if (!this.#isUsed || this.#path === undefined) return false;
    const text = await readFile(this.#path, "utf8").catch(() => undefined);
    return text !== undefined && text !== seen;
  }

  /** Makes the next read look at the file again, because the server refused its content. */
  expire(): void {
    this.#readAtMs = Number.NEGATIVE_INFINITY;
  }

  #lastGood(error: unknown): T {
    const { title, hint, log, clock } = this.#options;
    const path = this.#path;
    const reason = messageOf(error);
    if (this.#known === undefined) {
      throw new ClientConfigError(`cannot use the ${title} ${path}: ${reason}: check ${hint}`, { cause: error });
    }
    if (!this.#isBad) log.error(cannotUse(title), error, { path });
    this.#isBad = true;
    this.#readAtMs = clock.monotonicMs();
    return this.#known.value;
  }
}
