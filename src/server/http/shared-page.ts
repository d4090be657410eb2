/** A page that costs something to make: made once for all who ask within a moment, and never twice at a time. */

import type { Clock } from "../../async/clock.ts";
import { promisify } from "../../kernel/node-util.ts";

/** How old a page may be. */
const FRESH_MS = 100;

export interface Page {
  readonly bytes: Buffer;
  /** Compressed for the first who takes it so; zlib works off the main thread. */
  gzipped(): Promise<Buffer>;
}

/**
 * @param render rejections reach all who wait, and are not kept.
 * @returns what gives the page.
 */
export function sharedPage(render: () => Promise<string>, clock: Clock): () => Promise<Page> {
  let page: Promise<Page> | undefined;
  let madeMs = Number.POSITIVE_INFINITY;

  return () => {
    if (page !== undefined && clock.monotonicMs() - madeMs < FRESH_MS) return page;
    // While it is being made, it is as good as new.
    madeMs = Number.POSITIVE_INFINITY;
    page = render().then(toPage);
    page.then(
      () => {
        madeMs = clock.monotonicMs();
      },
      () => {
        page = undefined;
      },
    );
    return page;
  };
}

/** A page for one who asks. */
export function toPage(text: string): Page {
  const bytes = Buffer.from(text);
  let compressed: Promise<Buffer> | undefined;
  return {
    bytes,
    gzipped() {
      compressed ??= import("node:zlib").then(({ gzip }) => promisify(gzip)(bytes));
      return compressed;
    },
  };
}
