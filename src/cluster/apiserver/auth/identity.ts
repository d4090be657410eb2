/**
 * The credentials and TLS material of requests, read from wherever the configuration says and kept fresh: tokens and
 * certificates are rotated while the program runs.
 */

import { readFile } from "node:fs/promises";
import { isIP } from "node:net";
import { checkServerIdentity, getCACertificates, type PeerCertificate } from "node:tls";
import type { Clock } from "../../../async/clock.ts";
import type { Logger } from "../../../logging/logger.ts";
import { messageOf } from "../../../logging/message-of.ts";
import { type ClientConfig, ClientConfigError, type Material } from "../connection/client-config.ts";
import { type ExecClusterInfo, ExecCredentials, type ExecPluginObserver, type RunProgram } from "./exec-credentials.ts";
import { type CertificateChain, readCertificates, readPrivateKey, requireMatch } from "./pem.ts";

/** What a TLS connection to the server is made with. One object for as long as none of it changes. */
export interface TlsMaterial {
  readonly ca: readonly string[] | string;
  readonly cert?: string;
  readonly key?: string;
  readonly servername?: string;
  readonly rejectUnauthorized: boolean;
  readonly checkServerIdentity?: (host: string, certificate: PeerCertificate) => Error | undefined;
}

export interface Credentials {
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  /** `undefined` for a server that is spoken to without TLS. */
  readonly tls: TlsMaterial | undefined;
  /** What each file said that they were made of. */
  readonly files: readonly (string | undefined)[];
}

/** Who this client is. */
export interface Identity {
  /** Fresh credentials. @throws ClientConfigError when they cannot be read and never could; Error when the signal aborts meanwhile. */
  current(signal?: AbortSignal): Promise<Credentials>;
  /** The server answered 401: everything is read again before the next request. */
  refused(): void;
  /**
   * Whether the content of a file has changed. Plugins do not count: they run before each attempt anyway.
   * @param sent what was refused: others may have read the files again since. @default what was last read
   */
  hasChanged(sent?: Credentials): Promise<boolean>;
}

export interface IdentityOptions {
  readonly config: ClientConfig;
  readonly clock: Clock;
  readonly log: Logger;
  readonly observer?: ExecPluginObserver | undefined;
  /** For exec plugins. @default starts a process */
  readonly run?: RunProgram;
}

/** Makes the identity; nothing is read before the first `current()`. */
export function createIdentity(options: IdentityOptions): Identity {
  const { config, clock, log } = options;
  const ca = config.ca && source(config.ca, "certificate-authority", "CA file", readCertificates, options);
  const own = config.clientCertificate;
  const certificate =
    own && source(own.certificate, "client-certificate", "client certificate", readCertificates, options);
  const key = own && source(own.key, "client-key", "client key", readPrivateKey, options);
  const authentication = createAuthentication(options, async () => (await ca?.read())?.value.text);
  let pair: KeyPair | undefined;
  let tls: { readonly inputs: readonly unknown[]; readonly material: TlsMaterial } | undefined;
  let expiredChain: CertificateChain | undefined;
  let strangers: Strangers | undefined;

  function tlsOf(trusted: CertificateChain | undefined, certified: OwnCertificate): TlsMaterial {
    const { certificate: cert, key: ownKey } = pairOf(certified) ?? {};
    const inputs = [trusted, cert, ownKey];
    if (tls !== undefined && inputs.every((input, index) => input === tls?.inputs[index])) return tls.material;
    tls = { inputs, material: { ...tlsBase(config, trusted?.text), ...(cert && ownKey ? { cert, key: ownKey } : {}) } };
    return tls.material;
  }

  /** The two files of a pair are not replaced in one step: until they match, the pair before stays in use. */
  function pairOf({ given, chain, ownKey }: OwnCertificate): KeyPair | undefined {
    if (given !== undefined || chain === undefined || ownKey === undefined) return given;
    if (pair?.certificate === chain.text && pair.key === ownKey) return pair;
    if (isPair(chain, ownKey)) pair = { certificate: chain.text, key: ownKey };
    else if (pair === undefined) {
      throw new ClientConfigError(
        "the client key is not that of the client certificate: check client-key and client-certificate",
      );
    } else warnOfStrangers(chain, ownKey);
    return pair;
  }

  /** Files that are still not of one pair after a minute are not just being replaced. */
  function warnOfStrangers(chain: CertificateChain, ownKey: string): void {
    const nowMs = clock.monotonicMs();
    if (strangers?.chain !== chain || strangers.key !== ownKey) {
      strangers = { chain, key: ownKey, sinceMs: nowMs, isTold: false };
    }
    if (strangers.isTold || nowMs - strangers.sinceMs < MAX_AGE_MS) return;
    strangers.isTold = true;
    log.error("The new client key is not that of the client certificate, keeping the last good pair", undefined, {
      certificate: pathOf(own?.certificate, "client-certificate-data"),
      key: pathOf(own?.key, "client-key-data"),
    });
  }

  function warnOfExpiry(chain: CertificateChain | undefined): void {
    if (chain === undefined || chain === expiredChain || chain.validToMs > clock.now()) return;
    expiredChain = chain;
    const notAfter = new Date(chain.validToMs).toISOString();
    const path = pathOf(own?.certificate, "client-certificate-data");
    log.error("The client certificate has expired, the API server will refuse it: renew it", undefined, {
      path,
      notAfter,
    });
  }

  return {
    async current(signal) {
      const { authorization, given, seen } = await authentication.current(signal);
      const chain = await certificate?.read();
      warnOfExpiry(chain?.value);
      const headers = {
        ...config.impersonation,
        ...(authorization === undefined ? {} : { Authorization: authorization }),
      };
      const isTls = config.server.protocol === "https:";
      const trusted = isTls ? await ca?.read() : undefined;
      const ownKey = isTls && given === undefined ? await key?.read() : undefined;
      return {
        headers,
        tls: isTls ? tlsOf(trusted?.value, { given, chain: chain?.value, ownKey: ownKey?.value }) : undefined,
        files: [trusted?.seen, chain?.seen, ownKey?.seen, seen],
      };
    },
    refused() {
      for (const part of [ca, certificate, key, authentication]) part?.expire();
    },
    async hasChanged(sent) {
      const parts = [ca, certificate, key, authentication];
      const changed = await Promise.all(parts.map((part, index) => part?.hasChanged(sent?.files[index])));
      return changed.includes(true);
    },
  };
}

