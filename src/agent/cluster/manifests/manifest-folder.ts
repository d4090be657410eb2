/**
 * The files of a folder and their effective objects. Decides when to trust a file; knows nothing about watching or
 * time: the caller decides when to look, and passes the time.
 */
import type { Logger } from "../../../logging/logger.ts";
import { formatManifestProblem, type ManifestProblem } from "../../../model/manifest-problem.ts";
import { adoptText, type FileState, fileProblem, STAYS, unreadableState } from "./file-state.ts";
import { type FolderListing, type ListedFile, listFolder } from "./folder-listing.ts";
import type { ManifestObject } from "./manifest-objects.ts";
import type { ManifestReader } from "./manifest-reader.ts";
import { mergeFiles, type RecordMaps, recordsOf } from "./merge.ts";

/** How long a change or deletion must last before it counts. */
const REST_MS = 20;
/** A file written this recently before its first read may change again without a visible change of its times. */
const RACY_MS = 100;
const MAX_LOGGED_PER_FILE = 20;
const UNMOUNTED =
  "the folder is empty, and on another file system than before, as if its volume had been unmounted (if this is meant, restart)";

/** The effect of reading a file: `changed` if its objects may have changed. */
type ReadEffect = "changed" | "same" | "gone" | "unreadable";

interface Unsettled {
  /** Empty if the file is gone. */
  readonly stamp: string;
  readonly sinceMs: number;
}

export interface Refresh {
  /** The effective objects may have changed. */
  readonly isChanged: boolean;
  /** Something is still being written: look again soon. */
  readonly isUnsettled: boolean;
}

export class ManifestFolder {
  readonly #root: string;
  readonly #log: Logger;
  readonly #reader: ManifestReader;
  readonly #list: typeof listFolder;
  #files = new Map<string, FileState>();
  #unsettled = new Map<string, Unsettled>();
  #objects: ReadonlyMap<string, ManifestObject> = new Map();
  #duplicates: readonly ManifestProblem[] = [];
  #unreadable: readonly ManifestProblem[] = [];
  #logged = new Set<string>();
  /** How many objects and files are refused. */
  #refused = 0;
  #directories: ReadonlyMap<string, string> = new Map();
  /** Of the folder, when it was last read. */
  #device: string | undefined;

  /** @param list lists the files. */
  constructor(root: string, log: Logger, reader: ManifestReader, list = listFolder) {
    this.#root = root;
    this.#log = log;
    this.#reader = reader;
    this.#list = list;
  }

