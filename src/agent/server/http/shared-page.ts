/** A page that is costly to make: made once for all who ask at about the same time, and never twice at a time. */

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Clock } from "../../../async/clock.ts";
import { promisify } from "../../../async/node-util.ts";
import { reply } from "./http-reply.ts";

/** The maximum age of a page. */
const FRESH_MS = 100;

interface Page {
  readonly bytes: Buffer;
  /** Compressed for the first reader who accepts gzip; zlib works off the main thread. */
  gzipped(): Promise<Buffer>;
}

/**
 * @param render rejections reach all who wait, and are not kept.
 * @returns a function that gives the page.
 */
export function sharedPage(render: () => Promise<string>, clock: Clock): () => Promise<Page> {
  let page: Promise<Page> | undefined;
  let madeMs = Number.POSITIVE_INFINITY;

  return () => {
    if (page !== undefined && clock.monotonicMs() - madeMs < FRESH_MS) return page;
    // While it is being made, it counts as new.
    madeMs = Number.POSITIVE_INFINITY;
    page = render().then(toPage);
    page.then(
      () => {
        madeMs = clock.monotonicMs();
      },
      () => {
        page = undefined;
      },
    );
    return page;
  };
}

/** A page for a single request. */
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
