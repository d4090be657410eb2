/** The live demo: follows the manifests and shows after each change what requests meet now. */
import { setTimeout as sleep } from "node:timers/promises";
import { ChangeSignal } from "./change-signal.ts";
import { firstSync } from "./once.ts";
import { type Block, keepPrevious, reopenWrong, totalsOf } from "./results.ts";
import type { Session } from "./session.ts";

/** How long a change may take to reach the kernel before what is asked is judged. */
const SYNC_TIMEOUT_MS = 1500;
/** A wrong cell soon after a change may be a sync that was for an earlier one: it is asked again this often. */
const RETRIES = 6;
const RETRY_PAUSE_MS = 250;
const PAUSE_BETWEEN_PASSES_MS = 4000;
/** What has changed is marked so long. */
const MARKED_MS = 30_000;

/** What the viewer is given. */
export interface LiveView {
  readonly blocks: readonly Block[];
  /** Unix milliseconds. */
  readonly syncedAt: number;
  /** A change is on its way into the kernel, or its effect is being asked for. */
  readonly isSettling: boolean;
}

/** Runs until the signal aborts. Rejects when the proxy or a client ends. @param show called whenever there is news. */
export async function runLive(session: Session, show: (view: LiveView) => void, signal: AbortSignal): Promise<void> {
  let blocks = session.newTable();
  show({ blocks, syncedAt: 0, isSettling: true });
  let syncedAt = await firstSync(session, signal);
  session.proxy.forgetLog();
  const changes = new ChangeSignal(session.options.manifests);
  try {
    let changedAt: number | undefined = syncedAt;
    let lastChangeAt = syncedAt;
    while (!signal.aborted) {
      const pass = new AbortController();
      changes.onChange = () => pass.abort();
      const passSignal = AbortSignal.any([signal, pass.signal]);
      // Read for every pass: what is expected must never be older than what is asked.
      const startedAt = Date.now();
      if (await session.reload()) changedAt ??= startedAt;
      const isChange = changedAt !== undefined;
      if (isChange) lastChangeAt = Date.now();
      if (changedAt !== undefined) {
        syncedAt = (await session.proxy.waitForSync(1, changedAt, SYNC_TIMEOUT_MS, passSignal)) ?? syncedAt;
      }
      const next = keepPrevious(session.newTable(), blocks, Date.now() - lastChangeAt < MARKED_MS);
      const news = (): void => show({ blocks: isChange ? next : blocks, syncedAt, isSettling: isChange });
      // A repeated pass replaces the table when it is complete; after a change each result shows at once.
      news();
      await session.fill(next, news, passSignal);
      const isOutdated = await retryWrong(session, next, news, passSignal);
      session.proxy.assertRunning();
      if (signal.aborted) return;
      if (!passSignal.aborted || isChange) blocks = next;
      syncedAt = (await session.proxy.waitForSync(2, 0, 0, signal)) ?? syncedAt;
      if (!isOutdated && !passSignal.aborted) show({ blocks, syncedAt, isSettling: false });
      changedAt = isOutdated ? startedAt : await changes.wait(PAUSE_BETWEEN_PASSES_MS, signal);
    }
  } finally {
    await changes.close();
  }
}

/** @returns whether the manifests turned out to be others than those that the answers were compared with. */
async function retryWrong(session: Session, blocks: Block[], news: () => void, signal: AbortSignal): Promise<boolean> {
  for (let retry = 0; retry < RETRIES && totalsOf(blocks).wrong > 0 && !signal.aborted; retry++) {
    await sleep(RETRY_PAUSE_MS);
    if (await session.reload()) return true;
    reopenWrong(blocks);
    await session.fill(blocks, news, signal);
  }
  return false;
}
