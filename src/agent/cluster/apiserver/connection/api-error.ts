/** The typed error of every request to the API server; it names the resource and the reason. */

/**
 * - `unreachable`, `tls`, `timeout`: no response; `timeout` also if a response stalled
 * - `credentials`: the token or certificate could not be read, or the plugin failed
 * - `unauthorized` (401), `forbidden` (403), `not_found` (404), `expired` (410), `too_many_requests` (429)
 * - `version_too_large`: the server has not reached that resource version yet
 * - `server_error`: any other 5xx; `refused`: any other 3xx or 4xx
 * - `garbage`: a response that the protocol does not allow
 */
export type ApiErrorCode =
  | "unreachable"
  | "tls"
  | "timeout"
  | "credentials"
  | "unauthorized"
  | "forbidden"
  | "not_found"
  | "expired"
  | "too_many_requests"
  | "version_too_large"
  | "server_error"
  | "refused"
  | "garbage";

export interface ApiErrorFacts {
  /** Verb and resource: `list services`. */
  readonly request: string;
  /** What happened, and the remedy if it is known. */
  readonly detail: string;
  /** HTTP status; `undefined` without a response. */
  readonly status?: number | undefined;
  /**
   * How far a request without a response got: the connection was refused, not taken or cut (`absent`), or the request
   * was sent and never answered (`unanswered`).
   */
  readonly reached?: "absent" | "unanswered" | undefined;
  /** How long the server asked the client to wait. */
  readonly retryAfterMs?: number | undefined;
}

export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly code: ApiErrorCode;
  readonly facts: ApiErrorFacts;
  constructor(code: ApiErrorCode, facts: ApiErrorFacts, options?: ErrorOptions) {
    super(`${facts.request}: ${facts.detail}`, options);
    this.code = code;
    this.facts = facts;
  }
}

export function isApiError(error: unknown, ...codes: readonly ApiErrorCode[]): error is ApiError {
  return error instanceof ApiError && (codes.length === 0 || codes.includes(error.code));
}
