/** Which media types the API server speaks: this one knows JSON only, as a real one does for custom resources. */
import type { IncomingHttpHeaders } from "node:http";
import type { StatusOptions } from "./status-object.ts";

const JSON_TYPE = "application/json";
const BODY_TYPES: Readonly<Record<string, readonly string[]>> = {
  create: [JSON_TYPE],
  patch: ["application/merge-patch+json", "application/strategic-merge-patch+json"],
};
/** What an `Accept` header may say for JSON to be an answer to it. */
const ANSWERED_WITH_JSON: readonly string[] = [JSON_TYPE, "application/*", "*/*"];

/** The error for a request in a language, or asking for one, that is not spoken: 415 or 406. Pure. */
export function refusedMedia(verb: string, headers: IncomingHttpHeaders): StatusOptions | undefined {
  const { accept = "*/*", "content-type": contentType = "" } = headers;
  if (!accept.split(",").some((range) => ANSWERED_WITH_JSON.includes(bare(range)))) {
    return { code: 406, message: `only the following media types are accepted: ${JSON_TYPE}` };
  }
  const known = BODY_TYPES[verb];
  if (known === undefined || known.includes(bare(contentType))) return undefined;
  const message = `the body of the request was in an unknown format - accepted media types include: ${known.join(", ")}`;
  return { code: 415, message };
}

/** Without parameters. */
function bare(mediaType: string): string {
  return (mediaType.split(";", 1)[0] ?? "").trim().toLowerCase();
}
