/** The live demo: follows the manifests, and shows after each change what requests meet now. */
import { setTimeout as sleep } from "node:timers/promises";
import { ChangeSignal } from "./change-signal.ts";
import { firstSync } from "./once.ts";
import { type Block, keepPrevious, reopenWrong, totalsOf } from "./results.ts";
import type { Session } from "./session.ts";

/** How long to wait for a change to reach the kernel before answers are judged. */
const SYNC_TIMEOUT_MS = 1500;
/** How often wrong cells are retried: soon after a change, the last sync may belong to an earlier one. */
const RETRIES = 6;
const RETRY_PAUSE_MS = 250;
const PAUSE_BETWEEN_PASSES_MS = 4000;
/** How long changed blocks stay marked. */
const MARKED_MS = 30_000;

export interface LiveView {
  readonly blocks: readonly Block[];
  /** Unix milliseconds. */
  readonly syncedAt: number;
  /** Whether a change is on its way to the kernel, or answers to it are still coming. */
  readonly isSettling: boolean;
}

/** Runs until the signal aborts. Rejects if the proxy or a client ends. @param show called at every update. */
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
      // Reloads before every pass: expectations must never be older than requests.
      const startedAt = Date.now();
      if (await session.reload()) changedAt ??= startedAt;
      const isChange = changedAt !== undefined;
      if (isChange) lastChangeAt = Date.now();
      if (changedAt !== undefined) {
        syncedAt = (await session.proxy.waitForSync(1, changedAt, SYNC_TIMEOUT_MS, passSignal)) ?? syncedAt;
      }
      const next = keepPrevious(session.newTable(), blocks, Date.now() - lastChangeAt < MARKED_MS);
      const news = (): void => show({ blocks: isChange ? next : blocks, syncedAt, isSettling: isChange });
      // A repeated pass replaces the table once it is complete; after a change, each result shows at once.
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

/** @returns whether the manifests have changed since the answers were judged. */
async function retryWrong(session: Session, blocks: Block[], news: () => void, signal: AbortSignal): Promise<boolean> {
  for (let retry = 0; retry < RETRIES && totalsOf(blocks).wrong > 0 && !signal.aborted; retry++) {
    await sleep(RETRY_PAUSE_MS);
    if (await session.reload()) return true;
    reopenWrong(blocks);
    await session.fill(blocks, news, signal);
  }
  return false;
}
