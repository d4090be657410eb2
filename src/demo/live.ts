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
    while (!signal.aborted) {
      const pass = new AbortController();
      changes.onChange = () => pass.abort();
      const passSignal = AbortSignal.any([signal, pass.signal]);
      const isChange = changedAt !== undefined;
      const next = keepPrevious(session.newTable(), blocks);
      const news = (): void => show({ blocks: isChange ? next : blocks, syncedAt, isSettling: isChange });
      // A repeated pass replaces the table when it is complete; after a change each result shows at once.
      news();
      await session.fill(next, news, passSignal);
      if (isChange) await retryWrong(session, next, news, passSignal);
      session.proxy.assertRunning();
      if (signal.aborted) return;
      if (!passSignal.aborted || isChange) blocks = next;
      syncedAt = (await session.proxy.waitForSync(2, 0, 0, signal)) ?? syncedAt;
      show({ blocks, syncedAt, isSettling: false });
      changedAt = await changes.wait(PAUSE_BETWEEN_PASSES_MS, signal);
      if (changedAt === undefined) continue;
      await session.reload();
      syncedAt = (await session.proxy.waitForSync(1, changedAt, SYNC_TIMEOUT_MS, signal)) ?? syncedAt;
    }
  } finally {
    changes.close();
  }
}

async function retryWrong(session: Session, blocks: Block[], news: () => void, signal: AbortSignal): Promise<void> {
  for (let retry = 0; retry < RETRIES && totalsOf(blocks).wrong > 0 && !signal.aborted; retry++) {
    await sleep(RETRY_PAUSE_MS);
    reopenWrong(blocks);
    await session.fill(blocks, news, signal);
  }
}
