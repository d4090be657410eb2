/** What can go wrong between this program and the API server, as one typed error that names resource and reason. */

/**
 * - `unreachable`, `tls`, `timeout`: no answer; `timeout` also when a running answer fell silent
 * - `credentials`: token, certificate or plugin could not be read
 * - `unauthorized` (401), `forbidden` (403), `not_found` (404), `expired` (410), `too_many_requests` (429)
 * - `version_too_large`: the server has not seen that resource version yet
 * - `server_error`: any other 5xx; `refused`: any other 3xx or 4xx
 * - `garbage`: an answer that is not what the protocol allows
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
  /** `list services`: what was tried, on what. */
  readonly request: string;
  /** What happened, and what to do about it where that is known. */
  readonly detail: string;
  /** HTTP status; `undefined` without an answer. */
  readonly status?: number | undefined;
  /**
   * How far a request came that has no answer: nothing took the connection (`absent`), or it was sent and waited for in
   * vain (`unanswered`).
   */
  readonly reached?: "absent" | "unanswered" | undefined;
  /** How long the server asked clients to wait. */
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
