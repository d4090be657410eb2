/**
 * Exact paths to handlers. A path ending in `/*` stands for everything below it. The method does not choose the handler:
 * upstream's endpoints answer any method the same unless they look at it themselves.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import createRouter from "find-my-way";
import { replyNotFound } from "./http-reply.ts";

/** Answers a request; a rejection or throw becomes a 500. */
export type HttpHandler = (request: IncomingMessage, response: ServerResponse) => void | Promise<void>;

/** Makes one handler of many; unknown paths, among them those that differ only by a trailing slash, get 404. */
export function routePaths(routes: Readonly<Record<string, HttpHandler>>): HttpHandler {
  const router = createRouter();
  // One method for all keeps one search tree instead of one per method.
  for (const [path, handler] of Object.entries(routes)) router.on("GET", path, handler);
  return async (request, response) => {
    const route = router.find("GET", request.url ?? "/");
    if (route === null) replyNotFound(response);
    else await route.handler(request, response, route.params, route.store, route.searchParams);
  };
}

/** The query of a request. */
export function queryOf(request: IncomingMessage): URLSearchParams {
  const url = request.url ?? "/";
  const mark = url.indexOf("?");
  return new URLSearchParams(mark < 0 ? "" : url.slice(mark + 1));
}