  /** Reads everything at once. Throws if the folder itself cannot be read. @returns whether all of it could be read. */
  async load(): Promise<boolean> {
    const listing = await this.#list(this.#root);
    const now = Date.now();
    const effects = new Set<ReadEffect>();
    for (const file of this.#files.keys()) if (!listing.files.has(file)) this.#files.delete(file);
    for (const [file, listed] of listing.files) {
      if (this.#files.get(file)?.listed.stamp === listed.stamp) continue;
      const isRacy = Math.abs(now - listed.modifiedMs) < RACY_MS;
      effects.add(await this.#read(file, isRacy ? { ...listed, stamp: "" } : listed));
    }
    this.#merge();
    this.#noteListing(listing);
    return listing.isWhole && !effects.has("unreadable") && !effects.has("gone");
  }

  /**
   * Looks for changes and reads the files that have settled. Throws if the folder itself cannot be read; all objects
   * then stay in force.
   *
   * @param nowMs monotonic time.
   */
  async refresh(nowMs: number): Promise<Refresh> {
    const listing = await this.#list(this.#root);
    const device = this.#deviceOf(listing);
    if (this.#files.size > 0 && listing.files.size === 0 && device !== this.#device) throw new Error(UNMOUNTED);
    let isChanged = false;
    const unsettled = new Map<string, Unsettled>();
    for (const [file, listed] of listing.files) {
      if (this.#files.get(file)?.listed.stamp === listed.stamp) continue;
      const rest = this.#restSince(file, listed.stamp, nowMs);
      const effect = nowMs - rest.sinceMs < REST_MS ? "gone" : await this.#read(file, listed);
      if (effect === "changed") isChanged = true;
      else if (effect === "gone") unsettled.set(file, rest);
    }
    for (const file of this.#files.keys()) {
      if (listing.files.has(file) || isUnder(listing.unreadable, file)) continue;
      const rest = this.#restSince(file, "", nowMs);
      if (nowMs - rest.sinceMs < REST_MS) unsettled.set(file, rest);
      else {
        this.#files.delete(file);
        isChanged = true;
      }
    }
    this.#unsettled = unsettled;
    if (isChanged) this.#merge();
    this.#noteListing(listing);
    return { isChanged, isUnsettled: unsettled.size > 0 };
  }

  records(): RecordMaps {
    return recordsOf(this.#objects.values());
  }

  objects(): readonly ManifestObject[] {
    return [...this.#objects.values()];
  }

  /** Directories to watch → `device:inode`. */
  directories(): ReadonlyMap<string, string> {
    return this.#directories;
  }

  /** All current problems in path order, followed by duplicate objects. */
  problems(): readonly ManifestProblem[] {
    const files = [...this.#files].sort(([a], [b]) => (a < b ? -1 : 1));
    return [...this.#unreadable, ...files.flatMap(([, state]) => state.problems), ...this.#duplicates];
  }

  #restSince(file: string, stamp: string, nowMs: number): Unsettled {
    const earlier = this.#unsettled.get(file);
    return earlier?.stamp === stamp ? earlier : { stamp, sinceMs: nowMs };
  }

  async #read(file: string, listed: ListedFile): Promise<ReadEffect> {
    const before = this.#files.get(file);
    const reading = await this.#reader.read(file, before?.digest);
    switch (reading.kind) {
      case "gone":
        return "gone";
      case "unchanged":
        if (before !== undefined) this.#files.set(file, { ...before, listed });
        return "same";
      case "unreadable": {
        this.#files.set(file, unreadableState(file, { ...listed, stamp: "" }, reading.reason, before));
        return "unreadable";
      }
      case "read": {
        const { state, ignored } = adoptText(listed, reading, before);
        this.#files.set(file, state);
        if (ignored.length > 0) this.#log.v(2, "Manifest objects of other kinds ignored", { file, objects: ignored });
        return "changed";
      }
    }
  }

  #merge(): void {
    const files = [...this.#files].sort(([a], [b]) => (a < b ? -1 : 1));
    const merged = mergeFiles(
      files.map(([, state]) => state),
      this.#objects,
    );
    this.#objects = merged.objects;
    this.#duplicates = merged.duplicates;
  }

  #deviceOf({ directories }: FolderListing): string | undefined {
    return directories.get(this.#root)?.split(":")[0];
  }

  #noteListing(listing: FolderListing): void {
    this.#device = this.#deviceOf(listing);
    this.#directories = listing.directories;
    this.#unreadable = Array.from(listing.unreadable, ([place, reason]) => {
      const isHolding = [...this.#files].some(([file, { objects }]) => objects.size > 0 && isIn(place, file));
      return fileProblem(place, isHolding ? `${reason}${STAYS}` : reason);
    });
    this.#report();
  }

  /** Logs each problem once while it lasts. */
  #report(): void {
    const current = new Set<string>();
    const logged = new Map<string, number>();
    const problems = this.problems();
    for (const problem of problems) {
      const text = formatManifestProblem(problem);
      current.add(text);
      if (this.#logged.has(text)) continue;
      const count = (logged.get(problem.file) ?? 0) + 1;
      logged.set(problem.file, count);
      if (count <= MAX_LOGGED_PER_FILE) logProblem(this.#log, problem);
    }
    for (const [file, count] of logged) {
      const more = count - MAX_LOGGED_PER_FILE;
      if (more > 0) this.#log.warn("More problems in the same manifest file", { file, count: more });
    }
    this.#logged = current;
    this.#noteRefused(problems.filter(({ severity }) => severity === "error"));
  }

  /** For `kube-proxy status`. */
  #noteRefused(errors: readonly ManifestProblem[]): void {
    const refused = new Set(errors.map(({ file, document, object }) => `${file} ${document} ${object}`)).size;
    if (refused === this.#refused) return;
    this.#refused = refused;
    if (refused === 0) {
      this.#log.info("All manifests are used", { can: ALL });
      return;
    }
    const what = refused === 1 ? "1 object or file is" : `${refused} objects or files are`;
    const why = `${what} refused: the log says which, and so does kube-proxy render -f ${this.#root} >/dev/null`;
    this.#log.info("Not all manifests are used", { cannot: ALL, why });
  }
}

/** What the node cannot use while a manifest is refused. */
const ALL = "use all manifests";

function isUnder(places: ReadonlyMap<string, string>, file: string): boolean {
  return [...places.keys()].some((place) => isIn(place, file));
}

/** @param place of a file or directory. */
function isIn(place: string, file: string): boolean {
  return file === place || file.startsWith(`${place}/`);
}

function logProblem(log: Logger, problem: ManifestProblem): void {
  const { file, document, line, object, field, message } = problem;
  const facts = { file, ...(document > 0 && { document }), ...(line > 0 && { line }), ...(object && { object }) };
  const all = field === "" ? facts : { ...facts, field };
  if (problem.severity === "error")
    log.error("Bad manifest ignored; an earlier good version, where there is one, stays in force", message, all);
  else log.warn("A part of a manifest is not used as it stands", { ...all, reason: message });
}
