/** Lists the manifest files of a folder, and the directories to watch for changes. */
import type { BigIntStats } from "node:fs";
import { readdir, realpath, stat } from "node:fs/promises";
import path from "node:path";
import { messageOf } from "../../../logging/message-of.ts";

export interface ListedFile {
  /** Changes whenever the file is replaced or written to. */
  readonly stamp: string;
  readonly modifiedMs: number;
}

export interface FolderListing {
  /** By path, in path order. */
  readonly files: ReadonlyMap<string, ListedFile>;
  /** Directory → `device:inode`. */
  readonly directories: ReadonlyMap<string, string>;
  /** Files and subdirectories that exist but cannot be read, and why; their objects stay. */
  readonly unreadable: ReadonlyMap<string, string>;
  /** False if something could not be read, but may become readable. */
  readonly isWhole: boolean;
}

interface Draft {
  /** The folder's real path; undefined for a single file. */
  readonly inside: string | undefined;
  readonly files: Map<string, ListedFile>;
  readonly directories: Map<string, string>;
  readonly unreadable: Map<string, string>;
  isWhole: boolean;
}

const WANTED = /\.(?:ya?ml|json)$/;

/** Whether to read a directory entry: excludes dot files, and editors' backup and swap files. */
function isManifestName(name: string): boolean {
  return WANTED.test(name) && !isHidden(name);
}

function isHidden(name: string): boolean {
  return name.startsWith(".") || name.startsWith("#") || name.endsWith("~");
}

/**
 * Lists a folder recursively, each directory once. Follows symbolic links only within the folder: readers of the log
 * and the page may not be allowed to see other files. `root` itself may be a link, or a single file of any name.
 * Throws if it cannot be read.
 */
export async function listFolder(root: string): Promise<FolderListing> {
  const target = await realpath(root);
  const stats = await stat(root, { bigint: true });
  const draft: Draft = {
    inside: stats.isDirectory() ? target : undefined,
    files: new Map(),
    directories: new Map(),
    unreadable: new Map(),
    isWhole: true,
  };
  if (stats.isDirectory()) await listDirectory(draft, root, stats, new Set());
  else await addFile(draft, root, stats, true);
  const reason = draft.unreadable.get(root);
  if (reason !== undefined) throw new Error(`${root} ${reason}`);
  // The root may itself be a link that is replaced.
  if (target !== path.resolve(root)) await addDirectory(draft, path.dirname(path.resolve(root)));
  const { directories, isWhole } = draft;
  return { files: inOrder(draft.files), directories, unreadable: inOrder(draft.unreadable), isWhole };
}

function inOrder<T>(places: ReadonlyMap<string, T>): ReadonlyMap<string, T> {
  return new Map([...places].sort(([a], [b]) => (a < b ? -1 : 1)));
}

async function listDirectory(draft: Draft, directory: string, stats: BigIntStats, seen: Set<string>): Promise<void> {
  const identity = inodeOf(stats);
  if (seen.has(identity)) return;
  seen.add(identity);
  draft.directories.set(directory, identity);
  const entries = await readdir(directory, { withFileTypes: true });
  const wanted = entries.filter(
    (entry) => !isHidden(entry.name) && (entry.isFile() ? isManifestName(entry.name) : true),
  );
  wanted.sort((a, b) => (a.name < b.name ? -1 : 1));
  for (const entry of wanted) {
    const entryPath = path.join(directory, entry.name);
    try {
      const entryStats = await lookInside(draft, entryPath, entry.isSymbolicLink());
      if (entryStats?.isDirectory()) await listDirectory(draft, entryPath, entryStats, seen);
      else if (entryStats && isManifestName(entry.name)) {
        await addFile(draft, entryPath, entryStats, entry.isSymbolicLink());
      }
    } catch (error) {
      noteFailure(draft, entryPath, error);
    }
  }
}

/** Skips and reports anything but a regular file, which could block a read forever. */
async function addFile(draft: Draft, file: string, stats: BigIntStats, isLink: boolean): Promise<void> {
  if (!stats.isFile()) {
    draft.unreadable.set(file, `is skipped: it is ${kindOf(stats)}; only regular files are read`);
    return;
  }
  draft.files.set(file, {
    stamp: `${inodeOf(stats)}:${stats.size}:${stats.mtimeNs}:${stats.ctimeNs}`,
    modifiedMs: Number(stats.mtimeMs),
  });
  if (isLink) {
    const target = await realpath(file).catch(() => undefined);
    if (target !== undefined) await addDirectory(draft, path.dirname(target));
  }
}

async function addDirectory(draft: Draft, directory: string): Promise<void> {
  if (draft.directories.has(directory)) return;
  const stats = await stat(directory, { bigint: true }).catch((error: unknown) => noteFailure(draft, directory, error));
  if (stats?.isDirectory()) draft.directories.set(directory, inodeOf(stats));
}

/** The entry's stats; undefined for a link out of the folder. Rejects if they cannot be read. */
async function lookInside(draft: Draft, entryPath: string, isLink: boolean): Promise<BigIntStats | undefined> {
  if (!isLink || draft.inside === undefined) return await stat(entryPath, { bigint: true });
  const target = await realpath(entryPath);
  if (target !== draft.inside && !target.startsWith(path.join(draft.inside, path.sep))) {
    draft.unreadable.set(entryPath, "is skipped: it is a link that leaves the folder; put the file itself here");
    return undefined;
  }
  // Not `entryPath`: the link may have changed since the check.
  return await stat(target, { bigint: true });
}

/** Ignores entries that have disappeared and dangling links. */
function noteFailure(draft: Draft, entryPath: string, error: unknown): void {
  if (error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ENOTDIR")) return;
  draft.unreadable.set(entryPath, `cannot be read: ${messageOf(error)}`);
  // A link loop does not go away by waiting.
  if (!(error instanceof Error && "code" in error && error.code === "ELOOP")) draft.isWhole = false;
}

function inodeOf(stats: BigIntStats): string {
  return `${stats.dev}:${stats.ino}`;
}

/** Names the type of something that is not a regular file. */
function kindOf(stats: BigIntStats): string {
  if (stats.isFIFO()) return "a pipe";
  if (stats.isSocket()) return "a socket";
  return stats.isCharacterDevice() || stats.isBlockDevice() ? "a device" : "not a regular file";
}
