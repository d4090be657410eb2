/** One file → its objects, on the thread that calls. */
import { messageOf } from "../../../logging/message-of.ts";
import { contentDigest } from "../../projection/content-digest.ts";
import type { ParsedManifest } from "../manifest-objects.ts";
import type { ParseHooks } from "../parse-json.ts";
import { outlineOf } from "../text-outline.ts";
import { type FileReading, type ReadLimits, type ThreadRequest, tooLarge } from "./reading.ts";
import type { readRegularFile } from "./regular-file.ts";

export interface ReadTools {
  readonly limits: ReadLimits;
  readonly readFile: typeof readRegularFile;
  readonly parse: (text: string, file: string, hooks: ParseHooks) => ParsedManifest;
  /** All bytes are there. */
  readonly onRead?: () => void;
  /** The text is not the known one. */
  readonly onText?: (digest: string) => void;
  readonly onDocument?: ParseHooks["onDocument"];
}

/** Reads and parses a file. Never throws: what is wrong is in the answer. */
export function readAndParse(request: ThreadRequest, tools: ReadTools): FileReading {
  const { file, inode, knownDigest, refused, refusedDigest, keepsPods } = request;
  const { limits, readFile, parse, onRead, onText, onDocument } = tools;
  let text: string;
  try {
    const bytes = readFile(file, inode, limits.fileBytes);
    if (bytes === undefined) return { kind: "replaced" };
    text = bytes.toString("utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return { kind: "replaced" };
    return { kind: "unreadable", reason: messageOf(error), isLasting: false };
  }
  onRead?.();
  const digest = contentDigest(text);
  if (digest === knownDigest) return { kind: "unchanged" };
  onText?.(digest);
  const isSameText = digest === refusedDigest;
  const parsed = parse(text, file, {
    ...(onDocument && { onDocument }),
    keepsPods,
    refusal: (line, length) => (isSameText ? refused.get(line) : undefined) ?? tooLarge(file, length, limits),
  });
  return { kind: "read", digest, outline: outlineOf(text), parsed };
}
