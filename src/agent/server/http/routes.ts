/**
 * Maps exact paths to handlers. A path ending in `/*` covers everything below it. The method does not choose the
 * handler: upstream's endpoints answer any method the same unless they check it themselves.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { replyNotFound } from "./http-reply.ts";

/** Answers a request; a rejection or throw becomes a 500. */
export type HttpHandler = (request: IncomingMessage, response: ServerResponse) => void | Promise<void>;

/** Combines handlers into one; unknown paths, including those that differ only by a trailing slash, get 404. */
export function routePaths(routes: Readonly<Record<string, HttpHandler>>): HttpHandler {
  const exact = new Map(Object.entries(routes).filter(([path]) => !path.endsWith("/*")));
  const trees = Object.entries(routes).flatMap(([path, handler]) =>
    path.endsWith("/*") ? [{ prefix: path.slice(0, -1), handler }] : [],
  );
  return async (request, response) => {
    const path = pathOf(request);
    const handler = exact.get(path) ?? trees.find(({ prefix }) => path.startsWith(prefix))?.handler;
    if (handler === undefined) replyNotFound(response);
    else await handler(request, response);
  };
}

/** A proxy sends the whole URL, which every server must understand (RFC 9112 §3.2.2). */
const ABSOLUTE = /^https?:\/\/([^/?]*)/i;

/** The path of a request as it was sent: it need not be a valid path, and nothing is decoded. */
export function pathOf({ url = "/" }: IncomingMessage): string {
  const [path = ""] = url.replace(ABSOLUTE, "").split("?", 1);
  return path === "" ? "/" : path;
}

/** The host that a request is for: from its whole URL if it has one, else from the Host header (RFC 9112 §3.2.2). */
export function authorityOf({ url = "/", headers }: IncomingMessage): string | undefined {
  return ABSOLUTE.exec(url)?.[1] ?? headers.host;
}

/** The query of a request. */
export function queryOf(request: IncomingMessage): URLSearchParams {
  const url = request.url ?? "/";
  const mark = url.indexOf("?");
  return new URLSearchParams(mark < 0 ? "" : url.slice(mark + 1));
}
