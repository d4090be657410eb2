/**
 * Reads and parses manifest files: small ones at once, all others on a thread of its own, which is started when it is needed, replaced when a document is too
 * much for it, and given back after a while without work.
 */
import { QuickReads } from "./quick-reads.ts";
import { type FileReading, READ_LIMITS, type ReadLimits, type ReadRequest } from "./reading.ts";
import { ReadingThread } from "./reading-thread.ts";

const IDLE_MS = 10_000;
/** So many documents of a file may take a thread down; then the file is left alone until it changes. */
const MOST_STOPPED = 3;

const THREAD_MAIN = new URL(import.meta.url.endsWith(".ts") ? "./thread-main.ts" : "./thread-main.js", import.meta.url);

export interface ManifestReaderOptions {
  readonly limits?: Partial<ReadLimits>;
  /** Module that the thread runs, for all files. @default one that reads real files, for those that are not small */
  readonly entry?: URL;
  /** How long the thread is kept without work. @default 10 s */
  readonly idleMs?: number;
  /** Takes Pods as well, and the names of pods in slices. @default false */
  readonly keepsPods?: boolean;
}

export class ManifestReader implements Disposable {
  readonly #limits: ReadLimits;
  readonly #entry: URL;
  readonly #idleMs: number;
  readonly #keepsPods: boolean;
  readonly #quick: QuickReads | undefined;
  readonly #hangingDevices = new Set<string>();
  #thread: ReadingThread | undefined;
  #last: Promise<unknown> = Promise.resolve();
  #idle: NodeJS.Timeout | undefined;
  /** The last file was one for the thread. */
  #needsThread = false;
  #isDisposed = false;

  constructor({ limits = {}, entry, idleMs = IDLE_MS, keepsPods = false }: ManifestReaderOptions = {}) {
    this.#limits = { ...READ_LIMITS, ...limits };
    this.#entry = entry ?? THREAD_MAIN;
    this.#quick = entry === undefined ? new QuickReads(this.#limits) : undefined;
    this.#idleMs = idleMs;
    this.#keepsPods = keepsPods;
  }

  /** Something is likely to be read soon: starts the thread if what was read last needed it. */
  warmUp(): void {
    if (this.#isDisposed || !this.#needsThread) return;
    this.#thread ??= new ReadingThread(this.#entry, this.#limits);
    this.#rest();
  }

  /** Reads one file; several calls come one after the other. Never rejects. What the end interrupts says nothing against the file. */
  async read(request: ReadRequest): Promise<FileReading> {
    const reading = this.#last.then(() => this.#read(request));
    this.#last = reading;
    return await reading;
  }

  /** Ends the thread, even in the middle of a document. */
  [Symbol.dispose](): void {
    this.#isDisposed = true;
    clearTimeout(this.#idle);
    this.#thread?.end();
    this.#thread = undefined;
  }

  async #read(request: ReadRequest): Promise<FileReading> {
    if (request.isQuick && !this.#isDisposed) {
      const reading = await this.#quick?.read({
        ...request,
        refused: new Map(),
        refusedDigest: "",
        keepsPods: this.#keepsPods,
      });
      if (reading !== undefined) {
        this.#needsThread = false;
        return reading;
      }
    }
    this.#needsThread = true;
    clearTimeout(this.#idle);
    const [device = ""] = request.inode.split(":");
    if (this.#hangingDevices.has(device)) {
      return unreadable("an earlier read from its file system still hangs; it is read again when that returns");
    }
    const refused = new Map<number, string>();
    let refusedDigest = "";
    while (!this.#isDisposed) {
      const thread = this.#thread ?? new ReadingThread(this.#entry, this.#limits);
      this.#thread = thread;
      const outcome = await thread.run({ ...request, refused, refusedDigest, keepsPods: this.#keepsPods });
      if (outcome.kind === "answered") {
        this.#rest();
        return outcome.reading;
      }
      if (this.#isDisposed) break;
      this.#thread = undefined;
      if (outcome.kind === "hangs") return this.#hangs(thread, device);
      if (outcome.digest !== refusedDigest) refused.clear();
      if (outcome.line === 0 || refused.has(outcome.line)) return unreadable(outcome.reason);
      if (refused.size === MOST_STOPPED) return unreadable(`too many documents: ${outcome.reason}`, true);
      refused.set(outcome.line, `is not used: ${outcome.reason}`);
      refusedDigest = outcome.digest;
    }
    return { kind: "replaced" };
  }

  #hangs(thread: ReadingThread, device: string): FileReading {
    this.#hangingDevices.add(device);
    void thread.ended.then(() => this.#hangingDevices.delete(device));
    return unreadable(`reading it took more than ${this.#limits.readMs} ms; see whether its file system answers`);
  }

  #rest(): void {
    clearTimeout(this.#idle);
    this.#idle = setTimeout(() => {
      this.#thread?.end();
      this.#thread = undefined;
    }, this.#idleMs);
    this.#idle.unref();
  }
}

function unreadable(reason: string, isLasting = false): FileReading {
  return { kind: "unreadable", reason, isLasting };
}
