/**
 * Credentials from a plugin (client.authentication.k8s.io): the program prints an ExecCredential, which is used until
 * it expires or the server refuses it.
 */
import type { Clock } from "../../../../async/clock.ts";
import { attempt, jsonIn } from "../../../../logging/attempt.ts";
import { messageOf } from "../../../../logging/message-of.ts";
import { LEFT_OUT, withoutSecrets } from "../../../../logging/secrets.ts";
import { isJsonObject } from "../../../../model/projection/fields.ts";
import { kindOfValue } from "../../../../model/projection/findings.ts";
import { ClientConfigError, type ExecPlugin } from "../connection/client-config.ts";
import { type CertificateChain, isPair, readCertificates, readPrivateKey } from "./pem.ts";

/** A plugin's credential: a token, a certificate, or both. */
interface ExecCredential {
  readonly token: string | undefined;
  readonly certificate: { readonly certificate: string; readonly key: string } | undefined;
  /** Unix time; `undefined`: valid until refused. */
  readonly expiresAtMs: number | undefined;
}

/** Runs a program and returns its output. Rejects with one line if it fails; the signal kills the program. */
export type RunProgram = (
  file: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  signal?: AbortSignal,
) => Promise<string>;

/** How a run of the program ended, as upstream's metric names it. */
type ExecCallStatus = "no_error" | "plugin_execution_error" | "plugin_not_found_error" | "client_internal_error";

/** Observes the plugin, for metrics. */
export interface ExecPluginObserver {
  /** The program was run; the exit code is 0 only if it succeeded. */
  pluginCalled(exitCode: number, status: ExecCallStatus): void;
  /** The certificate `now` has replaced `before`. */
  pluginCertified(now: CertificateChain | undefined, before: CertificateChain | undefined): void;
}

interface ExecCredentialsOptions {
  readonly plugin: ExecPlugin;
  /** The protocol's Cluster object, for plugins that want it. */
  readonly cluster: () => Promise<object>;
  readonly clock: Clock;
  readonly observer?: ExecPluginObserver | undefined;
  /** @default {@link runProgram} */
  readonly run?: RunProgram;
}

/** A run of the program that several requests may wait for. */
interface Run {
  readonly credential: Promise<ExecCredential>;
  readonly stop: AbortController;
  waiting: number;
}

/** A program may take seconds, and requests that are refused follow each other faster. */
const SHORTEST_USE_MS = 5_000;

