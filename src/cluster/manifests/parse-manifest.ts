/** The text of one file → the objects it defines, and everything that is wrong with it. */
import { newDraft, type ParsedManifest } from "./manifest-objects.ts";
import { addPiece, type ParseHooks, parseJson } from "./parse-json.ts";
import { splitDocuments } from "./split-documents.ts";
import { readYamlDocument } from "./yaml-document.ts";

/** Parses one file. Never throws. `file` is only its name for problems; JSON is recognised by it. */
export function parseManifest(text: string, file: string, hooks: ParseHooks = {}): ParsedManifest {
  if (file.endsWith(".json")) return parseJson(text, file, hooks);
  const draft = newDraft(hooks.keepsPods ?? false);
  let number = 0;
  for (const piece of splitDocuments(text)) {
    number++;
    addPiece(draft, { ...piece, file, number, hooks, read: () => readYamlDocument(piece) });
  }
  return draft;
}
