/** Which media types the API server speaks: JSON, and protobuf where it is switched on. */
import type { IncomingHttpHeaders } from "node:http";
import { JSON_WIRE, PROTOBUF_WIRE, type WireFormat } from "./wire-format.ts";

const BODY_TYPES: Readonly<Record<string, readonly string[]>> = {
  create: [JSON_WIRE.mediaType],
  patch: ["application/merge-patch+json", "application/strategic-merge-patch+json"],
};

/** The format to answer in: the first that is spoken of those in `Accept`; undefined for none. Pure. */
export function negotiatedFormat(accept: string | undefined, hasProtobuf: boolean): WireFormat | undefined {
  for (const range of (accept ?? "*/*").split(",").map(bare)) {
    if (range === PROTOBUF_WIRE.mediaType && hasProtobuf) return PROTOBUF_WIRE;
    if ([JSON_WIRE.mediaType, "application/*", "*/*"].includes(range)) return JSON_WIRE;
  }
  return undefined;
}

/** Whether a request's body is in a language that is spoken. Pure. */
export function isBodyKnown(verb: string, { "content-type": contentType = "" }: IncomingHttpHeaders): boolean {
  return BODY_TYPES[verb]?.includes(bare(contentType)) ?? true;
}

/** Without parameters. */
function bare(mediaType: string): string {
  return (mediaType.split(";", 1)[0] ?? "").trim().toLowerCase();
}
