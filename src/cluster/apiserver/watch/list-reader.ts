/** One list request: a page of objects, handed over one by one while it arrives. */
import { giveTurn, isTurnDue } from "../../../async/turns.ts";
import type { ObjectKind } from "../../object-source.ts";
import { isJsonObject } from "../../projection/fields.ts";
import { ApiError } from "../connection/api-error.ts";
import type { Piece } from "../connection/bounded-text.ts";
import type { Transport } from "../connection/transport.ts";
import { ListItems, ListSyntaxError } from "./list-items.ts";
import { identityInText, type ObjectCache } from "./object-cache.ts";
import type { WatchedResource } from "./resources.ts";

/**
 * Larger objects are not parsed. An API server takes 3 MiB in a request and etcd keeps 1.5 MiB of it by default. The worst text of
 * this size, an array of empty objects, holds the event loop for 0.3 s.
 */
export const MAX_OBJECT_BYTES = 4 * 1_048_576;

interface PageHead {
  readonly resourceVersion: string;
  /** Token of the next page; empty on the last. */
  readonly continueToken: string;
}

interface ListPageOptions<K extends ObjectKind> {
  readonly resource: WatchedResource<K>;
  readonly transport: Transport;
  readonly cache: ObjectCache<K>;
  readonly query: Readonly<Record<string, string>>;
  readonly idleMs: number;
  /** The server has begun to answer with what may be a list. */
  readonly onOpen: () => void;
  /** Something has come. */
  readonly onProgress?: () => void;
}

/**
 * Reads a page into the cache, within a list that the caller began.
 *
 * @throws ApiError; `garbage` when it is no list, is cut short, or has an item that cannot be identified:
 * then nothing may be deleted for not being in it.
 */
export async function readListPage<K extends ObjectKind>(
  { resource, transport, cache, query, idleMs, onOpen, onProgress }: ListPageOptions<K>,
  signal: AbortSignal,
): Promise<PageHead> {
  const request = `list ${resource.plural}`;
  const garbage = (detail: string, cause?: unknown): ApiError =>
    new ApiError("garbage", { request, detail: `${transport.host}: ${detail}` }, { cause });
  const path = pathOf(resource, query);
  const response = await transport.send(
    { verb: "list", resource: resource.plural, method: "GET", path, idleMs },
    signal,
  );
  requireJson(response.contentType, garbage);
  onOpen();
  let strangers = 0;
  const items = new ListItems(MAX_OBJECT_BYTES, (item) => {
    if (!takeItem(resource, cache, item)) strangers++;
  });
  try {
    for await (const chunk of response.body) {
      onProgress?.();
      items.push(chunk);
      if (isTurnDue()) await giveTurn();
    }
    const head = readHead(items.end());
    if (head === undefined) throw garbage("the answer is no list: is this an API server?");
    if (strangers > 0) throw garbage(`${strangers} items of the list are no objects with a name`);
    return head;
  } catch (error) {
    throw error instanceof ListSyntaxError ? garbage(error.message, error) : error;
  }
}

/** Path and query of a request for a resource; empty parameters are left out. Pure. */
export function pathOf(resource: WatchedResource, query: Readonly<Record<string, string>>): string {
  const given = Object.entries({ ...resource.selectors, ...query }).filter(([, value]) => value !== "");
  return given.length === 0 ? resource.path : `${resource.path}?${new URLSearchParams(given)}`;
}

/** @throws what `garbage` makes when the answer says that it is something else than JSON. */
export function requireJson(contentType: string, garbage: (detail: string) => ApiError): void {
  if (contentType === "" || /\bjson\b/.test(contentType)) return;
  throw garbage(`the answer is ${JSON.stringify(contentType.slice(0, 60))} and not JSON: is this an API server?`);
}

/** @returns whether the object could be identified. */
function takeItem<K extends ObjectKind>(resource: WatchedResource<K>, cache: ObjectCache<K>, item: Piece): boolean {
  if (!item.isWhole) {
    const identity = identityInText(item.text, resource.isNamespaced);
    if (identity === undefined) return false;
    cache.unreadable(identity, tooLarge(item));
    return true;
  }
  try {
    return cache.listed(parseObject(item.text));
  } catch (error) {
    if (error instanceof SyntaxError) return false;
    throw error;
  }
}

/** What to say of a piece that was not kept. Pure. */
export function tooLarge({ bytes }: Piece): string {
  return `its JSON text has ${bytes} bytes, more than ${MAX_OBJECT_BYTES}`;
}

function readHead(list: Readonly<Record<string, unknown>>): PageHead | undefined {
  if (typeof list.kind !== "string" || !list.kind.endsWith("List") || !isJsonObject(list.metadata)) return undefined;
  const { resourceVersion, continue: token } = list.metadata;
  if (typeof resourceVersion !== "string" || resourceVersion === "") return undefined;
  return { resourceVersion, continueToken: typeof token === "string" ? token : "" };
}

/** Follows something else: an object has a name. */
const START = ',"managedFields":[{';
/** The end of the last entry and of the list. No other list stands in between: FieldsV1 is objects in objects. */
const END = "}]";

/**
 * Reads the JSON text of an object. A third of it is `metadata.managedFields`, which no rule depends on: it is cut out of the text,
 * and so neither parsed nor collected as garbage (docs/performance.md).
 *
 * @throws SyntaxError when the text is no JSON.
 */
export function parseObject(text: string): unknown {
  const shorter = withoutManagedFields(text);
  if (shorter === text) return JSON.parse(text);
  try {
    return JSON.parse(shorter);
  } catch {
    // A text among the fields looked like their end.
    return JSON.parse(text);
  }
}

/** Only where the fields are the last of the metadata, as the API server writes them. */
function withoutManagedFields(text: string): string {
  const start = text.indexOf(START);
  if (start === -1) return text;
  const end = text.indexOf(END, start) + END.length;
  return end < END.length || text[end] !== "}" ? text : text.slice(0, start) + text.slice(end);
}
