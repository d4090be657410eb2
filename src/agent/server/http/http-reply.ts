/** Whole HTTP answers, with the headers that upstream's handlers send. */
import type { ServerResponse } from "node:http";

export const TEXT = "text/plain; charset=utf-8";
export const JSON_TYPE = "application/json";

/** Sends a complete answer. Sets `Content-Length`; browsers must not guess the type. */
export function reply(
  response: ServerResponse,
  status: number,
  contentType: string,
  body: string | Uint8Array,
  headers: Readonly<Record<string, string>> = {},
): void {
  const bytes = typeof body === "string" ? Buffer.from(body) : body;
  response.writeHead(status, {
    "Content-Type": contentType,
    "X-Content-Type-Options": "nosniff",
    "Content-Length": bytes.length,
    ...headers,
  });
  response.end(bytes);
}

/** The answer for a path that is not served. */
export function replyNotFound(response: ServerResponse): void {
  reply(response, 404, TEXT, "404 page not found\n");
}
