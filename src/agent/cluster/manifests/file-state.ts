/** The effective objects of one file, and how a new read changes them. */

import type { ManifestProblem } from "../../../model/manifest-problem.ts";
import type { ListedFile } from "./folder-listing.ts";
import type { ManifestObject, ParsedManifest } from "./manifest-objects.ts";
import type { FileReading } from "./manifest-reader.ts";

export interface FileState {
  readonly listed: ListedFile;
  /** Digest of the last text that was read. */
  readonly digest: string;
  /** Good objects, including the last good versions of those that are now bad. */
  readonly objects: ReadonlyMap<string, ManifestObject>;
  readonly refusedIds: ReadonlySet<string>;
  /** Those of `objects` that the current text no longer defines validly. */
  readonly leftIds: ReadonlySet<string>;
  readonly problems: readonly ManifestProblem[];
}

const NONE: readonly never[] = [];
/** Follows the reason why something that had objects cannot be read. */
export const STAYS = "; what it held before stays in force";
/** The state of a file that was never read. */
const NOTHING: Omit<FileState, "listed"> = {
  ...{ digest: "", objects: new Map(), problems: NONE },
  ...{ refusedIds: new Set(), leftIds: new Set() },
};

/**
 * Adopts a file's new text. An object keeps its earlier version if the new one is refused, or if it is missing from a
 * text that is partly unparsable.
 */
export function adoptText(
  listed: ListedFile,
  { digest, parsed }: Extract<FileReading, { readonly kind: "read" }>,
  before: FileState | undefined,
): { readonly state: FileState; readonly ignored: readonly string[] } {
  const { refusedIds, problems, ignored } = parsed;
  return { state: { listed, digest, ...inForce(parsed, before), refusedIds, problems }, ignored };
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
