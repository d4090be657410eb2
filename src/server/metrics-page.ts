/** Sends metrics text, compressed where the scraper takes it. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { promisify } from "node:util";
import { reply } from "./http-reply.ts";

/** Whether an Accept-Encoding header allows gzip. Pure. */
export function acceptsGzip(header: string): boolean {
  let isAllowed = false;
  for (const entry of header.split(",")) {
    const [coding, ...parameters] = entry.split(";").map((part) => part.trim().toLowerCase());
    const isRefused = parameters.some((parameter) => /^q=0(\.0*)?$/.test(parameter));
    if (coding === "gzip") return !isRefused;
    if (coding === "*") isAllowed = !isRefused;
  }
  return isAllowed;
}

/** Answers with metrics text. zlib is loaded by the first scraper that asks for compression, and works off the main thread. */
export async function replyMetrics(
  request: IncomingMessage,
  response: ServerResponse,
  contentType: string,
  text: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<void> {
  const encoding = request.headers["accept-encoding"];
  if (!acceptsGzip(typeof encoding === "string" ? encoding : "")) {
    reply(response, 200, contentType, text, headers);
    return;
  }
  const { gzip } = await import("node:zlib");
  const body = await promisify(gzip)(text);
  reply(response, 200, contentType, body, { ...headers, "Content-Encoding": "gzip", Vary: "Accept-Encoding" });
}
