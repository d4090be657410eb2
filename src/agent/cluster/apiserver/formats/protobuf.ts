/** Objects, lists and watches in the API server's protobuf (reference operation.md §8.5). */
import { isJsonObject, type JsonObject } from "../../../../model/projection/fields.ts";
import { describeValue } from "../../../../model/projection/findings.ts";
import { decode, type Message, message } from "./decode.ts";
import { CutError, FormatError, MAX_OBJECT_BYTES } from "./pieces.ts";

const MAGIC = Buffer.from("k8s\0");

/** Reads an object in its envelope. @throws FormatError */
export function readProtobuf(content: Buffer, messages = MESSAGES): JsonObject {
  if (!content.subarray(0, MAGIC.length).equals(MAGIC)) throw new FormatError("not an object in Kubernetes' protobuf");
  const { typeMeta, raw, contentEncoding } = decode(ENVELOPE, content.subarray(MAGIC.length));
  if (contentEncoding !== undefined) throw encodedAs(contentEncoding);
  const kind = kindIn(typeMeta);
  const object = decode(messageOf(kind, messages), Buffer.isBuffer(raw) ? raw : Buffer.alloc(0));
  object.kind = kind;
  return object;
}

function readEvent(content: Buffer, messages: Messages): JsonObject {
  const { type, object } = decode(WATCH_EVENT, content);
  const raw = isJsonObject(object) ? object.raw : undefined;
  return { type, object: Buffer.isBuffer(raw) ? readProtobuf(raw, messages) : undefined };
}

function kindIn(typeMeta: unknown): string {
  return isJsonObject(typeMeta) && typeof typeMeta.kind === "string" ? typeMeta.kind : "";
}

function encodedAs(encoding: unknown): FormatError {
  return new FormatError(`protobuf in the unknown encoding ${describeValue(encoding)}`);
}

function messageOf(kind: string, messages: Messages): Message {
  const known = messages.get(kind);
  if (known === undefined) throw new FormatError(`protobuf of the unknown kind ${describeValue(kind)}`);
  return known;
}

/** Reads bytes while they arrive: asks for the next ones by their number. */
type Reader<T = void> = Generator<number, T, Buffer>;

/** Gives a reader the bytes that it asks for. */
class Pieces {
  readonly #reader: Reader;
  /** What it has asked for, if that does not come in one part. */
  #piece: Buffer | undefined;
  #left = 0;
  /** Bytes of what the reader has not completed. */
  pendingBytes = 0;

