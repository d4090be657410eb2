/** `/debug/flags/v`: changes the log verbosity of the running program (reference operation.md §9.2). */
import type { IncomingMessage } from "node:http";
import { reply, TEXT } from "../http/http-reply.ts";
import type { HttpHandler } from "../http/routes.ts";

const MAX_BODY_BYTES = 1024;
const MAX_LEVEL = 2 ** 31 - 1;

/** @returns the body, or `undefined` when it is longer than anything that could be right. */
async function readBody(request: IncomingMessage): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request) {
    const bytes = Buffer.from(chunk);
    size += bytes.length;
    if (size > MAX_BODY_BYTES) return undefined;
    chunks.push(bytes);
  }
  return Buffer.concat(chunks).toString();
}

/** Makes the handler; only PUT is served, its body is the new level. */
export function verbosityPage(setVerbosity: (level: number) => void): HttpHandler {
  return async (request, response) => {
    if (request.method !== "PUT") {
      reply(response, 406, TEXT, "unsupported http method\n");
      return;
    }
    const body = await readBody(request);
    const level = body !== undefined && /^\d+$/.test(body) ? Number(body) : Number.NaN;
    if (!(level <= MAX_LEVEL)) {
      const got = body === undefined ? "a body that is too long" : JSON.stringify(body);
      reply(
        response,
        400,
        TEXT,
        `cannot set klog.logging.verbosity: expected a number from 0 to ${MAX_LEVEL}, got ${got}\n`,
        {
          Connection: "close",
        },
      );
      return;
    }
    setVerbosity(level);
    reply(response, 200, TEXT, `successfully set klog.logging.verbosity to ${body}\n`);
  };
}

/** The index of `/debug/flags`. */
export const flagsIndex: HttpHandler = (_request, response) => {
  const page = '<html><body><h1>/debug/flags/</h1><ul><li><a href="/debug/flags/v">v</a></li></ul></body></html>\n';
  reply(response, 200, "text/html; charset=utf-8", page);
};
