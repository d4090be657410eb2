/** Rules of modes that ran here before must not stay beside ours (reference operation.md §11). */
import type { Clock } from "../../async/clock.ts";
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { CleanUp } from "../../contract/dataplane.ts";
import type { Logger } from "../../logging/logger.ts";

/** A mode, as far as its cleanup goes. */
interface ReplacedMode {
  readonly name: string;
  loadCleanUp(): Promise<CleanUp>;
}

/** What reports endpoints that do not answer, in any mode: a process that is killed leaves it. */
const unanswered: ReplacedMode = {
  name: "connections.leaveUnanswered",
  async loadCleanUp() {
    const { deleteTables, UNANSWERED_TABLE } = await import("../../kernel/nftables/delete-tables.ts");
    return (log) => deleteTables(UNANSWERED_TABLE, log);
  },
};
export const UNANSWERED_LEFT: readonly ReplacedMode[] = process.platform === "linux" ? [unanswered] : [];

interface LeftoversOptions {
  readonly config: KubeProxyConfig;
  readonly log: Logger;
}

const FIRST_RETRY_MS = 30_000;
const LONGEST_RETRY_MS = 3_600_000;

/** Removes them in order; failures are only logged and do not stop the next mode's turn. @returns the modes of which something is left. */
export async function removeLeftovers<M extends ReplacedMode>(
  modes: readonly M[],
  { config, log }: LeftoversOptions,
): Promise<readonly M[]> {
  const left: M[] = [];
  for (const mode of modes) {
    try {
      const cleanUp = await mode.loadCleanUp();
      if (await cleanUp(log, config)) continue;
    } catch (error) {
      log.error("Error cleaning up after another mode", error, { mode: mode.name });
    }
    left.push(mode);
  }
  return left;
}

/** The same, until nothing is left or the signal aborts: over time, old rules would lead to endpoints that are gone. */
export async function removeAllLeftovers(
  modes: readonly ReplacedMode[],
  { clock, ...options }: LeftoversOptions & { readonly clock: Pick<Clock, "sleep"> },
  signal: AbortSignal,
): Promise<void> {
  let left = await removeLeftovers(modes, options);
  for (let retryMs = FIRST_RETRY_MS; left.length > 0; retryMs = Math.min(retryMs * 2, LONGEST_RETRY_MS)) {
    const names = left.map(({ name }) => name).join(", ");
    options.log.warn("Rules of another mode remain", { modes: names, retryInSeconds: retryMs / 1000 });
    await clock.sleep(retryMs, signal);
    if (signal.aborted) return;
    left = await removeLeftovers(left, options);
  }
}
