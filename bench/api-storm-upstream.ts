/**
 * What client-go's reflector (v1.36) requests, over the same transport: a streamed list, then watches. A watch that is
 * cut is reopened at once; a refused one waits for a backoff, 0.8 s doubled up to 30 s, times 1 to 2, and so does the
 * list after a lost history (reference operation.md §8.2). `Retry-After` is obeyed to the second, ten times.
 */

import { ApiError } from "../src/agent/cluster/apiserver/connection/api-error.ts";
import type { ApiTransport } from "../src/agent/cluster/apiserver/connection/transport.ts";
import { Backoff } from "../src/agent/cluster/apiserver/watch/backoff.ts";
import type { Clock } from "../src/async/clock.ts";

const MAX_ASKED = 10;

export async function followLikeUpstream(
  resource: string,
  { transport, clock }: { readonly transport: ApiTransport; readonly clock: Clock },
  signal: AbortSignal,
): Promise<void> {
  const backoff = new Backoff(clock, Math.random);
  let version = "";
  let asked = 0;
  while (!signal.aborted) {
    let isOpen = false;
    const query = version === "" ? "sendInitialEvents=true" : `resourceVersion=${version}`;
    try {
      const path = `/${resource}?${query}`;
      const { body } = await transport.send({ verb: "watch", resource, method: "GET", path }, signal);
      isOpen = true;
      asked = 0;
      for await (const chunk of body) {
        const { type, object } = JSON.parse(chunk.toString());
        version = type === "ERROR" ? "" : object.metadata.resourceVersion;
      }
      await clock.sleep(backoff.next(), signal);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (isOpen) continue;
      const { retryAfterMs } = error.facts;
      const isObeyed = retryAfterMs !== undefined && ++asked <= MAX_ASKED;
      await clock.sleep(isObeyed ? retryAfterMs : backoff.next(), signal);
    }
  }
}
