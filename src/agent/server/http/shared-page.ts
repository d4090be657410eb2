/** Pages of metrics, compressed for who accepts it. */

import type { IncomingMessage, ServerResponse } from "node:http";
import { promisify } from "../../../async/node-util.ts";
import { reply } from "./http-reply.ts";

interface Page {
  readonly bytes: Buffer;
  /** Compressed for the first reader who accepts gzip; zlib works off the main thread. */
  gzipped(): Promise<Buffer>;
}

export function toPage(text: string): Page {
  const bytes = Buffer.from(text);
  let compressed: Promise<Buffer> | undefined;
  return {
    bytes,
    gzipped() {
      compressed ??= import("node:zlib").then(({ gzip }) => promisify(gzip)(bytes));
      return compressed;
    },
  };
}

/** Whether an Accept-Encoding header allows gzip. */
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
