/** Reads and parses manifest files without blocking the program: documents are parsed one by one, yielding in between. */
import { constants, open } from "node:fs/promises";
import { runInTurns } from "../../../async/turns.ts";
import { messageOf } from "../../../logging/message-of.ts";
import { contentDigest } from "../../../model/projection/content-digest.ts";
import { textOf } from "../../../text/decode-text.ts";
import { jsonSteps, looksLikeJson, type ParsedManifest } from "./manifest-objects.ts";

/** Limits on the cost of a file. */
const READ_LIMITS = {
  fileBytes: 64 * 2 ** 20,
  /** For a YAML document, whose parsing blocks the event loop; JSON is cheap to parse. */
  documentCharacters: 16 * 2 ** 20,
};

export type ReadLimits = Readonly<typeof READ_LIMITS>;

/** Opening never blocks, not even on a pipe without a writer. Windows has neither flag. */
const FLAGS = constants.O_RDONLY | (constants.O_NONBLOCK ?? 0) | (constants.O_NOCTTY ?? 0);

export interface ReadRequest {
  readonly file: string;
  /** `device:inode` of the listed file. */
  readonly inode: string;
  /** Digest of the known text; the same text is not parsed again. */
  readonly knownDigest: string | undefined;
}

export type FileReading =
  | { readonly kind: "unchanged" }
  /** Another file has replaced it: list the folder again. */
  | { readonly kind: "replaced" }
  | { readonly kind: "unreadable"; readonly reason: string }
  | { readonly kind: "read"; readonly digest: string; readonly parsed: ParsedManifest };

interface ManifestReaderOptions {
  readonly limits?: Partial<ReadLimits>;
  /** Keeps Pods, and pod names in slices. @default false */
  readonly keepsPods?: boolean;
  /** @default {@link readRegularFile} */
  readonly readFile?: typeof readRegularFile;
}

export class ManifestReader {
  readonly #limits: ReadLimits;
  readonly #keepsPods: boolean;
  readonly #readFile: typeof readRegularFile;

  constructor({ limits = {}, keepsPods = false, readFile = readRegularFile }: ManifestReaderOptions = {}) {
    this.#limits = { ...READ_LIMITS, ...limits };
    this.#keepsPods = keepsPods;
    this.#readFile = readFile;
  }

  /** Reads one file. Never rejects: the result contains any errors. */
  async read({ file, inode, knownDigest }: ReadRequest): Promise<FileReading> {
    let text: string;
    try {
      const bytes = await this.#readFile(file, inode, this.#limits.fileBytes);
      if (bytes === undefined) return { kind: "replaced" };
      text = textOf(bytes);
    } catch (error) {
      if (error instanceof Error && "code" in error && error.code === "ENOENT") return { kind: "replaced" };
      return { kind: "unreadable", reason: messageOf(error) };
    }
    const digest = contentDigest(text);
    if (digest === knownDigest) return { kind: "unchanged" };
    const parsed = await this.parse(text, file);
    return { kind: "read", digest, parsed };
  }

  /** Parses a text as the file of that name: JSON if it looks so, else YAML, whose parser is loaded on demand. */
  async parse(text: string, file: string): Promise<ParsedManifest> {
    const decoded = looksLikeJson(text, file) ? await runInTurns(jsonSteps(text, file, this.#keepsPods)) : undefined;
    if (decoded !== undefined) return decoded;
    const { manifestSteps } = await import("./parse-manifest.ts");
    const most = this.#limits.documentCharacters;
    return await runInTurns(manifestSteps(text, file, { keepsPods: this.#keepsPods, most }));
  }
}

/**
 * Reads a regular file.
 *
 * @param inode the expected `device:inode`.
 * @returns `undefined` if something else is there now. Rejects if it is too large or cannot be read.
 */
export async function readRegularFile(file: string, inode: string, mostBytes: number): Promise<Buffer | undefined> {
  await using handle = await open(file, FLAGS);
  const stats = await handle.stat({ bigint: true });
  if (!stats.isFile() || `${stats.dev}:${stats.ino}` !== inode) return undefined;
  const tooLarge = () => new Error(`it is larger than ${mostBytes} bytes; split it`);
  // Checked before reading, because the file is tried again at every refresh.
  if (stats.size > mostBytes) throw tooLarge();
  // A file may grow while it is read.
  const portion = Buffer.allocUnsafe(Math.min(Number(stats.size), mostBytes) + 1);
  const portions: Buffer[] = [];
  let total = 0;
  for (;;) {
    const { bytesRead } = await handle.read(portion, 0, portion.length, null);
    total += bytesRead;
    if (total > mostBytes) throw tooLarge();
    if (bytesRead === 0) return Buffer.concat(portions);
    portions.push(Buffer.from(portion.subarray(0, bytesRead)));
  }
}
