/** The objects of one file that are in force, and how a new reading changes them. */
import type { ListedFile } from "./folder-listing.ts";
import type { ManifestObject, ParsedManifest } from "./manifest-objects.ts";
import type { FileReading } from "./manifest-reader.ts";
import type { ManifestProblem } from "./problem.ts";

export interface FileState {
  readonly listed: ListedFile;
  /** Characters of the last text that was understood. */
  readonly length: number;
  readonly endsWithLineBreak: boolean;
  /** The digest of the last text that was read. */
  readonly digest: string;
  /** Good objects, also those whose newer version is bad. */
  readonly objects: ReadonlyMap<string, ManifestObject>;
  readonly refusedIds: ReadonlySet<string>;
  /** Of `objects`: the text does not hold them well any more. */
  readonly leftIds: ReadonlySet<string>;
  readonly problems: readonly ManifestProblem[];
}

interface AdoptedText {
  readonly state: FileState;
  readonly ignored: readonly string[];
}

const NONE: readonly never[] = [];
/** What a file held that was never read. */
const NOTHING: Omit<FileState, "listed"> = {
  ...{ length: 0, endsWithLineBreak: false, digest: "", objects: new Map(), problems: NONE },
  ...{ refusedIds: new Set(), leftIds: new Set() },
};

/**
 * Takes over a file's new text. An object stays in force in its earlier version when the new one is refused, or when
 * it is missing from a text that cannot be understood in part or that looks cut off. Pure.
 */
export function adoptText(
  file: string,
  listed: ListedFile,
  { digest, parsed, ...end }: Extract<FileReading, { readonly kind: "read" }>,
  before: FileState | undefined,
): AdoptedText {
  if (before !== undefined && before.listed.inode === listed.inode && isCutOff(before, end)) {
    const problem = fileProblem(file, cutOffMessage(before.length, end.length));
    // What its writer goes on with is compared with what it held.
    const { size } = before.listed;
    return { state: { ...before, listed: { ...listed, size }, digest, problems: [problem] }, ignored: NONE };
  }
  const { refusedIds, problems, ignored } = parsed;
  const { length, endsWithLineBreak } = end;
  return {
    state: { listed, length, endsWithLineBreak, digest, ...inForce(parsed, before), refusedIds, problems },
    ignored,
  };
}

/** The state of a file that is there but cannot be read: everything stays as it was. Pure. */
export function unreadableState(
  file: string,
  listed: ListedFile,
  reason: string,
  before: Omit<FileState, "listed"> = NOTHING,
): FileState {
  const problems = [fileProblem(file, `cannot be read: ${reason}; what it held before stays in force`)];
  return { ...before, listed, digest: "", problems };
}

export function fileProblem(file: string, message: string): ManifestProblem {
  return { severity: "error", file, document: 0, line: 0, object: "", field: "", message };
}

function inForce(parsed: ParsedManifest, before: FileState | undefined): Pick<FileState, "objects" | "leftIds"> {
  const leftIds = new Set<string>();
  if (before === undefined || (!parsed.isIncomplete && parsed.refusedIds.size === 0)) {
    return { objects: parsed.objects, leftIds };
  }
  const objects = new Map(parsed.objects);
  for (const [id, object] of before.objects) {
    if (objects.has(id) || !(parsed.isIncomplete || parsed.refusedIds.has(id))) continue;
    objects.set(id, object);
    leftIds.add(id);
  }
  return { objects, leftIds };
}

type TextEnd = Pick<FileState, "length" | "endsWithLineBreak">;

/**
 * Whether a text found in the same file is that of a writer who stopped halfway: shorter, and without the line break that ended it.
 * A text that had none, and that still parses, cannot be told from an edit.
 */
function isCutOff(before: TextEnd, now: TextEnd): boolean {
  return now.length < before.length && (now.length === 0 || (before.endsWithLineBreak && !now.endsWithLineBreak));
}

function cutOffMessage(before: number, now: number): string {
  const what = now === 0 ? "is empty" : "ends inside a line";
  return (
    `${what} (${now} characters, before ${before}), as if its writer stopped halfway; what it held before stays in force. ` +
    "If this is meant: end the file with a line break, or delete it"
  );
}
