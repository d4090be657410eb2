/**
 * Reads and parses manifest files without blocking the program. A read that hangs occupies one thread of the runtime,
 * and its file system is not read again until it returns. Documents are parsed one by one, yielding in between.
 */
import { constants, open } from "node:fs/promises";
import { Script } from "node:vm";
import { runInTurns } from "../../async/steps.ts";
import { mayHang } from "../../kernel/hanging-calls.ts";
import { messageOf } from "../../logging/message-of.ts";
import { textOf } from "../../text/decode-text.ts";
import { contentDigest } from "../projection/content-digest.ts";
import { jsonSteps, looksLikeJson, type ParsedManifest } from "./manifest-objects.ts";

/** Limits on the cost of a file. */
const READ_LIMITS = {
  fileBytes: 64 * 2 ** 20,
  /** For a YAML document; JSON is cheap to parse. */
  documentCharacters: 16 * 2 ** 20,
  /** Wall-clock time for parsing a YAML document, which blocks the event loop. */
  documentMs: 5_000,
  /** From opening a file to reading its last byte. */
  readMs: 5_000,
};

export type ReadLimits = Readonly<typeof READ_LIMITS>;

/** Shorter documents cannot take long, and limiting the time costs 0.1 ms each. */
const WATCHED_CHARACTERS = 32 * 2 ** 10;

/** Opening never blocks, not even on a pipe without a writer. Windows has neither flag. */
const FLAGS = constants.O_RDONLY | (constants.O_NONBLOCK ?? 0) | (constants.O_NOCTTY ?? 0);

/** @throws Error if a YAML document is too long to be parsed. */
function requireSize(length: number, { documentCharacters }: ReadLimits): void {
  if (length <= documentCharacters) return;
  throw new Error(
    `is not parsed: it has ${length} characters, more than the limit of ${documentCharacters}; split it with "---" lines`,
  );
}

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
  | {
      readonly kind: "read";
      readonly digest: string;
      readonly length: number;
      readonly endsWithLineBreak: boolean;
      readonly parsed: ParsedManifest;
    };

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
  readonly #hangingDevices = new Set<string>();

  constructor({ limits = {}, keepsPods = false, readFile = readRegularFile }: ManifestReaderOptions = {}) {
    this.#limits = { ...READ_LIMITS, ...limits };
    this.#keepsPods = keepsPods;
    this.#readFile = readFile;
  }

  /** Reads one file. Never rejects: the result contains any errors. */
  async read({ file, inode, knownDigest }: ReadRequest): Promise<FileReading> {
    let text: string;
    try {
      const bytes = await this.#bytesOf(file, inode);
      if (bytes === undefined) return { kind: "replaced" };
      text = textOf(bytes);
    } catch (error) {
      if (error instanceof Error && "code" in error && error.code === "ENOENT") return { kind: "replaced" };
      return { kind: "unreadable", reason: messageOf(error) };
    }
    const digest = contentDigest(text);
    if (digest === knownDigest) return { kind: "unchanged" };
    const parsed = await this.parse(text, file);
    return { kind: "read", digest, length: text.length, endsWithLineBreak: text.endsWith("\n"), parsed };
  }

  /** Parses a text as the file of that name: JSON if it looks so, else YAML, whose parser is loaded on demand. */
  async parse(text: string, file: string): Promise<ParsedManifest> {
    const decoded = looksLikeJson(text, file) ? await runInTurns(jsonSteps(text, file, this.#keepsPods)) : undefined;
    if (decoded !== undefined) return decoded;
    const { manifestSteps } = await import("./parse-manifest.ts");
    const guarded = <T>(length: number, work: () => T): T => {
      requireSize(length, this.#limits);
      return length < WATCHED_CHARACTERS ? work() : withinMs(this.#limits.documentMs, work);
    };
    return await runInTurns(manifestSteps(text, file, { keepsPods: this.#keepsPods, guarded }));
  }

  /** @throws Error if the read takes too long, or if an earlier read from the same device still hangs. */
  async #bytesOf(file: string, inode: string): Promise<Buffer | undefined> {
    const [device = ""] = inode.split(":");
    if (this.#hangingDevices.has(device)) {
      throw new Error("an earlier read from its file system still hangs; it is read again when that returns");
    }
    const { readMs, fileBytes } = this.#limits;
    const hanging = mayHang();
    const late = Promise.withResolvers<never>();
    const timer = setTimeout(() => {
      this.#hangingDevices.add(device);
      late.reject(new Error(`reading it took more than ${readMs} ms; check whether its file system responds`));
    }, readMs);
    const reading = this.#readFile(file, inode, fileBytes).finally(() => {
      clearTimeout(timer);
      this.#hangingDevices.delete(device);
      hanging.end();
    });
    return await Promise.race([reading, late.promise]);
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

/** The global property through which the script finds the work. */
const WORK = Symbol.for("kube-proxy-ts.limited-work");
let limitedCall: Script | undefined;

/** Runs the work in a script, because only scripts can be interrupted. @throws Error if it takes longer */
function withinMs<T>(timeout: number, work: () => T): T {
  const results: T[] = [];
  limitedCall ??= new Script(`globalThis[Symbol.for("${WORK.description}")]()`);
  Reflect.defineProperty(globalThis, WORK, { value: () => void results.push(work()), configurable: true });
  try {
    limitedCall.runInThisContext({ timeout });
  } catch (error) {
    const isLate = error instanceof Error && "code" in error && error.code === "ERR_SCRIPT_EXECUTION_TIMEOUT";
    throw isLate ? new Error(`is not used: parsing it takes more than ${timeout} ms; split or simplify it`) : error;
  } finally {
    Reflect.deleteProperty(globalThis, WORK);
  }
  const [result] = results;
  if (result === undefined) throw new Error("the work has no result");
  return result;
}
