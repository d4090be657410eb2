/** What is in force of one file, and how a new reading of it changes that. */
import type { ListedFile } from "./folder-listing.ts";
import type { ManifestObject, ParsedManifest } from "./manifest-objects.ts";
import type { ManifestProblem } from "./problem.ts";
import type { FileReading } from "./reader/reading.ts";
import { isCutOff, outlineOf, type TextOutline } from "./text-outline.ts";

export interface FileState {
  readonly listed: ListedFile;
  /** Of the text last understood. */
  readonly outline: TextOutline;
  /** Of the text last read. */
  readonly digest: string;
  /** Good objects, also those whose newer version is bad. */
  readonly objects: ReadonlyMap<string, ManifestObject>;
  readonly refusedIds: ReadonlySet<string>;
  readonly problems: readonly ManifestProblem[];
}

/** A reading's effect: the new state of the file, and the titles of objects that are of no use here. */
export interface AdoptedText {
  readonly state: FileState;
  readonly ignored: readonly string[];
}

const NONE: readonly never[] = [];

/**
 * Takes over a file's new text. An object stays in force in its earlier version when the new one is refused, or when
 * it is missing from a text of which a part cannot be understood or which looks cut off. Pure.
 */
export function adoptText(
  file: string,
  listed: ListedFile,
  { digest, outline, parsed }: Extract<FileReading, { readonly kind: "read" }>,
  before: FileState | undefined,
): AdoptedText {
  if (before !== undefined && before.listed.inode === listed.inode && isCutOff(before.outline, outline)) {
    const problem = fileProblem(file, cutOffMessage(before.outline.length, outline.length));
    return { state: { ...before, listed, digest, problems: [problem] }, ignored: NONE };
  }
  const { refusedIds, problems, ignored } = parsed;
  return { state: { listed, outline, digest, objects: inForce(parsed, before), refusedIds, problems }, ignored };
}

/** The state of a file that is there but cannot be read: everything stays as it was. Pure. */
export function unreadableState(
  file: string,
  listed: ListedFile,
  reason: string,
  before: FileState | undefined,
): FileState {
  const problems = [fileProblem(file, `cannot be read: ${reason}; what it held before stays in force`)];
  if (before !== undefined) return { ...before, listed, digest: "", problems };
  return { listed, outline: outlineOf(""), digest: "", objects: new Map(), refusedIds: new Set(), problems };
}

/** A problem of a file as a whole. Pure. */
export function fileProblem(file: string, message: string): ManifestProblem {
  return { severity: "error", file, document: 0, line: 0, object: "", field: "", message };
}

function inForce(parsed: ParsedManifest, before: FileState | undefined): ReadonlyMap<string, ManifestObject> {
  if (before === undefined || (!parsed.isIncomplete && parsed.refusedIds.size === 0)) return parsed.objects;
  const objects = new Map(parsed.objects);
  for (const [id, object] of before.objects) {
    if (!objects.has(id) && (parsed.isIncomplete || parsed.refusedIds.has(id))) objects.set(id, object);
  }
  return objects;
}

function cutOffMessage(before: number, now: number): string {
  const what = now === 0 ? "is empty" : "ends inside a line";
  return (
    `${what} (${now} characters, before ${before}), as if its writer stopped halfway; what it held before stays in force. ` +
    "If this is meant: end the file with a line break, or delete it"
  );
}
