/** Which manifest files a folder holds right now, and which directories to watch for the next change. */
import type { BigIntStats } from "node:fs";
import { readdir, realpath, stat } from "node:fs/promises";
import path from "node:path";
import { messageOf } from "../../logging/message-of.ts";
import { FileSystems, kindOf } from "./file-systems.ts";

/** A file as found. */
export interface ListedFile {
  /** Differs whenever the file was replaced or written to. */
  readonly stamp: string;
  /** The file behind the name; stays the same when it is written to in place. */
  readonly inode: string;
  readonly size: number;
  readonly modifiedMs: number;
}

export interface FolderListing {
  /** By path, in path order. */
  readonly files: ReadonlyMap<string, ListedFile>;
  /** Directory → identity of what is there now. */
  readonly directories: ReadonlyMap<string, string>;
  /** Files and subdirectories that are there but cannot be read, and why; what they held stays. */
  readonly unreadable: ReadonlyMap<string, string>;
}

interface Draft {
  /** The folder itself, without links; undefined for a single file. */
  readonly inside: string | undefined;
  readonly files: Map<string, ListedFile>;
  readonly directories: Map<string, string>;
  readonly unreadable: Map<string, string>;
  readonly fileSystems: FileSystems;
}

const WANTED = /\.(?:ya?ml|json)$/;
/** Calls at a time. Each takes one of the process's four threads, and keeps it when a file server is gone. */
const BATCH = 2;

/** Whether a directory entry is to be read: no dot files, editors' backups or swap files. Pure. */
function isManifestName(name: string): boolean {
  return WANTED.test(name) && !isHidden(name);
}

function isHidden(name: string): boolean {
  return name.startsWith(".") || name.startsWith("#") || name.endsWith("~");
}

/**
 * Lists a folder and everything below it, each directory once. Symbolic links are followed to places in the folder: what is
 * elsewhere may be for others than those who read log and page. `root` itself may be a link, or a single file of any name.
 * Throws when it cannot be read.
 */
export async function listFolder(root: string): Promise<FolderListing> {
  const target = await realpath(root);
  const stats = await stat(root, { bigint: true });
  const draft: Draft = {
    inside: stats.isDirectory() ? target : undefined,
    files: new Map(),
    directories: new Map(),
    unreadable: new Map(),
    fileSystems: new FileSystems(),
  };
  if (stats.isDirectory()) await listDirectory(draft, root, stats, new Set());
  else await addFile(draft, root, stats, true);
  const reason = draft.unreadable.get(root);
  if (reason !== undefined) throw new Error(`${root} ${reason}`);
  // The root may itself be a link that is swapped.
  if (target !== path.resolve(root)) await addDirectory(draft, path.dirname(path.resolve(root)));
  return { files: inOrder(draft.files), directories: draft.directories, unreadable: inOrder(draft.unreadable) };
}

function inOrder<T>(places: ReadonlyMap<string, T>): ReadonlyMap<string, T> {
  return new Map([...places].sort(([a], [b]) => (a < b ? -1 : 1)));
}

async function listDirectory(draft: Draft, directory: string, stats: BigIntStats, seen: Set<string>): Promise<void> {
  const identity = inodeOf(stats);
  if (seen.has(identity)) return;
  seen.add(identity);
  const fileSystem = await draft.fileSystems.nameWithoutSizes(directory, stats);
  if (fileSystem !== undefined) {
    draft.unreadable.set(directory, withoutSizes(fileSystem));
    return;
  }
  draft.directories.set(directory, identity);
  const entries = await readdir(directory, { withFileTypes: true });
  const wanted = entries.filter(
    (entry) => !isHidden(entry.name) && (entry.isFile() ? isManifestName(entry.name) : true),
  );
  wanted.sort((a, b) => (a.name < b.name ? -1 : 1));
  for (let start = 0; start < wanted.length; start += BATCH) {
    const batch = wanted.slice(start, start + BATCH);
    const found = await Promise.all(
      batch.map((entry) => lookInside(draft, path.join(directory, entry.name), entry.isSymbolicLink())),
    );
    for (const [index, entry] of batch.entries()) {
      const entryStats = found[index];
      if (entryStats === undefined) continue;
      const entryPath = path.join(directory, entry.name);
      if (entryStats.isDirectory()) await listSubdirectory(draft, entryPath, entryStats, seen);
      else if (isManifestName(entry.name)) await addFile(draft, entryPath, entryStats, entry.isSymbolicLink());
    }
  }
}

