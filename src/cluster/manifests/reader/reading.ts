/** What is asked of the thread that reads manifests, and what it answers. */
import type { ManifestObject, ParsedManifest } from "../manifest-objects.ts";
import type { TextOutline } from "../text-outline.ts";

/** How much a file may cost. */
export interface ReadLimits {
  readonly fileBytes: number;
  /** Of one YAML document; a JSON file is one document, and cheap. */
  readonly documentCharacters: number;
  /** Processor time for one document: this, and so much more per MiB. A busy node must not refuse what an idle one takes. */
  readonly documentCpuMs: number;
  readonly documentCpuMsPerMiB: number;
  /** From opening a file to its last byte. */
  readonly readMs: number;
  /** Heap of the thread: what one file may take while it is parsed. */
  readonly heapMiB: number;
}

export const READ_LIMITS: ReadLimits = {
  fileBytes: 64 * 2 ** 20,
  documentCharacters: 16 * 2 ** 20,
  documentCpuMs: 5_000,
  documentCpuMsPerMiB: 10_000,
  readMs: 5_000,
  heapMiB: 512,
};

/** Why a document of this size is not parsed, if it is too large. Pure. */
export function tooLarge(file: string, length: number, { documentCharacters }: ReadLimits): string | undefined {
  if (length <= documentCharacters || file.endsWith(".json")) return undefined;
  return `is not parsed: it has ${length} characters, and more than ${documentCharacters} are not taken; split it with "---" lines`;
}

export interface ReadRequest {
  readonly file: string;
  /** `device:inode` of what was listed under that name. */
  readonly inode: string;
  /** Of the text as it is known; the same text is not parsed again. */
  readonly knownDigest: string | undefined;
  /** It is small, and reading it cannot hang: see {@link isQuick}. @default false */
  readonly isQuick?: boolean;
}

/** Whether a file may be read where it is asked for: a thread costs more than most manifests. Pure. */
export function isQuick(
  file: string,
  { size, isLocal }: { readonly size: number; readonly isLocal: boolean },
): boolean {
  return isLocal && size <= (file.endsWith(".json") ? QUICK_BYTES.json : QUICK_BYTES.yaml);
}

/** What takes some 10 ms in a process that has just begun. */
const QUICK_BYTES = { json: 256 * 2 ** 10, yaml: 32 * 2 ** 10 } as const;

/** What came of reading one file. */
export type FileReading =
  | { readonly kind: "unchanged" }
  /** Something else is there by now: look again. */
  | { readonly kind: "replaced" }
  | { readonly kind: "unreadable"; readonly reason: string; readonly isLasting: boolean }
  | {
      readonly kind: "read";
      readonly digest: string;
      readonly outline: TextOutline;
      readonly parsed: ParsedManifest;
    };

/** To the thread: a request, and the documents that an earlier thread could not cope with. */
export interface ThreadRequest extends ReadRequest {
  /** Line → reason; for the text of this digest only. */
  readonly refused: ReadonlyMap<number, string>;
  readonly refusedDigest: string;
  readonly keepsPods: boolean;
}

/** From the thread. Objects come first and in portions, so that taking them over is no long piece of work. */
export type ThreadMessage =
  | { readonly kind: "text"; readonly digest: string }
  | { readonly kind: "objects"; readonly objects: readonly ManifestObject[] }
  | { readonly kind: "done"; readonly reading: FileReading };

/** Places in the numbers that the thread shares while it works, for it cannot answer then. */
export const PROGRESS = { phase: 0, document: 1, line: 2, characters: 3 } as const;
export const PROGRESS_BYTES = 4 * Int32Array.BYTES_PER_ELEMENT;

/** What the thread is doing. */
export const PHASE = { idle: 0, reading: 1, parsing: 2 } as const;
