/** `Status`, the API's error object. */

export interface StatusOptions {
  readonly code: number;
  readonly reason?: string | undefined;
  readonly message?: string | undefined;
  readonly retryAfterSeconds?: number | undefined;
  /** `reason` of one cause. */
  readonly cause?: string | undefined;
}

const REASONS: Readonly<Record<number, string>> = {
  400: "BadRequest",
  401: "Unauthorized",
  403: "Forbidden",
  404: "NotFound",
  405: "MethodNotAllowed",
  406: "NotAcceptable",
  409: "Conflict",
  410: "Expired",
  415: "UnsupportedMediaType",
  422: "Invalid",
  429: "TooManyRequests",
  500: "InternalError",
  503: "ServiceUnavailable",
  504: "Timeout",
};

/** Builds the object as the API server would send it. */
export function statusObject({ code, reason, message, retryAfterSeconds, cause }: StatusOptions) {
  const details = {
    ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
    ...(cause === undefined ? {} : { causes: [{ reason: cause, message: cause }] }),
  };
  return {
    kind: "Status",
    apiVersion: "v1",
    metadata: {},
    status: "Failure",
    message: message ?? `status ${code} as asked for by the test`,
    reason: reason ?? REASONS[code] ?? "Unknown",
    ...(Object.keys(details).length === 0 ? {} : { details }),
    code,
  };
}