async function listSubdirectory(draft: Draft, directory: string, stats: BigIntStats, seen: Set<string>): Promise<void> {
  try {
    await listDirectory(draft, directory, stats, seen);
  } catch (error) {
    noteFailure(draft, directory, error);
  }
}

/** What could block without end when it is read is skipped by name. */
async function addFile(draft: Draft, file: string, stats: BigIntStats, isLink: boolean): Promise<void> {
  const skipped = await reasonToSkip(draft, file, stats);
  if (skipped !== undefined) {
    draft.unreadable.set(file, skipped);
    return;
  }
  const inode = inodeOf(stats);
  draft.files.set(file, {
    stamp: `${inode}:${stats.size}:${stats.mtimeNs}:${stats.ctimeNs}`,
    inode,
    size: Number(stats.size),
    modifiedMs: Number(stats.mtimeMs),
  });
  if (isLink) {
    const target = await realpath(file).catch(() => undefined);
    if (target !== undefined) await addDirectory(draft, path.dirname(target));
  }
}

async function reasonToSkip(draft: Draft, file: string, stats: BigIntStats): Promise<string | undefined> {
  if (!stats.isFile()) return `is skipped: it is ${kindOf(stats)}; only regular files are read`;
  try {
    const fileSystem = await draft.fileSystems.nameWithoutSizes(file, stats);
    return fileSystem === undefined ? undefined : withoutSizes(fileSystem);
  } catch (error) {
    return cannotBeRead(error);
  }
}

function withoutSizes(fileSystem: string): string {
  return `is skipped: it is on a file system (${fileSystem}) whose files have no sizes`;
}

function cannotBeRead(error: unknown): string {
  return `cannot be read: ${messageOf(error)}`;
}

async function addDirectory(draft: Draft, directory: string): Promise<void> {
  if (draft.directories.has(directory)) return;
  const stats = await look(draft, directory);
  if (stats?.isDirectory()) draft.directories.set(directory, inodeOf(stats));
}

/** What is there, unless a link leads out of the folder. */
async function lookInside(draft: Draft, entryPath: string, isLink: boolean): Promise<BigIntStats | undefined> {
  if (!isLink || draft.inside === undefined) return await look(draft, entryPath);
  try {
    const target = await realpath(entryPath);
    if (target !== draft.inside && !target.startsWith(path.join(draft.inside, path.sep))) {
      draft.unreadable.set(entryPath, "is skipped: it is a link that leaves the folder; put the file itself here");
      return undefined;
    }
    // The target, which is inside, and not where the link leads by now.
    return await look(draft, target);
  } catch (error) {
    noteFailure(draft, entryPath, error);
    return undefined;
  }
}

async function look(draft: Draft, entryPath: string): Promise<BigIntStats | undefined> {
  try {
    return await stat(entryPath, { bigint: true });
  } catch (error) {
    noteFailure(draft, entryPath, error);
    return undefined;
  }
}

/** Gone in the meantime, or a link to nothing, is the same as not there. */
function noteFailure(draft: Draft, entryPath: string, error: unknown): void {
  if (error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ENOTDIR")) return;
  draft.unreadable.set(entryPath, cannotBeRead(error));
}

function inodeOf(stats: BigIntStats): string {
  return `${stats.dev}:${stats.ino}`;
}
