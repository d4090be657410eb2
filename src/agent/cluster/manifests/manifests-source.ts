/** A source of cluster objects: a folder of ordinary Kubernetes manifests. */
import { type FSWatcher, watch } from "node:fs";
import { basename } from "node:path";
import { systemClock } from "../../../async/clock.ts";
import type { Logger } from "../../../logging/logger.ts";
import { messageOf } from "../../../logging/message-of.ts";
import type { ManifestProblem } from "../../../model/manifest-problem.ts";
import type { ObjectSink, ObjectSource } from "../../../model/object-source.ts";
import { listFolder } from "./folder-listing.ts";
import { ManifestFolder, type Refresh } from "./manifest-folder.ts";
import { ManifestReader } from "./manifest-reader.ts";
import { DELIVERY_ORDER, deliver, NO_RECORDS } from "./merge.ts";

const UNREADABLE = "Cannot read the manifests, everything stays as it is";

export interface ManifestsSourceOptions {
  /** The folder, read recursively; a single file works too. */
  readonly dir: string;
  readonly log: Logger;
  /** The debounce time for file system events, and the interval of checks while files change. @default 10 */
  readonly debounceMs?: number;
  /** The interval of checks without an event, in case one is lost. @default 5000 */
  readonly rescanMs?: number;
  /**
   * How long the start waits for unreadable files. Without them it would remove their rules from the previous process.
   * @default 10000
   */
  readonly startWaitMs?: number;
  readonly reader?: ManifestReader;
  readonly list?: typeof listFolder;
}

/** An {@link ObjectSource} that reports problems of its folder. */
export interface ManifestsSource extends ObjectSource {
  /** All current problems of the folder; empty before the first read. */
  problems(): readonly ManifestProblem[];
}

/** The interval while the folder is gone or cannot be watched, and at the start while part of it is unreadable. */
const BLIND_RESCAN_MS = 500;

/**
 * Creates the source. `run` rejects if the folder cannot be read at the start; it logs later losses and waits, and all
 * objects stay in force. Call `run` once.
 */
export function createManifestsSource(options: ManifestsSourceOptions): ManifestsSource {
  const { dir, log, debounceMs = 10, rescanMs = 5000, startWaitMs = 10_000 } = options;
  const { reader = new ManifestReader(), list = listFolder } = options;
  const folder = new ManifestFolder(dir, log, reader, list);
  return {
    problems: () => folder.problems(),
    run: (sink, signal) => follow(folder, { dir, log, debounceMs, rescanMs, startWaitMs }, sink, signal),
  };
}

async function follow(
  folder: ManifestFolder,
  { dir, log, debounceMs, rescanMs, startWaitMs }: Required<Omit<ManifestsSourceOptions, "list" | "reader">>,
  sink: ObjectSink,
  signal: AbortSignal,
): Promise<void> {
  try {
    const endMs = systemClock.monotonicMs() + startWaitMs;
    while (!(await folder.load()) && !signal.aborted) {
      const leftMs = endMs - systemClock.monotonicMs();
      if (leftMs <= 0) break;
      await systemClock.sleep(Math.min(BLIND_RESCAN_MS, leftMs), signal);
    }
  } catch (error) {
    throw new Error(`cannot read the manifests in ${dir}: name a folder that exists and can be read`, { cause: error });
  }
  if (signal.aborted) return;
  let known = deliver(NO_RECORDS, folder.records(), sink);
  for (const kind of DELIVERY_ORDER) sink.onSynced(kind);

  let news = new AbortController();
  const watch = new DirectoryWatch(() => news.abort(), log);
  let isLost = false;
  let isUnsettled = watch.update(folder.directories());
  try {
    while (!signal.aborted) {
      const idleMs = isLost || watch.isBlind ? Math.min(BLIND_RESCAN_MS, rescanMs) : rescanMs;
      await systemClock.sleep(isUnsettled ? debounceMs : idleMs, AbortSignal.any([signal, news.signal]));
      if (news.signal.aborted) await systemClock.sleep(debounceMs, signal);
      if (signal.aborted) return;
      news = new AbortController();
      const refresh = await tryRefresh(folder, dir, log, isLost);
      if (signal.aborted) return;
      isLost = refresh === undefined;
      if (refresh === undefined) {
        watch.close();
        isUnsettled = false;
        continue;
      }
      if (refresh.isChanged) known = deliver(known, folder.records(), sink);
      isUnsettled = watch.update(folder.directories()) || refresh.isUnsettled;
    }
  } finally {
    watch.close();
  }
}

/** Refreshes the folder; `undefined` if it cannot be read, which is logged when that starts and ends. */
async function tryRefresh(
  folder: ManifestFolder,
  dir: string,
  log: Logger,
  wasLost: boolean,
): Promise<Refresh | undefined> {
  try {
    const refresh = await folder.refresh(performance.now());
    if (wasLost) log.info("The manifests can be read again", { dir, solves: UNREADABLE });
    return refresh;
  } catch (error) {
    if (!wasLost) log.error(UNREADABLE, error, { dir });
    return undefined;
  }
}

class DirectoryWatch {
  readonly #onWake: () => void;
  readonly #log: Logger;
  readonly #watched = new Map<string, { readonly identity: string; readonly watcher: FSWatcher }>();
  /** Some directory could not be watched, so the folder must be polled. */
  isBlind = false;

  constructor(onWake: () => void, log: Logger) {
    this.#onWake = onWake;
    this.#log = log;
  }

  /** Watches exactly these (path → identity). @returns whether any watch is new and may have missed earlier changes. */
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
        if (!this.isBlind && !hasFailed) {
          this.#log.warn("Cannot watch a manifest directory, looking for changes twice a second instead", {
            directory: path,
            reason: messageOf(error),
            remedy: "raise fs.inotify.max_user_instances or max_user_watches",
          });
        }
        hasFailed = true;
      }
    }
    this.isBlind = hasFailed;
    return isNew;
  }

  close(): void {
    this.update(new Map());
  }

  #start(path: string): FSWatcher {
    const forget = (): void => {
      watcher.close();
      if (this.#watched.get(path)?.watcher === watcher) this.#watched.delete(path);
    };
    const watcher = watch(path, { persistent: false }, (event, name) => {
      // The directory itself may be gone, and another may have taken its place with the same inode number.
      if (event === "rename" && name === basename(path)) forget();
      this.#onWake();
    });
    watcher.on("error", () => {
      forget();
      this.#onWake();
    });
    return watcher;
  }
}
