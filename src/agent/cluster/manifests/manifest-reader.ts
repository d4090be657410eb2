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

export type FileReading =
  | { readonly kind: "unchanged" }
  | { readonly kind: "gone" }
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

  /** Reads one file. Never rejects: the result contains any errors. @param knownDigest of the known text, which is not parsed again. */
  async read(file: string, knownDigest?: string): Promise<FileReading> {
    let text: string;
    try {
      text = textOf(await this.#readFile(file, this.#limits.fileBytes));
    } catch (error) {
      if (error instanceof Error && "code" in error && error.code === "ENOENT") return { kind: "gone" };
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

/** Reads a regular file. Rejects if it is something else, too large, or cannot be read. */
export async function readRegularFile(file: string, mostBytes: number): Promise<Buffer> {
  await using handle = await open(file, FLAGS);
  const stats = await handle.stat();
  if (!stats.isFile()) throw new Error("it is not a regular file");
  const tooLarge = () => new Error(`it is larger than ${mostBytes} bytes; split it`);
  // Checked before reading, because the file is tried again at every refresh.
  if (stats.size > mostBytes) throw tooLarge();
  // A file may grow while it is read.
  const portion = Buffer.allocUnsafe(Math.min(stats.size, mostBytes) + 1);
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