export class ExecCredentials {
  readonly #options: ExecCredentialsOptions;
  #known: ExecCredential | undefined;
  #running: Run | undefined;
  #chain: CertificateChain | undefined;
  #expiredAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: ExecCredentialsOptions) {
    this.#options = options;
  }

  /**
   * The credential; the same object until it is replaced. The program is killed when the last waiting request aborts.
   *
   * @throws Error if the program provides none, or if the signal aborts.
   */
  async current(signal?: AbortSignal): Promise<ExecCredential> {
    const known = this.#known;
    if (known !== undefined && (known.expiresAtMs ?? Number.POSITIVE_INFINITY) > this.#options.clock.now())
      return known;
    signal?.throwIfAborted();
    this.#running ??= this.#begin();
    const run = this.#running;
    const left = Promise.withResolvers<never>();
    const leave = (): void => {
      left.reject(signal?.reason);
      run.waiting -= 1;
      if (run.waiting > 0) return;
      if (this.#running === run) this.#running = undefined;
      run.stop.abort();
    };
    run.waiting += 1;
    signal?.addEventListener("abort", leave, { once: true });
    try {
      return await Promise.race([run.credential, left.promise]);
    } finally {
      signal?.removeEventListener("abort", leave);
    }
  }

  #begin(): Run {
    const stop = new AbortController();
    const credential = this.#obtain(stop.signal);
    const run = { credential, stop, waiting: 0 };
    const end = (): void => {
      if (this.#running === run) this.#running = undefined;
    };
    credential.then((known) => {
      this.#known = known;
      end();
    }, end);
    return run;
  }

  #observeCertificate(text: string | undefined): void {
    const before = this.#chain;
    if (text === before?.text) return;
    // Errors are reported when it is used.
    this.#chain = text === undefined ? undefined : attempt(() => readCertificates(text));
    this.#options.observer?.pluginCertified(this.#chain, before);
  }

  /** The server refused the credential: the next call runs the program again, unless it did so just now. */
  expire(): void {
    const nowMs = this.#options.clock.monotonicMs();
    if (nowMs - this.#expiredAtMs < SHORTEST_USE_MS) return;
    this.#expiredAtMs = nowMs;
    this.#known = undefined;
  }

  async #obtain(signal: AbortSignal): Promise<ExecCredential> {
    const { plugin, observer, run = runProgram } = this.#options;
    const cluster = plugin.provideClusterInfo ? { cluster: await this.#options.cluster() } : {};
    const info = { kind: "ExecCredential", apiVersion: plugin.apiVersion, spec: { ...cluster, interactive: false } };
    const env = { ...process.env, ...plugin.env, KUBERNETES_EXEC_INFO: JSON.stringify(info) };
    const output = await run(plugin.command, plugin.args, env, signal).catch((error: unknown) => {
      const hint = plugin.installHint === "" ? "" : `: ${plugin.installHint.trim().replaceAll(/\s*\n\s*/g, " ")}`;
      const reason = withoutSecrets(withoutValues(messageOf(error), Object.values(plugin.env)));
      observer?.pluginCalled(...callOutcome(error));
      throw new ClientConfigError(`exec plugin ${plugin.command} failed: ${reason}${hint}`, { cause: error });
    });
    observer?.pluginCalled(0, "no_error");
    const credential = readExecCredential(output, plugin);
    this.#observeCertificate(credential.certificate?.certificate);
    return credential;
  }
}

/** A plugin that fails may print what the kubeconfig gave to it. */
function withoutValues(said: string, values: readonly string[]): string {
  const secrets = values.filter((value) => value.length >= MIN_SECRET_CHARS);
  return secrets.reduce((rest, secret) => rest.replaceAll(secret, LEFT_OUT), said);
}

/** Shorter values, such as `1` or `true`, are no secrets. */
const MIN_SECRET_CHARS = 6;

function callOutcome(error: unknown): readonly [exitCode: number, status: ExecCallStatus] {
  const cause: unknown = error instanceof Error ? error.cause : undefined;
  const code: unknown = cause instanceof Error && "code" in cause ? cause.code : undefined;
  if (typeof code === "number") return [code, "plugin_execution_error"];
  return [1, code === "ENOENT" ? "plugin_not_found_error" : "client_internal_error"];
}

/** Parses the program's output. @throws ClientConfigError naming the field. */
export function readExecCredential(output: string, plugin: ExecPlugin): ExecCredential {
  const fail = (message: string): never => {
    throw new ClientConfigError(`exec plugin ${plugin.command}: ${message}`);
  };
  const printed = jsonIn(output);
  if (!isJsonObject(printed)) return fail("it did not print an ExecCredential as JSON");
  if (printed.apiVersion !== plugin.apiVersion) {
    fail(`its apiVersion must be ${plugin.apiVersion}, as in the kubeconfig, got ${shown(printed.apiVersion)}`);
  }
  if (printed.kind !== "ExecCredential") fail(`its kind must be ExecCredential, got ${shown(printed.kind)}`);
  if (!isJsonObject(printed.status)) return fail("its status is missing");
  const { token, clientCertificateData, clientKeyData, expirationTimestamp } = printed.status;
  const certificate = text(clientCertificateData);
  const key = text(clientKeyData);
  if ((certificate === undefined) !== (key === undefined)) {
    fail("clientCertificateData and clientKeyData must come together");
  }
  if (text(token) === undefined && certificate === undefined) fail("there is neither token nor clientCertificateData");
  // A credential that cannot be sent would be kept forever, because no server can refuse it.
  if (certificate !== undefined && key !== undefined) {
    try {
      const isMatch = isPair(readCertificates(certificate), readPrivateKey(key));
      if (!isMatch) throw new Error("the private key does not match the certificate");
    } catch (error) {
      fail(`cannot use clientCertificateData and clientKeyData: ${messageOf(error)}`);
    }
  }
  if (/[^\x20-\x7e]/.test(text(token)?.trim() ?? "")) fail("its token must be one line of plain text");
  const expiresAtMs = text(expirationTimestamp) === undefined ? undefined : Date.parse(String(expirationTimestamp));
  if (Number.isNaN(expiresAtMs)) fail(`expirationTimestamp must be a time, got ${shown(expirationTimestamp)}`);
  return {
    token: text(token)?.trim(),
    certificate: certificate === undefined || key === undefined ? undefined : { certificate, key },
    expiresAtMs,
  };
}

const shown = (value: unknown): string =>
  typeof value === "string" ? JSON.stringify(withoutSecrets(value.slice(0, 100))) : kindOfValue(value);

function text(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

const TIME_LIMIT_MS = 60_000;
const ENDED = "it was ended: nothing needs it any more";
const TOO_MUCH = "ERR_CHILD_PROCESS_STDIO_MAXBUFFER";

/** @throws Error in one line if it fails or does not end in time. */
export async function runProgram(
  file: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  signal?: AbortSignal,
  limitMs = TIME_LIMIT_MS,
): Promise<string> {
  const { execFile } = await import("node:child_process");
  if (signal?.aborted === true) throw new Error(ENDED);
  return await new Promise((resolve, reject) => {
    // The signal option of execFile would send SIGTERM.
    const kill = (): void => void child.kill("SIGKILL");
    const child = execFile(
      file,
      [...args],
      // Every request waits for it, so it must end even if it ignores SIGTERM.
      { env, timeout: limitMs, killSignal: "SIGKILL", encoding: "utf8" },
      (error, stdout, stderr) => {
        signal?.removeEventListener("abort", kill);
        if (error === null) resolve(stdout);
        else if (signal?.aborted === true) reject(new Error(ENDED, { cause: error }));
        else reject(new Error(failureText(error, stderr, limitMs), { cause: error }));
      },
    );
    signal?.addEventListener("abort", kill, { once: true });
    child.stdin?.end();
  });
}

function failureText(
  error: Error & { readonly code?: unknown; readonly killed?: boolean; readonly signal?: unknown },
  stderr: string,
  limitMs: number,
): string {
  if (error.code === "ENOENT") return "there is no such program";
  if (error.code === TOO_MUCH) return "it printed more than 1 MiB";
  if (error.killed === true) return `it did not end within ${limitMs / 1000} s`;
  if (typeof error.code === "string") return `it cannot be started: ${error.message}`;
  const lastLine = stderr.trim().split("\n").at(-1) ?? "";
  const end = typeof error.code === "number" ? `exit status ${error.code}` : `it was ended by ${String(error.signal)}`;
  return lastLine === "" ? end : `${end}: ${lastLine}`;
}
