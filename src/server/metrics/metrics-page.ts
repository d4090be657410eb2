/** Sends metrics text, compressed where the scraper takes it. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { reply } from "../http/http-reply.ts";
import type { Page } from "../http/shared-page.ts";

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

/** Answers with metrics text. */
export async function replyMetrics(
  request: IncomingMessage,
  response: ServerResponse,
  contentType: string,
  page: Page,
  headers: Readonly<Record<string, string>> = {},
): Promise<void> {
  const encoding = request.headers["accept-encoding"];
  if (!acceptsGzip(typeof encoding === "string" ? encoding : "")) {
    reply(response, 200, contentType, page.bytes, headers);
    return;
  }
  const body = await page.gzipped();
  reply(response, 200, contentType, body, { ...headers, "Content-Encoding": "gzip", Vary: "Accept-Encoding" });
}
