/** Questions about the state that are held until it changes, so that an idle page costs nothing. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { SyncJournal } from "../../agent/sync/journal/sync-journal.ts";
import { HELD_MS } from "./answers.ts";

/** How often is looked for what no sync tells: health, problems, limits. */
const LOOK_MS = 1_000;
/** Fewer than a browser opens to one host: its other questions need a connection. */
const MOST = 5;

type Ending = () => void;

export class HeldQuestions {
  readonly #journal: SyncJournal;
  readonly #stop: AbortSignal;
  /** The longest held first. */
  readonly #held = new Map<Ending, () => Promise<boolean>>();
  #stopLooking: Ending | undefined;

  /** @param stop answers all at once. */
  constructor(journal: SyncJournal, stop: AbortSignal) {
    this.#journal = journal;
    this.#stop = stop;
    stop.addEventListener("abort", () => this.#endAll(), { once: true });
  }

  /** Returns when it has changed or the client has gone; at the latest after {@link HELD_MS}, or when too many wait. */
  async until(isChanged: () => Promise<boolean>, request: IncomingMessage, response: ServerResponse): Promise<void> {
    // `kube-proxy page` has one connection, through the socket: it ends its question once it has another.
    const isOnlyLink = request.socket.remoteAddress === undefined;
    if (this.#stop.aborted || response.destroyed || (isOnlyLink && request.complete) || (await isChanged())) return;
    await new Promise<void>((resolve) => {
      const end = (): void => {
        clearTimeout(limit);
        this.#held.delete(end);
        if (this.#held.size === 0) this.#stopLooking?.();
        resolve();
      };
      const limit = setTimeout(end, HELD_MS).unref();
      this.#held.set(end, isChanged);
      response.once("close", end);
      if (isOnlyLink) request.once("end", end).resume();
      if (this.#held.size > MOST) this.#held.keys().next().value?.();
      this.#stopLooking ??= this.#startLooking();
    });
  }

  #startLooking(): Ending {
    const look = (): void => {
      for (const [end, isChanged] of this.#held) isChanged().then((yes) => yes && end(), end);
    };
    const timer = setInterval(look, LOOK_MS).unref();
    const unsubscribe = this.#journal.subscribe(look);
    return () => {
      clearInterval(timer);
      unsubscribe();
      this.#stopLooking = undefined;
    };
  }

  #endAll(): void {
    for (const end of this.#held.keys()) end();
  }
}
