/**
 * What all answers of the page have in common: they are read-only, the page answers only to its own address, and browsers may load
 * nothing from elsewhere and cache nothing.
 */
import type { IncomingMessage } from "node:http";
import { reply, TEXT } from "../../agent/server/http/http-reply.ts";
import { authorityOf, type HttpHandler, pathOf } from "../../agent/server/http/routes.ts";
import { parseIpAddress } from "../../net/ip.ts";

const HEADERS = {
  "Content-Security-Policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
  "Cache-Control": "no-store",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Resource-Policy": "same-origin",
} as const;

/** Passes GET and HEAD requests that are meant for this address; others get an error that says why. */
export function guarded(handler: HttpHandler): HttpHandler {
  return async (request, response) => {
    for (const [name, value] of Object.entries(HEADERS)) response.setHeader(name, value);
    if (request.method !== "GET" && request.method !== "HEAD") {
      reply(response, 405, TEXT, "this page only reads: use GET\n", { Allow: "GET, HEAD" });
    } else if (!isOwnHost(authorityOf(request))) {
      reply(response, 421, TEXT, "use an IP address or localhost: other names in the Host header are not served\n");
    } else if (isFromElsewhere(request)) {
      reply(response, 403, TEXT, "pages of other sites may not request this one\n");
    } else {
      await handler(request, response);
    }
  };
}

/**
 * Whether a Host header is an address or `localhost`, rather than a name from DNS: a page of another site whose name is rebound to
 * this node's address (DNS rebinding) sends that name.
 */
export function isOwnHost(host: string | undefined): boolean {
  const [, bracketed, bare] = /^(?:\[([^\]]+)\]|([^:[\]]+))(?::\d{1,5})?$/.exec(host ?? "") ?? [];
  const name = bracketed ?? bare ?? "";
  return parseIpAddress(name) !== undefined || (bracketed === undefined && /^localhost$/i.test(name));
}

/** Other sites may link to a document here, but not embed it in frames, scripts or images, nor reach `/api/`. */
function isFromElsewhere(request: IncomingMessage): boolean {
  const {
    "sec-fetch-site": site = "none",
    "sec-fetch-mode": mode,
    "sec-fetch-dest": target = "document",
  } = request.headers;
  if (site === "same-origin" || site === "none") return false;
  return mode !== "navigate" || target !== "document" || pathOf(request).startsWith("/api/");
}
