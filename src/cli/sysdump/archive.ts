/** Writes parts as they are read into one compressed archive; what could not be read is in its index, with the reason. */
import { constants } from "node:fs";
import { lstat, open, rm } from "node:fs/promises";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { escapeLine } from "../../logging/escape.ts";
import { UsageError } from "../exit.ts";
import { PartError, type SysdumpPart } from "./part.ts";
import { withoutCredentials } from "./redact.ts";
import { tarEnd, tarMember } from "./tar.ts";

/** Read and written for the owner alone. */
const FILE_MODE = 0o600;

export interface Archive {
  /** The folder that everything in it is in. */
  readonly folder: string;
  readonly createdMs: number;
  /** Begins the index. */
  readonly head: Readonly<Record<string, unknown>>;
  readonly parts: readonly SysdumpPart[];
}

/** What has become of the parts. */
export interface ArchiveIndex {
  readonly files: { readonly name: string; readonly bytes: number }[];
  readonly notRead: { readonly name: string; readonly why: string }[];
}

/**
 * Writes to a file of mode 0600 that nothing has had before. One that could not be finished is removed.
 *
 * @param replaces whether a file that is there may go. @throws UsageError when the file cannot be had
 */
export async function writeArchive(path: string, replaces: boolean, archive: Archive): Promise<ArchiveIndex> {
  const index: ArchiveIndex = { files: [], notRead: [] };
  const file = await openNew(path, replaces);
  try {
    await pipeline(
      Readable.from(membersOf(archive, index), { objectMode: false }),
      createGzip(),
      file.createWriteStream(),
    );
  } catch (error) {
    await rm(path, { force: true });
    throw new UsageError(`cannot write ${path}: ${error instanceof Error ? error.message : error}`);
  }
  return index;
}

/** The same to a stream, which stays open. */
export async function streamArchive(stream: NodeJS.WritableStream, archive: Archive): Promise<ArchiveIndex> {
  const index: ArchiveIndex = { files: [], notRead: [] };
  const members = Readable.from(membersOf(archive, index), { objectMode: false });
  await pipeline(members, createGzip(), stream, { end: false });
  return index;
}

async function openNew(path: string, replaces: boolean) {
  try {
    if (replaces) {
      const found = await lstat(path).catch(() => undefined);
      if (found !== undefined && !found.isFile())
        throw new UsageError(`${path} is no ordinary file: it is not replaced`);
      await rm(path, { force: true });
    }
    // What is at the path is never opened, a link included.
    return await open(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, FILE_MODE);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    if (error instanceof Error && "code" in error && error.code === "EEXIST")
      throw new UsageError(`${path} is there already`, "Give another name with -o, or --force to replace it.");
    throw new UsageError(`cannot write ${path}: ${error instanceof Error ? error.message : error}`);
  }
}

async function* membersOf(
  { folder, createdMs, head, parts }: Archive,
  { files, notRead }: ArchiveIndex,
): AsyncGenerator<Uint8Array, void> {
  for (const { name, read } of parts) {
    let text: string;
    try {
      text = await read();
    } catch (error) {
      notRead.push({ name, why: escapeLine(withoutCredentials(reasonOf(error))) });
      continue;
    }
    if (text === "") continue;
    const content = Buffer.from(text);
    files.push({ name, bytes: content.length });
    yield* tarMember(`${folder}/${name}`, content, createdMs);
  }
  const index = `${JSON.stringify({ ...head, files, notRead }, undefined, 2)}\n`;
  yield* tarMember(`${folder}/index.json`, Buffer.from(index), createdMs);
  yield tarEnd();
}

/** One part that is broken must not cost the others. */
function reasonOf(error: unknown): string {
  if (error instanceof PartError || error instanceof UsageError) return error.message;
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}