  /** @param read calls its argument at the end of each event or field. */
  constructor(read: (onWhole: () => void) => Reader) {
    this.#reader = read(() => {
      this.pendingBytes = 0;
    });
    this.#left = this.#reader.next().value ?? 0;
  }

  push(chunk: Buffer): void {
    for (let at = 0; at < chunk.length; ) {
      const part = chunk.subarray(at, at + this.#left);
      at += part.length;
      this.#left -= part.length;
      this.pendingBytes += part.length;
      if (this.#left > 0) this.#piece ??= Buffer.allocUnsafe(part.length + this.#left);
      if (this.#piece !== undefined) part.copy(this.#piece, this.#piece.length - this.#left - part.length);
      if (this.#left > 0) continue;
      const piece = this.#piece ?? part;
      this.#piece = undefined;
      this.#left = this.#reader.next(piece).value ?? 0;
    }
  }
}

function* bytesOf(length: number): Reader<Buffer> {
  if (length > MAX_OBJECT_BYTES) throw new FormatError(`no protobuf: a part of it would have ${length} bytes`);
  return length === 0 ? Buffer.alloc(0) : yield length;
}

/** At most five bytes: tags and lengths. */
function* varint(): Reader<number> {
  let value = 0;
  for (let scale = 1; ; scale *= 128) {
    const [byte = 0] = yield 1;
    value += (byte & 0x7f) * scale;
    if (byte < 0x80 || scale >= 2 ** 28) return value;
  }
}

/** Reads the events of a watch: four bytes of length, then a message. */
export function protobufEvents(onEvent: (event: unknown) => void, messages: Messages): Pieces {
  return new Pieces(function* (onWhole): Reader {
    for (;;) {
      const length = (yield 4).readUInt32BE();
      const event = yield* bytesOf(length);
      onWhole();
      onEvent(readEvent(event, messages));
    }
  });
}

// The tags before the length of a field. The first is the kind in the envelope and the metadata in the list, the second
// the list itself and its items. The third is always written, and ends the list.
const FIRST = 0x0a;
const SECOND = 0x12;
const CONTENT_ENCODING = 0x1a;

/** Splits a list while it arrives: passes on the items, and keeps the rest for the end. */
export function protobufList(onItem: (item: unknown) => void, messages: Messages) {
  let kind = "";
  let metadata: unknown;
  let isOver = false;
  const pieces = new Pieces(function* (onWhole): Reader {
    for (const byte of MAGIC) {
      if ((yield 1)[0] !== byte) throw new FormatError("the response is not a list in Kubernetes' protobuf");
    }
    /** Of an item; defined once the list has begun. */
    let schema: Message | undefined;
    for (;;) {
      const tag = yield* varint();
      if ((tag & 7) !== 2) throw new FormatError("the response is not a list");
      const length = yield* varint();
      if (tag === SECOND && schema === undefined) {
        schema = messageOf(kind.replace(/List$/, ""), messages);
        continue;
      }
      const piece = yield* bytesOf(length);
      onWhole();
      if (tag === CONTENT_ENCODING) {
        if (piece.length > 0) throw encodedAs(piece.toString("utf8", 0, 80));
        isOver = true;
      } else if (schema === undefined) kind = kindIn(decode(TYPE_META, piece));
      else if (tag === SECOND) onItem(decode(schema, piece));
      else if (tag === FIRST) metadata = decode(LIST_META, piece);
    }
  });
  return {
    /** @throws FormatError as soon as the bytes cannot be a list. */
    push: (chunk: Buffer): void => pieces.push(chunk),
    /** Returns everything but the items. @throws FormatError if the response is truncated. */
    end(): JsonObject {
      if (!isOver || pieces.pendingBytes > 0) throw new CutError("the response ends in the middle of the list");
      return { kind, metadata };
    },
  };
}

const EMPTY = message({});
const NAMED = message({ name: [1, "text"] });

const LIST_META = message({ resourceVersion: [2, "text"], continue: [3, "text"] });
const OBJECT_META = message({
  name: [1, "text"],
  namespace: [3, "text"],
  uid: [5, "text"],
  resourceVersion: [6, "text"],
  deletionTimestamp: [9, EMPTY],
  labels: [11, "map"],
  annotations: [12, "map"],
});

const TYPE_META = message({ kind: [2, "text"] });
/** The envelope around each object. */
const ENVELOPE = message({
  typeMeta: [1, TYPE_META],
  raw: [2, "bytes"],
  contentEncoding: [3, "text"],
});
const WATCH_EVENT = message({ type: [1, "text"], object: [2, message({ raw: [1, "bytes"] })] });

const SERVICE_PORT = message({ name: [1, "text"], protocol: [2, "text"], port: [3, "int"], nodePort: [5, "int"] });
const SERVICE_SPEC = message({
  ports: [1, SERVICE_PORT, "list"],
  clusterIP: [3, "text"],
  type: [4, "text"],
  externalIPs: [5, "text", "list"],
  sessionAffinity: [7, "text"],
  loadBalancerSourceRanges: [9, "text", "list"],
  externalTrafficPolicy: [11, "text"],
  healthCheckNodePort: [12, "int"],
  sessionAffinityConfig: [14, message({ clientIP: [1, message({ timeoutSeconds: [1, "int"] })] })],
  clusterIPs: [18, "text", "list"],
  ipFamilies: [19, "text", "list"],
  internalTrafficPolicy: [22, "text"],
});
const INGRESS = message({ ip: [1, "text"], ipMode: [3, "text"] });

const ENDPOINT = {
  addresses: [1, "text", "list"],
  conditions: [2, message({ ready: [1, "bool"], serving: [2, "bool"], terminating: [3, "bool"] })],
  nodeName: [6, "text"],
  hints: [8, message({ forZones: [1, NAMED, "list"], forNodes: [2, NAMED, "list"] })],
} as const;
const OBJECT_REFERENCE = message({ kind: [1, "text"], namespace: [2, "text"], name: [3, "text"] });

const sliceOf = (endpoint: Message): Message =>
  message({
    metadata: [1, OBJECT_META],
    endpoints: [2, endpoint, "list"],
    ports: [3, message({ name: [1, "text"], protocol: [2, "text"], port: [3, "int"] }), "list"],
    addressType: [4, "text"],
  });

export type Messages = ReadonlyMap<string, Message>;

/** The used fields by kind, with their numbers in upstream's `generated.proto` files (reference operation.md §8.5). */
export const MESSAGES: Messages = new Map([
  [
    "Service",
    message({
      metadata: [1, OBJECT_META],
      spec: [2, SERVICE_SPEC],
      status: [3, message({ loadBalancer: [1, message({ ingress: [1, INGRESS, "list"] })] })],
    }),
  ],
  ["EndpointSlice", sliceOf(message(ENDPOINT))],
  ["ServiceCIDR", message({ metadata: [1, OBJECT_META], spec: [2, message({ cidrs: [1, "text", "list"] })] })],
  [
    "Node",
    message({
      metadata: [1, OBJECT_META],
      spec: [
        2,
        message({
          podCIDR: [1, "text"],
          taints: [5, message({ key: [1, "text"] }), "list"],
          podCIDRs: [7, "text", "list"],
        }),
      ],
      status: [3, message({ addresses: [5, message({ type: [1, "text"], address: [2, "text"] }), "list"] })],
    }),
  ],
  [
    "Status",
    message({
      message: [3, "text"],
      reason: [4, "text"],
      details: [5, message({ causes: [4, message({ reason: [1, "text"] }), "list"], retryAfterSeconds: [5, "int"] })],
      code: [6, "int"],
    }),
  ],
]);

/** Includes pod names and zones, which double the cost of an endpoint. */
export const MESSAGES_WITH_PODS: Messages = new Map([
  ...MESSAGES,
  ["EndpointSlice", sliceOf(message({ ...ENDPOINT, targetRef: [4, OBJECT_REFERENCE], zone: [7, "text"] }))],
]);
