/** The effective objects of one file, and how a new read changes them. */
import type { ListedFile } from "./folder-listing.ts";
import type { ManifestObject, ParsedManifest } from "./manifest-objects.ts";
import type { FileReading } from "./manifest-reader.ts";
import type { ManifestProblem } from "./problem.ts";

export interface FileState {
  readonly listed: ListedFile;
  /** Characters of the last text that was adopted. */
  readonly length: number;
  readonly endsWithLineBreak: boolean;
  /** Digest of the last text that was read. */
  readonly digest: string;
  /** Good objects, including the last good versions of those that are now bad. */
  readonly objects: ReadonlyMap<string, ManifestObject>;
  readonly refusedIds: ReadonlySet<string>;
  /** Those of `objects` that the current text no longer defines validly. */
  readonly leftIds: ReadonlySet<string>;
  readonly problems: readonly ManifestProblem[];
}

interface AdoptedText {
  readonly state: FileState;
  readonly ignored: readonly string[];
}

const NONE: readonly never[] = [];
/** Follows the reason why something that had objects cannot be read. */
export const STAYS = "; what it held before stays in force";
/** The state of a file that was never read. */
const NOTHING: Omit<FileState, "listed"> = {
  ...{ length: 0, endsWithLineBreak: false, digest: "", objects: new Map(), problems: NONE },
  ...{ refusedIds: new Set(), leftIds: new Set() },
};

/**
 * Adopts a file's new text. An object keeps its earlier version if the new one is refused, or if it is missing from a
 * text that is partly unparsable or looks truncated.
 */
export function adoptText(
  file: string,
  listed: ListedFile,
  { digest, parsed, ...end }: Extract<FileReading, { readonly kind: "read" }>,
  before: FileState | undefined,
): AdoptedText {
  if (before !== undefined && before.listed.inode === listed.inode && isCutOff(before, end)) {
    const problem = fileProblem(file, cutOffMessage(before.length, end.length));
    // Compares what the writer appends with the size before the truncation.
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

/** The state of a file that exists but cannot be read: its objects stay. */
export function unreadableState(
  file: string,
  listed: ListedFile,
  reason: string,
  before: Omit<FileState, "listed"> = NOTHING,
): FileState {
  const problems = [fileProblem(file, `cannot be read: ${reason}${before.objects.size > 0 ? STAYS : ""}`)];
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
 * Whether the same file looks as if its writer stopped halfway: it is shorter and lacks the previous final line break.
 * Without a previous final line break, a truncated text that still parses cannot be distinguished from an edit.
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
