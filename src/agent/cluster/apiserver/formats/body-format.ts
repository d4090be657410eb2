/** The response formats of the API server. Each yields the same objects, as `JSON.parse` would. */
import type { JsonObject } from "../../../../model/projection/fields.ts";
import { JsonLines, JsonList, readJson } from "./json.ts";
import { MESSAGES, MESSAGES_WITH_PODS, type Messages, protobufEvents, protobufList, readProtobuf } from "./protobuf.ts";

/** All methods may throw a FormatError as soon as the bytes cannot be in the format. */
export interface BodyFormat {
  read(content: Buffer): unknown;
  /** Reads a list. `end` returns it without the items that were passed on while it arrived. */
  list(onItem: (item: unknown) => void): { push(chunk: Buffer): void; end(): JsonObject };
  events(onEvent: (event: unknown) => void): {
    push(chunk: Buffer): void;
    /** Bytes of the current incomplete event. */
    readonly pendingBytes: number;
  };
}

export const JSON_FORMAT: BodyFormat = {
  read: (content) => readJson(content),
  list: () => new JsonList(),
  events: (onEvent) => new JsonLines((line) => onEvent(readJson(line))),
};
const protobufFormat = (messages: Messages): BodyFormat => ({
  read: (content) => readProtobuf(content),
  list: (onItem) => protobufList(onItem, messages),
  events: (onEvent) => protobufEvents(onEvent, messages),
});
export const PROTOBUF_FORMAT = protobufFormat(MESSAGES);
const PROTOBUF_WITH_PODS = protobufFormat(MESSAGES_WITH_PODS);

const PROTOBUF = "application/vnd.kubernetes.protobuf";
const JSON_TYPE = "application/json";

/** @param keepsPods reads pod names in slices. @returns undefined for a type that no API server sends. */
export function formatOf(contentType: string, keepsPods = false): BodyFormat | undefined {
  if (contentType.startsWith(PROTOBUF)) return keepsPods ? PROTOBUF_WITH_PODS : PROTOBUF_FORMAT;
  return contentType === "" || /\bjson\b/.test(contentType) ? JSON_FORMAT : undefined;
}

/** Whether a client that accepts these types, best first, prefers protobuf. */
export function prefersProtobuf(types: string): boolean {
  const known = types.split(",").map((type) => type.split(";", 1)[0]?.trim());
  return known.find((type) => type === PROTOBUF || type === JSON_TYPE) === PROTOBUF;
}

/**
 * The `Accept` header. managedFields are a third of an object and unused here: servers since v1.38 omit them on request
 * (KEP-5958); older ones ignore the parameter.
 */
export function accepting(isProtobuf: boolean): string {
  const types = isProtobuf ? [PROTOBUF, JSON_TYPE] : [JSON_TYPE];
  return types.flatMap((type) => [`${type};drop=metadata.managedFields`, type]).join(", ");
}
