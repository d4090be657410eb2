/**
 * Watches directories, only to be woken up: what changed is found by looking. A directory that is replaced by another of
 * the same name is watched again.
 */
import { type FSWatcher, watch } from "node:fs";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";

interface Watched {
  readonly identity: string;
  readonly watcher: FSWatcher;
}

export class DirectoryWatch {
  readonly #onWake: () => void;
  readonly #log: Logger;
  readonly #watched = new Map<string, Watched>();
  #hasFailed = false;

  constructor(onWake: () => void, log: Logger) {
    this.#onWake = onWake;
    this.#log = log;
  }

  /** Whether some directory could not be watched, so that only looking often enough finds changes. */
  get isBlind(): boolean {
    return this.#hasFailed;
  }

  /** Watches exactly these (path → identity). @returns whether a watch is new, so that earlier changes may be missed. */
  update(directories: ReadonlyMap<string, string>): boolean {
    for (const [path, { identity, watcher }] of this.#watched) {
      if (directories.get(path) === identity) continue;
      watcher.close();
      this.#watched.delete(path);
    }
    let isNew = false;
    let hasFailed = false;
    for (const [path, identity] of directories) {
      if (this.#watched.has(path)) continue;
      try {
        this.#watched.set(path, { identity, watcher: this.#start(path) });
        isNew = true;
      } catch (error) {
        if (!this.#hasFailed && !hasFailed) {
          this.#log.warn("Cannot watch a manifest directory, looking for changes twice a second instead", {
            directory: path,
            reason: messageOf(error),
            remedy: "raise fs.inotify.max_user_instances or max_user_watches",
          });
        }
        hasFailed = true;
      }
    }
    this.#hasFailed = hasFailed;
    return isNew;
  }

  close(): void {
    this.update(new Map());
  }

  #start(path: string): FSWatcher {
    const watcher = watch(path, { persistent: false }, this.#onWake);
    watcher.on("error", () => {
      watcher.close();
      if (this.#watched.get(path)?.watcher === watcher) this.#watched.delete(path);
      this.#onWake();
    });
    return watcher;
  }
}
