/** The media types of the test API server: JSON, and protobuf if enabled. */
import type { IncomingHttpHeaders } from "node:http";
import { JSON_WIRE, PROTOBUF_WIRE, type WireFormat } from "./wire-format.ts";

const BODY_TYPES: Readonly<Record<string, readonly string[]>> = {
  create: [JSON_WIRE.mediaType],
  patch: ["application/merge-patch+json", "application/strategic-merge-patch+json"],
};

/** The response format: the first supported one in `Accept`; undefined if there is none. */
export function negotiatedFormat(accept: string | undefined, hasProtobuf: boolean): WireFormat | undefined {
  for (const range of (accept ?? "*/*").split(",").map(bare)) {
    if (range === PROTOBUF_WIRE.mediaType && hasProtobuf) return PROTOBUF_WIRE;
    if ([JSON_WIRE.mediaType, "application/*", "*/*"].includes(range)) return JSON_WIRE;
  }
  return undefined;
}

/** Whether the type of a request's body is supported. */
export function isBodyKnown(verb: string, { "content-type": contentType = "" }: IncomingHttpHeaders): boolean {
  return BODY_TYPES[verb]?.includes(bare(contentType)) ?? true;
}

/** Strips parameters. */
function bare(mediaType: string): string {
  return (mediaType.split(";", 1)[0] ?? "").trim().toLowerCase();
}
