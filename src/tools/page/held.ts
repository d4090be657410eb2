/** Questions about the state that are held until it changes, so that an idle page costs nothing. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { SyncJournal } from "../../agent/sync/journal/sync-journal.ts";
import { HELD_MS } from "./answers.ts";

/** How often is looked for what no sync tells: health, problems, limits. */
const LOOK_MS = 1_000;
/** Fewer than a browser opens to one host: its other questions need a connection. */
const MOST = 5;

/** @param stop answers all at once. @returns what waits until the state has changed or the client has gone. */
export function heldQuestions(journal: SyncJournal, stop: AbortSignal) {
  /** What ends each, the longest held first. */
  const held = new Set<() => void>();
  stop.addEventListener(
    "abort",
    () => {
      for (const end of held) end();
    },
    { once: true },
  );
  /** Waits for {@link HELD_MS} at the latest, or until too many wait. */
  return async (isChanged: () => Promise<boolean>, request: IncomingMessage, response: ServerResponse) => {
    // `kube-proxy page` has one connection, through the socket: it ends its question once it has another.
    const isOnlyLink = request.socket.remoteAddress === undefined;
    if (stop.aborted || response.destroyed || (isOnlyLink && request.complete) || (await isChanged())) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const end = (): void => resolve();
    const look = (): void => void isChanged().then((yes) => yes && end(), end);
    const limit = setTimeout(end, HELD_MS).unref();
    const timer = setInterval(look, LOOK_MS).unref();
    const unsubscribe = journal.subscribe(look);
    response.once("close", end);
    if (isOnlyLink) request.once("end", end).resume();
    if (held.add(end).size > MOST) held.values().next().value?.();
    await promise;
    held.delete(end);
    clearTimeout(limit);
    clearInterval(timer);
    unsubscribe();
  };
}
