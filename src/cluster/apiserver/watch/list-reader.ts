/** One list request: a page of objects, handed over one by one while it arrives. */
import { giveTurn, isTurnDue } from "../../../async/turns.ts";
import type { ObjectKind } from "../../object-source.ts";
import { isJsonObject } from "../../projection/fields.ts";
import { ApiError, type ApiErrorCode } from "../connection/api-error.ts";
import type { ApiTransport } from "../connection/transport.ts";
import { type BodyFormat, formatOf } from "../formats/body-format.ts";
import { CutError, FormatError } from "../formats/pieces.ts";
import type { ObjectCache } from "./object-cache.ts";
import type { WatchedResource } from "./resources.ts";

interface PageHead {
  readonly resourceVersion: string;
  /** Token of the next page; empty on the last. */
  readonly continueToken: string;
}

/** Of a request whose answer goes into the cache. */
export interface ReadOptions<K extends ObjectKind> {
  readonly resource: WatchedResource<K>;
  readonly transport: Pick<ApiTransport, "host" | "send">;
  readonly cache: ObjectCache<K>;
  readonly query: Readonly<Record<string, string>>;
  readonly accept: string;
  /** The server has begun to answer with what may be what was asked for. */
  readonly onOpen: (format: BodyFormat) => void;
  readonly onProgress: () => void;
}

interface ListPageOptions<K extends ObjectKind> extends ReadOptions<K> {
  readonly idleMs: number;
}

/**
 * Reads a page into the cache, within a list that the caller began.
 *
 * @throws ApiError; `unreachable` when it is cut short, `garbage` when it is no list or has an item that cannot be identified:
 * then nothing may be deleted for not being in it.
 */
export async function readListPage<K extends ObjectKind>(
  { resource, transport, cache, query, accept, idleMs, onOpen, onProgress }: ListPageOptions<K>,
  signal: AbortSignal,
): Promise<PageHead> {
  const failure = failing(`list ${resource.plural}`, transport);
  const garbage = (detail: string): ApiError => failure("garbage", detail);
  const path = pathOf(resource, query);
  const response = await transport.send(
    { verb: "list", resource: resource.plural, method: "GET", path, accept, idleMs },
    signal,
  );
  const format = formatOrThrow(response.contentType, garbage, resource.keepsPods);
  onOpen(format);
  let strangers = 0;
  const items = format.list(({ value, problem }) => {
    if (cache.take("listed", value, problem) === undefined) strangers++;
  });
  try {
    for await (const chunk of response.body) {
      onProgress();
      items.push(chunk);
      if (isTurnDue()) await giveTurn();
    }
    const head = readHead(items.end());
    if (head === undefined) throw garbage("the answer is no list: is this an API server?");
    if (strangers > 0) throw garbage(`${strangers} items of the list are no objects with a name`);
    return head;
  } catch (error) {
    if (!(error instanceof FormatError)) throw error;
    throw failure(error instanceof CutError ? "unreachable" : "garbage", error.message, error);
  }
}

/** Makes the errors of a request's answer. */
export function failing(request: string, { host }: Pick<ApiTransport, "host">) {
  return (code: ApiErrorCode, detail: string, cause?: unknown): ApiError =>
    new ApiError(code, { request, detail: `${host}: ${detail}` }, { cause });
}

/** Path and query of a request for a resource; empty parameters are left out. Pure. */
export function pathOf(resource: WatchedResource, query: Readonly<Record<string, string>>): string {
  const given = Object.entries({ ...resource.selectors, ...query }).filter(([, value]) => value !== "");
  return given.length === 0 ? resource.path : `${resource.path}?${new URLSearchParams(given)}`;
}

/** @throws what `garbage` makes when the answer says that it is something else than an API server's. */
export function formatOrThrow(
  contentType: string,
  garbage: (detail: string) => ApiError,
  keepsPods?: boolean,
): BodyFormat {
  const format = formatOf(contentType, keepsPods);
  if (format !== undefined) return format;
  throw garbage(`the answer is ${JSON.stringify(contentType.slice(0, 60))} and not JSON: is this an API server?`);
}

function readHead(list: Readonly<Record<string, unknown>>): PageHead | undefined {
  if (typeof list.kind !== "string" || !list.kind.endsWith("List") || !isJsonObject(list.metadata)) return undefined;
  const { resourceVersion, continue: token } = list.metadata;
  if (typeof resourceVersion !== "string" || resourceVersion === "") return undefined;
  return { resourceVersion, continueToken: typeof token === "string" ? token : "" };
}
