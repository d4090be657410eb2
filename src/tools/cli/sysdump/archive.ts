/** Writes parts into one compressed archive as they are read; its index names what could not be read, with the reason. */
import { constants } from "node:fs";
import { lstat, open, rm } from "node:fs/promises";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { escapeLine } from "../../../logging/escape.ts";
import { withoutCredentials, withoutSecrets } from "../../../logging/secrets.ts";
import { UsageError } from "../output.ts";

/** Where what decides beside the rules of the node is. */
export const BESIDE_RULES = "host/beside-rules.json";

/** Only the owner may read and write. */
const FILE_MODE = 0o600;

export interface Archive {
  /** The folder that contains everything in the archive. */
  readonly folder: string;
  readonly createdMs: number;
  /** Begins the index. */
  readonly head: Readonly<Record<string, unknown>>;
  readonly parts: readonly SysdumpPart[];
}

export interface ArchiveIndex {
  /** Parts that were read, and have no file because nothing is in them: a node without such rules. */
  readonly empty: string[];
  readonly files: { readonly name: string; readonly bytes: number }[];
  readonly notRead: { readonly name: string; readonly why: string }[];
}

/**
 * Writes to a new file of mode 0600, which is removed if it cannot be completed, or to a stream, which stays open.
 *
 * @param replaces whether to replace an existing file. @throws UsageError if the file cannot be created
 */
export async function writeArchive(
  to: string | NodeJS.WritableStream,
  replaces: boolean,
  archive: Archive,
): Promise<ArchiveIndex> {
  const index: ArchiveIndex = { files: [], empty: [], notRead: [] };
  const members = Readable.from(membersOf(archive, index), { objectMode: false });
  if (typeof to !== "string") {
    await pipeline(members, createGzip(), to, { end: false });
    return index;
  }
  const file = await openNew(to, replaces);
  try {
    await pipeline(members, createGzip(), file.createWriteStream());
  } catch (error) {
    await rm(to, { force: true });
    throw new UsageError(`cannot write ${to}: ${error instanceof Error ? error.message : error}`);
  }
  return index;
}

/** Creates a file. @param replaces whether to replace an existing one. @throws UsageError if that fails */
export async function openNew(path: string, replaces: boolean) {
  try {
    if (replaces) {
      const found = await lstat(path).catch(() => undefined);
      if (found !== undefined && !found.isFile())
        throw new UsageError(`${path} is not a regular file: it is not replaced`);
      await rm(path, { force: true });
    }
    // Never opens what is at the path, not even a link.
    return await open(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, FILE_MODE);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    if (error instanceof Error && "code" in error && error.code === "EEXIST")
      throw new UsageError(`${path} already exists`, "Give another name with -o, or --force to replace it.");
    throw new UsageError(`cannot write ${path}: ${error instanceof Error ? error.message : error}`);
  }
}

async function* membersOf(
  { folder, createdMs, head, parts }: Archive,
  { files, empty, notRead }: ArchiveIndex,
): AsyncGenerator<Uint8Array, void> {
  for (const { name, read } of parts) {
    let text: string;
    try {
      text = withoutCredentials(await read());
    } catch (error) {
      notRead.push({ name, why: escapeLine(withoutSecrets(reasonOf(error))) });
      continue;
    }
    if (text === "") {
      empty.push(name);
      continue;
    }
    const content = Buffer.from(text);
    files.push({ name, bytes: content.length });
    yield* tarMember(folder, name, content, createdMs);
  }
  const index = `${JSON.stringify({ ...head, files, empty, notRead }, undefined, 2)}\n`;
  yield* tarMember(folder, "index.json", Buffer.from(index), createdMs);
  // The end of an archive in the POSIX ustar format (IEEE Std 1003.1, pax, "ustar Interchange Format").
  yield Buffer.alloc(2 * BLOCK);
}

/** The reason for the index: a part that fails must not affect the others. Of a tool, the first line. */
function reasonOf(error: unknown): string {
  if (error instanceof PartError) return error.message;
  if (error instanceof UsageError) return error.message.split("\n", 1).join();
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}

const BLOCK = 512;
/** The size field has eleven octal digits. */
const MAX_BYTES = 8 ** 11 - 1;
const MAX_NAME_BYTES = 100;
/** For the folder. */
const MAX_PREFIX_BYTES = 155;

/**
 * One regular file: its header, its content, and the padding of the last block.
 *
 * @param folder at most 155 bytes. @param name in it, at most 100. @param modifiedMs Unix milliseconds. @throws RangeError
 */
export function* tarMember(
  folder: string,
  name: string,
  content: Uint8Array,
  modifiedMs: number,
): Generator<Uint8Array, void> {
  const fits = Buffer.byteLength(name) <= MAX_NAME_BYTES && Buffer.byteLength(folder) <= MAX_PREFIX_BYTES;
  if (!fits || content.length > MAX_BYTES) throw new RangeError(`tar: ${folder}/${name}`);
  const header = Buffer.alloc(BLOCK);
  header.write(name, 0, "utf8");
  header.write(folder, 345, "utf8");
  header.write(octal(FILE_MODE, 7), 100, "latin1");
  header.write(octal(0, 7), 108, "latin1"); // user
  header.write(octal(0, 7), 116, "latin1"); // group
  header.write(octal(content.length, 11), 124, "latin1");
  header.write(octal(Math.floor(modifiedMs / 1000), 11), 136, "latin1");
  header.write(" ".repeat(8), 148, "latin1"); // the checksum counts as spaces in itself
  header.write("0", 156, "latin1"); // a regular file
  header.write("ustar\u000000", 257, "latin1");
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${octal(sum, 6)}\u0000 `, 148, "latin1");
  yield header;
  yield content;
  yield Buffer.alloc((BLOCK - (content.length % BLOCK)) % BLOCK);
}

/** The regular files of an archive, in the ustar format or GNU tar's. @throws RangeError for anything else */
export function* tarFiles(archive: Buffer): Generator<{ readonly name: string; readonly content: Buffer }> {
  for (let at = 0; archive[at] !== 0; ) {
    const textAt = (start: number, length: number): string =>
      archive.toString("utf8", at + start, at + start + length).replace(/\0.*$/s, "");
    const size = Number.parseInt(textAt(124, 12), 8);
    const start = at + BLOCK;
    if (textAt(257, 5) !== "ustar" || !(start + size <= archive.length)) throw new RangeError("no whole tar archive");
    const prefix = archive[at + 262] === 0 ? textAt(345, MAX_PREFIX_BYTES) : "";
    const name = [prefix, textAt(0, MAX_NAME_BYTES)].filter((part) => part !== "").join("/");
    if (/^0?$/.test(textAt(156, 1))) yield { name, content: archive.subarray(start, start + size) };
    at = start + Math.ceil(size / BLOCK) * BLOCK;
  }
}

function octal(value: number, digits: number): string {
  return value.toString(8).padStart(digits, "0");
}

export interface SysdumpPart {
  readonly name: string;
  /** @returns the text; an empty one is left out. @throws PartError or UsageError with the reason if it cannot be read */
  read(): Promise<string>;
}

/** Why a part is not in the archive. */
export class PartError extends Error {
  override readonly name = "PartError";
}