interface KeyPair {
  readonly certificate: string;
  readonly key: string;
}

/** A certificate and a key that do not belong together. */
interface Strangers {
  readonly chain: CertificateChain;
  readonly key: string;
  readonly sinceMs: number;
  isTold: boolean;
}

function pathOf(material: Material | undefined, otherwise: string): string {
  return material?.kind === "file" ? material.path : otherwise;
}

interface OwnCertificate {
  /** A plugin's, instead of that in files. */
  readonly given: KeyPair | undefined;
  readonly chain: CertificateChain | undefined;
  readonly ownKey: string | undefined;
}

interface Source<T> {
  read(): Promise<Reading<T>>;
  expire(): void;
  hasChanged(seen?: string): Promise<boolean>;
}

function source<T>(
  material: Material,
  field: string,
  title: string,
  parse: (text: string) => T,
  { clock, log }: IdentityOptions,
): Source<T> {
  const hint = `${field} in the kubeconfig, and what is mounted there`;
  if (material.kind === "file") return new RotatingFile({ path: material.path, title, hint, parse, clock, log });
  let value: T;
  try {
    value = parse(material.text);
  } catch (error) {
    const reason = messageOf(error);
    throw new ClientConfigError(`cannot use the ${title} in the kubeconfig: ${reason}: check ${field}-data`, {
      cause: error,
    });
  }
  return { read: () => Promise.resolve({ value, seen: undefined }), ...CONSTANT };
}

const CONSTANT = { expire() {}, hasChanged: () => Promise.resolve(false) };

interface Authenticator {
  current(signal?: AbortSignal): Promise<AuthenticationState>;
  expire(): void;
  hasChanged(seen?: string): Promise<boolean>;
}

interface AuthenticationState {
  readonly authorization?: string | undefined;
  readonly given?: OwnCertificate["given"];
  /** What the file said that it comes from. */
  readonly seen?: string | undefined;
}

function createAuthentication(options: IdentityOptions, caText: () => Promise<string | undefined>): Authenticator {
  const { config, clock, log } = options;
  const { authentication } = config;
  const fixed = (state: AuthenticationState) => ({ current: () => Promise.resolve(state), ...CONSTANT });
  switch (authentication.kind) {
    case "none":
      return fixed({});
    case "token":
      return fixed({ authorization: `Bearer ${authentication.token}` });
    case "basic": {
      const pair = Buffer.from(`${authentication.username}:${authentication.password}`).toString("base64");
      return fixed({ authorization: `Basic ${pair}` });
    }
    case "tokenFile": {
      const file = new RotatingFile({
        path: authentication.path,
        title: "token file",
        hint: "tokenFile in the kubeconfig, and whether the service account's token is mounted there",
        parse: readToken,
        clock,
        log,
      });
      return {
        async current() {
          const { value, seen } = await file.read();
          return { authorization: `Bearer ${value}`, seen };
        },
        expire: () => file.expire(),
        hasChanged: (seen) => file.hasChanged(seen),
      };
    }
    case "exec": {
      const { plugin } = authentication;
      const cluster = async () => clusterInfo(config, await caText());
      const program = new ExecCredentials({
        plugin,
        cluster,
        clock,
        observer: options.observer,
        ...(options.run ? { run: options.run } : {}),
      });
      return {
        async current(signal) {
          const { token, certificate } = await program.current(signal);
          return { authorization: token === undefined ? undefined : `Bearer ${token}`, given: certificate };
        },
        expire: () => program.expire(),
        hasChanged: CONSTANT.hasChanged,
      };
    }
  }
}

