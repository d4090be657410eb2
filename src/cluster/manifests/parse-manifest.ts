/** The text of one file → the objects it defines, and everything that is wrong with it. */
import { runAtOnce, type Steps } from "../../async/steps.ts";
import { newDraft, type ParsedManifest } from "./manifest-objects.ts";
import { addPiece, jsonSteps, type ParseHooks } from "./parse-json.ts";
import { splitDocuments } from "./split-documents.ts";
import { readYamlDocument } from "./yaml-document.ts";

/** Parses one file at once. Never throws. `file` is only its name for problems; JSON is recognised by it. */
export function parseManifest(text: string, file: string, hooks: ParseHooks = {}): ParsedManifest {
  return runAtOnce(file.endsWith(".json") ? jsonSteps(text, file, hooks) : manifestSteps(text, file, hooks));
}

/** The documents of a YAML file, one by one. Never throws. */
export function* manifestSteps(text: string, file: string, hooks: ParseHooks): Steps<ParsedManifest> {
  const draft = newDraft(hooks.keepsPods ?? false);
  let number = 0;
  for (const piece of splitDocuments(text)) {
    number++;
    yield* addPiece(draft, { ...piece, file, number, hooks, read: () => readYamlDocument(piece) });
  }
  return draft;
}
