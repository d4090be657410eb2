/** Responses with an error status, and `Status` objects in watches → {@link ApiError}. */
import type { IncomingHttpHeaders } from "node:http";
import { attempt } from "../../../../logging/attempt.ts";
import { isJsonObject, type JsonObject } from "../../../../model/projection/fields.ts";
import { describeValue } from "../../../../model/projection/findings.ts";
import { formatOf, JSON_FORMAT } from "../formats/body-format.ts";
import { ApiError, type ApiErrorCode } from "./api-error.ts";

const CODES: Readonly<Record<number, ApiErrorCode>> = {
  401: "unauthorized",
  403: "forbidden",
  404: "not_found",
  410: "expired",
  429: "too_many_requests",
};

const HINTS: Readonly<Record<number, string>> = {
  401: "check the token or client certificate of the kubeconfig",
  403: "bind the ClusterRole system:node-proxier to this user",
  404: "the API server does not serve this resource: check its version, and the path in the server's address",
};

/** The requests that the ClusterRole allows; naming it helps with no other. */
const PROXIER_MAY =
  /^(?:(?:list|watch) (?:services|endpointslices|nodes|servicecidrs)|get nodes|(?:create|patch) events)$/;
/** For a single object or a namespace, 404 means that it does not exist, not that the resource is not served. */
const IS_OF_ALL = /^(?:list|watch) /;

const MAX_MESSAGE_CHARS = 300;

/** Parses an error response. @param body may be in any format: a proxy may have written it. */
export function httpError(
  request: string,
  status: number,
  body: Buffer,
  { "content-type": contentType = "", "retry-after": retryAfter, location }: IncomingHttpHeaders,
): ApiError {
  const object = attempt(() => (formatOf(contentType) ?? JSON_FORMAT).read(body));
  if (isJsonObject(object) && object.kind === "Status") return statusError(request, object, status, retryAfter);
  const text = body.toString("utf8").trim();
  const said = text === "" ? "" : `: ${describeValue(text.slice(0, MAX_MESSAGE_CHARS))}`;
  const isRedirect = location !== undefined && status >= 300 && status < 400;
  const detail = `HTTP status ${status}${isRedirect ? redirectHint(location) : `${said}${hintFor(status, request)}`}`;
  return new ApiError(codeOf(status), { request, detail, status, retryAfterMs: retryAfterMs(retryAfter, undefined) });
}

/**
 * Parses a `Status` object, as in the ERROR event of a watch.
 *
 * @param fallbackStatus used if the Status has no code.
 */
export function statusError(
  request: string,
  object: JsonObject,
  fallbackStatus: number,
  retryAfter?: string,
): ApiError {
  const status = typeof object.code === "number" ? object.code : fallbackStatus;
  const reason = typeof object.reason === "string" ? object.reason : "";
  const message = typeof object.message === "string" ? printable(object.message) : "no message";
  const details = isJsonObject(object.details) ? object.details : {};
  const said = `${status}${reason === "" ? "" : ` ${reason}`}: ${message}`;
  const waitMs = retryAfterMs(retryAfter, details.retryAfterSeconds);
  const isTooLarge = hasCause(details, "ResourceVersionTooLarge");
  const isExpired = reason === "Expired" || reason === "Gone";
  const code = isTooLarge ? "version_too_large" : isExpired ? "expired" : codeOf(status);
  const detail = isTooLarge ? said : `${said}${hintFor(status, request)}`;
  return new ApiError(code, { request, detail, status, retryAfterMs: waitMs });
}

function codeOf(status: number): ApiErrorCode {
  return CODES[status] ?? (status >= 500 ? "server_error" : "refused");
}

/** Omits the query, which may contain secrets of a login. */
function redirectHint(location: string): string {
  const target = describeValue(location.replace(/[?#].*$/s, ""));
  return `: a redirect to ${target}, which is not followed: make the kubeconfig's server the address of the API server itself`;
}

/** The remedy with a leading colon, or empty. */
function hintFor(status: number, request: string): string {
  const isMeant = status === 403 ? PROXIER_MAY.test(request) : status !== 404 || IS_OF_ALL.test(request);
  const hint = HINTS[status];
  return isMeant && hint !== undefined ? `: ${hint}` : "";
}

function hasCause(details: JsonObject, reason: string): boolean {
  const causes: unknown = details.causes;
  return Array.isArray(causes) && causes.some((cause) => isJsonObject(cause) && cause.reason === reason);
}

/** Makes one line of bounded length. */
function printable(message: string): string {
  const line = message.replaceAll(/[\p{Cc}\u2028\u2029]+/gu, " ").trim();
  return line.length <= MAX_MESSAGE_CHARS ? line : `${line.slice(0, MAX_MESSAGE_CHARS)}…`;
}

function retryAfterMs(header: string | undefined, seconds: unknown): number | undefined {
  const value = header !== undefined && /^\d{1,6}$/.test(header.trim()) ? Number(header) : seconds;
  return typeof value !== "number" || value <= 0 ? undefined : value * 1000;
}