function readToken(text: string): string {
  const token = text.trim();
  if (token === "") throw new Error("it is empty");
  if (/[^\x21-\x7e]/.test(token)) throw new Error("it holds something else than one token");
  return token;
}

function clusterInfo(config: ClientConfig, ca: string | undefined): ExecClusterInfo {
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
    // Without a CA of its own, a Go program trusts what the system trusts; Node.js alone would trust its built-in list.
    ca: ca ?? [...getCACertificates("default"), ...getCACertificates("system")],
    rejectUnauthorized: isServerVerified,
  };
  if (serverName === undefined) return base;
  const check = (_host: string, certificate: PeerCertificate) => checkServerIdentity(serverName, certificate);
  // An address cannot be sent as the name of the server, only compared.
  return { ...base, servername: isIP(serverName) === 0 ? serverName : "", checkServerIdentity: check };
}

function isPair(chain: CertificateChain, key: string): boolean {
  try {
    requireMatch(chain, key);
    return true;
  } catch {
    return false;
  }
}

/** Upstream re-reads token files after a minute less ten seconds (reference operation.md §8.1). */
const MAX_AGE_MS = 50_000;

interface RotatingFileOptions<T> {
  readonly path: string;
  /** What it is, for messages: `token file`. */
  readonly title: string;
  /** What to look at when it is not usable: `tokenFile in the kubeconfig`. */
  readonly hint: string;
  /** Makes the value of the text; throws when it is not usable. */
  readonly parse: (text: string) => T;
  readonly clock: Clock;
  readonly log: Logger;
}

/** What a file is good for at the moment. */
interface Reading<T> {
  /** The same value while the text is unchanged; the last good one while the file is unusable. */
  readonly value: T;
  /** What the file said when it was looked at for this. */
  readonly seen: string | undefined;
}

/** Gives the value of the file's content, never older than about a minute, and the last good one when it turns bad. */
class RotatingFile<T> {
  readonly #options: RotatingFileOptions<T>;
  #known: { readonly text: string; readonly value: T } | undefined;
  /** What the file said when it was last read, of use or not. */
  #seen: string | undefined;
  #readAtMs = Number.NEGATIVE_INFINITY;
  /** A reading was asked for. */
  #isUsed = false;
  #isBad = false;

  constructor(options: RotatingFileOptions<T>) {
    this.#options = options;
  }

  /** @throws ClientConfigError when there has never been a good value. */
  async read(): Promise<Reading<T>> {
    const { clock } = this.#options;
    this.#isUsed = true;
    if (this.#known !== undefined && clock.monotonicMs() - this.#readAtMs < MAX_AGE_MS) {
      return { value: this.#known.value, seen: this.#seen };
    }
    try {
      const text = await readFile(this.#options.path, "utf8");
      this.#seen = text;
      if (this.#known?.text !== text) this.#known = { text, value: this.#options.parse(text) };
      this.#readAtMs = clock.monotonicMs();
      this.#isBad = false;
      return { value: this.#known.value, seen: text };
    } catch (error) {
      return { value: this.#lastGood(error), seen: this.#seen };
    }
  }

  /**
   * Whether the file has changed. A file that cannot be read now, that was unusable before and is the same, or that was never asked for
   * has not.
   * @param seen as of a {@link Reading}. @default of the last one
   */
  async hasChanged(seen: string | undefined = this.#seen): Promise<boolean> {
    if (!this.#isUsed) return false;
    const text = await readFile(this.#options.path, "utf8").catch(() => undefined);
    return text !== undefined && text !== seen;
  }

  /** The next reading looks at the file again: the server did not accept what it said. */
  expire(): void {
    this.#readAtMs = Number.NEGATIVE_INFINITY;
  }

  #lastGood(error: unknown): T {
    const { path, title, hint, log, clock } = this.#options;
    const reason = messageOf(error);
    if (this.#known === undefined) {
      throw new ClientConfigError(`cannot use the ${title} ${path}: ${reason}: check ${hint}`, { cause: error });
    }
    if (!this.#isBad) log.error(`Cannot use the new ${title}, keeping the last good one`, error, { path });
    this.#isBad = true;
    this.#readAtMs = clock.monotonicMs();
    return this.#known.value;
  }
}
