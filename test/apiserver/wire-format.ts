/** Serializes the test API server's objects, lists and events. */
import type { ApiObject, StoredVersion } from "./object-store.ts";
import { encodeEvent, encodeList, encodeMessage, encodeObject } from "./protobuf/encode.ts";

interface Kind {
  readonly kind: string;
  readonly apiVersion: string;
}

export interface WireFormat {
  readonly mediaType: string;
  /** The media type of watches. */
  readonly streamType: string;
  /** An object that includes its kind. */
  object(object: Kind & object): string | Buffer;
  /** Pieces of a list. */
  list(kind: Kind, metadata: object, items: readonly StoredVersion[]): Iterable<string | Buffer>;
  event(type: string, kind: Kind, version: StoredVersion): string | Buffer;
}

const JSON_TYPE = "application/json";
const PROTOBUF_TYPE = "application/vnd.kubernetes.protobuf";

export const JSON_WIRE: WireFormat = {
  mediaType: JSON_TYPE,
  streamType: JSON_TYPE,
  object: (object) => JSON.stringify(object),
  *list({ kind, apiVersion }, metadata, items) {
    yield `${JSON.stringify({ kind: `${kind}List`, apiVersion, metadata }).slice(0, -1)},"items":[`;
    for (const [index, { json }] of items.entries()) yield index === 0 ? json : `,${json}`;
    yield "]}\n";
  },
  event(type, { kind, apiVersion }, { json }) {
    const head = `{"kind":${JSON.stringify(kind)},"apiVersion":${JSON.stringify(apiVersion)}`;
    return `{"type":"${type}","object":${head}${json === "{}" ? "" : ","}${json.slice(1)}}\n`;
  },
};

/** Caches encoded messages. */
const made = new WeakMap<object, Buffer>();

function messageOf(kind: string, object: ApiObject | object): Buffer {
  const known = made.get(object);
  if (known !== undefined) return known;
  const message = encodeMessage(kind, { ...object });
  made.set(object, message);
  return message;
}

export const PROTOBUF_WIRE: WireFormat = {
  mediaType: PROTOBUF_TYPE,
  streamType: `${PROTOBUF_TYPE};stream=watch`,
  object: (object) => encodeObject(object, encodeMessage(object.kind, { ...object })),
  list: (kind, metadata, items) => [
    encodeList(
      kind,
      { ...metadata },
      items.map(({ object }) => messageOf(kind.kind, object)),
    ),
  ],
  event: (type, kind, { object }) => encodeEvent(type, encodeObject(kind, messageOf(kind.kind, object))),
};
