/**
 * Watches the configuration file. There is no reload: writing the file in place or moving it away ends the process, so
 * that its supervisor starts it with the new content. Deleting or replacing the file (as ConfigMap volumes do) goes
 * unnoticed, exactly as upstream. Reference configuration.md §4.
 */
import { type BigIntStats, closeSync, type FSWatcher, fstatSync, openSync, statSync, watch } from "node:fs";

/** Windows watches files by path: moving the open file away keeps its content and does not end the process. */
const IS_WINDOWS = process.platform === "win32";

/** The error that ends the run loop when the file has changed. */
export const CONFIG_UPDATED_MESSAGE = "content of the proxy server's configuration file was updated";

/** The state of a file that is about to be read; undefined if it is missing or is not a regular file. */
export function configFileState(path: string): BigIntStats | undefined {
  const state = statSync(path, { bigint: true, throwIfNoEntry: false });
  return state?.isFile() === true ? state : undefined;
}

/**
 * Watches the file that `path` leads to now; symbolic links are followed once. Changes count from this call on, or from
 * `read` on, however late `updated` is awaited. The watch does not keep the process alive.
 *
 * Writing the same content again counts as an update; so does setting the modification time, which upstream does not
 * notice.
 *
 * @param read the file's state before it was read.
 * @returns `updated`: resolves with the message once the file has been written or moved; rejects if watching fails.
 * @throws when the file cannot be opened or watched.
 */
export function watchConfigFile(path: string, read?: BigIntStats) {
  // The open file keeps the inode when the path changes, which distinguishes a write from a change of links or mode.
  const file = openSync(path, "r");
  let watcher: FSWatcher | undefined;
  let isOpen = true;
  const close = (): void => {
    if (!isOpen) return;
    isOpen = false;
    watcher?.close();
    closeSync(file);
  };
  try {
    const before = fstatSync(file, { bigint: true });
    const started = watch(IS_WINDOWS ? path : `/proc/self/fd/${file}`, { persistent: false });
    watcher = started;
    const updated = new Promise<string>((resolve, reject) => {
      if (read?.ino === before.ino && wasWritten(read, before)) resolve(CONFIG_UPDATED_MESSAGE);
      started.on("change", (event) => {
        if (!isOpen) return;
        const now = fstatSync(file, { bigint: true });
        const isDeleted = now.nlink === 0n;
        if (wasWritten(before, now) || (event === "rename" && !(IS_WINDOWS && isDeleted)))
          resolve(CONFIG_UPDATED_MESSAGE);
        else if (isDeleted) close();
      });
      started.on("error", (error) => {
        reject(error);
        close();
      });
    });
    // There may be no handler yet when watching fails.
    updated.catch(() => {});
    return { updated, close };
  } catch (error) {
    close();
    throw error;
  }
}

function wasWritten(before: BigIntStats, now: BigIntStats): boolean {
  return before.mtimeNs !== now.mtimeNs || before.size !== now.size;
}
