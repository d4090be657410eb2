/** What a document that is not parsed seems to define, from its outermost lines. */

/** How much of a document is looked at: type and name stand at its beginning, as a rule. */
const LOOK_CHARACTERS = 64 * 1024;

/** Type and name of an object, as far as they are written in the usual way; a raw object to be named by. Pure. */
export function guessObject(text: string): unknown {
  const head = text.slice(0, LOOK_CHARACTERS);
  const metadata = /^metadata:[ \t]*\r?\n((?:[ \t]+.*\r?\n?|[ \t]*\r?\n)*)/m.exec(head)?.[1] ?? "";
  const indent = /^[ \t]+/.exec(metadata)?.[0] ?? "";
  return {
    apiVersion: fieldOf(head, "", "apiVersion"),
    kind: fieldOf(head, "", "kind"),
    metadata: { name: fieldOf(metadata, indent, "name"), namespace: fieldOf(metadata, indent, "namespace") },
  };
}

function fieldOf(text: string, indent: string, key: string): string | undefined {
  const found = new RegExp(`^${indent}${key}:[ \\t]+["']?([A-Za-z0-9._/-]{1,253})["']?[ \\t]*(?:#.*)?\\r?$`, "m").exec(
    text,
  );
  return found?.[1];
}
