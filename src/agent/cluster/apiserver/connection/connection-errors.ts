/** Failures of sockets and TLS handshakes → {@link ApiError} with a remedy. */

import { messageOf } from "../../../../logging/message-of.ts";
import { ApiError, type ApiErrorCode } from "./api-error.ts";

interface Meaning {
  readonly code: ApiErrorCode;
  readonly hint: string;
  /** Nothing takes the connection, or what takes it ends it. */
  readonly isAbsent?: boolean;
}

const unreachable = (hint: string): Meaning => ({ code: "unreachable", hint });
const absent = (hint: string): Meaning => ({ code: "unreachable", hint, isAbsent: true });
const tls = (hint: string): Meaning => ({ code: "tls", hint });

const CUT = absent("the connection was cut");
const WRONG_CA = tls("the certificate is signed by an unknown authority: check certificate-authority");

const BAD_HEADER: Meaning = {
  code: "credentials",
  hint: "the token and the names to impersonate must be single lines of plain text",
};
const NO_TLS = tls("it does not speak TLS: check https:// and the port");

const MAX_NAMES_CHARS = 300;

/** By Node.js error code (libuv's and OpenSSL's). */
const MEANINGS: Readonly<Record<string, Meaning>> = {
  ECONNREFUSED: absent("nothing listens there: check that the API server runs and that the address is right"),
  ENOTFOUND: unreachable("the host name does not exist: check the server's address and DNS"),
  EAI_AGAIN: unreachable("the host name cannot be looked up now: check DNS"),
  EHOSTUNREACH: absent("there is no route to it: check the node's network"),
  ENETUNREACH: absent("there is no route to it: check the node's network"),
  ETIMEDOUT: { code: "timeout", hint: "it does not answer: check the network between the node and the API server" },
  ECONNRESET: CUT,
  ERR_STREAM_PREMATURE_CLOSE: CUT,
  EPIPE: CUT,
  Z_BUF_ERROR: unreachable("the compressed response ends too early"),
  ERR_PROXY_TUNNEL: absent("the proxy does not reach the API server: check the proxy and its rules"),
  ERR_PROXY_INVALID_CONFIG: unreachable("check proxy-url and HTTPS_PROXY: special characters are written as %XX"),
  CERT_HAS_EXPIRED: tls("the API server's certificate has expired: renew it, and check this node's clock"),
  CERT_NOT_YET_VALID: tls("the API server's certificate is not valid yet: check this node's clock"),
  ERR_TLS_CERT_ALTNAME_INVALID: tls(
    "set tls-server-name to a name that the certificate is for, or use such a name as the server's address",
  ),
  SELF_SIGNED_CERT_IN_CHAIN: WRONG_CA,
  DEPTH_ZERO_SELF_SIGNED_CERT: WRONG_CA,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: WRONG_CA,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: WRONG_CA,
  UNABLE_TO_GET_ISSUER_CERT: WRONG_CA,
  CERT_SIGNATURE_FAILURE: WRONG_CA,
  ERR_INVALID_CHAR: BAD_HEADER,
  ERR_INVALID_HTTP_TOKEN: BAD_HEADER,
  ERR_SSL_WRONG_VERSION_NUMBER: NO_TLS,
  ERR_SSL_PACKET_LENGTH_TOO_LONG: NO_TLS,
};

/**
 * Creates the error of a request that got no response, or only part of one.
 *
 * @param request `list services`.
 * @param server the server's address for messages.
 */
export function connectionError(request: string, server: string, error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const code = codeOf(error);
  const said = textOf(error);
  const meaning = MEANINGS[code] ?? fallback(code, said);
  const detail = `${server}: ${said}: ${meaning.hint}`;
  const reached = meaning.isAbsent === true ? "absent" : undefined;
  return new ApiError(meaning.code, { request, detail, reached }, { cause: error });
}

function fallback(code: string, said: string): Meaning {
  if (code === "EPROTO" && /wrong version number|packet length too long|http request/.test(said)) return NO_TLS;
  if (code.startsWith("HPE_")) {
    return { code: "garbage", hint: "that is not HTTP: check the address, and http:// against https://" };
  }
  if (/\balert\b/i.test(said) || code.includes("ALERT")) {
    return tls("the API server refused the TLS handshake: check the client certificate");
  }
  if (code.startsWith("Z_")) return { code: "garbage", hint: "the compressed response is damaged" };
  if (/^(EPROTO|ERR_SSL_|ERR_OSSL_|ERR_TLS_|CERT_|UNABLE_TO_|INVALID_)/.test(code))
    return tls("the TLS handshake failed");
  return unreachable("no answer");
}

/** Node.js lists only the certificate's names of the requested kind (DNS names or addresses); this lists all. */
function otherNames(error: unknown): string | undefined {
  if (!(error instanceof Error) || !("host" in error) || !("cert" in error)) return undefined;
  const { host, cert } = error;
  if (typeof cert !== "object" || cert === null || !("subjectaltname" in cert)) return undefined;
  return `the certificate is not for ${String(host)} but for ${String(cert.subjectaltname).slice(0, MAX_NAMES_CHARS)}`;
}

function codeOf(error: unknown): string {
  if (typeof error !== "object" || error === null) return "";
  if (error instanceof AggregateError) return codeOf(error.errors[0]);
  return "code" in error && typeof error.code === "string" ? error.code : "";
}

function textOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === "") {
    return error.errors.map((each) => textOf(each)).join("; ");
  }
  // The text from Node.js contains the URL with its password.
  if (codeOf(error) === "ERR_PROXY_INVALID_CONFIG") return "the URL of the proxy cannot be read";
  const names = codeOf(error) === "ERR_TLS_CERT_ALTNAME_INVALID" ? otherNames(error) : undefined;
  if (names !== undefined) return names;
  const text = messageOf(error);
  // OpenSSL writes `error:NUMBER:library:function:reason:file:line:`. Only the reason is useful to people.
  const reason = /error:[0-9A-F]+:[^:]*:[^:]*:([^:\n]+)/.exec(text)?.[1];
  return (reason ?? text.split("\n", 1)[0] ?? "").trim();
}
