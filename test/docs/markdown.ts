/** The Markdown documents of the repository, and the parts of them that can be wrong: tables, headings, links. */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const CHECKOUT = fileURLToPath(new URL("../../", import.meta.url));

export interface TextLine {
  /** From 1. */
  readonly number: number;
  readonly text: string;
}

/** Paths of all documents under version control, or about to be, relative to the checkout. */
export function markdownFiles(): readonly string[] {
  const args = ["ls-files", "--cached", "--others", "--exclude-standard", "*.md"];
  return execFileSync("git", args, { cwd: CHECKOUT, encoding: "utf8" }).trim().split("\n");
}

/** The lines of a document that are not inside of a code block. */
export function proseLines(path: string): readonly TextLine[] {
  let isCode = false;
  const lines: TextLine[] = [];
  for (const [index, text] of readFileSync(join(CHECKOUT, path), "utf8").split("\n").entries()) {
    const isFence = /^\s*```/.test(text);
    if (isFence) isCode = !isCode;
    else if (!isCode) lines.push({ number: index + 1, text });
  }
  return lines;
}

/** The cells of a table's row as GitHub cuts it: at every bar that has no backslash before it, also inside of code. */
export function cellsOf(row: string): readonly string[] {
  return row
    .trim()
    .replace(/^\|/, "")
    .replace(/\|$/, "")
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim());
}

/** The anchors of a document's headings, as GitHub makes them. */
export function anchorsOf(path: string): ReadonlySet<string> {
  const anchors = new Set<string>();
  for (const { text } of proseLines(path)) {
    const title = /^#{1,6}\s+(.*)$/.exec(text)?.[1];
    if (title === undefined) continue;
    const words = title
      .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\p{M}\p{Pc}\- ]/gu, "")
      .replaceAll(" ", "-");
    let anchor = words;
    for (let again = 1; anchors.has(anchor); again++) anchor = `${words}-${again}`;
    anchors.add(anchor);
  }
  return anchors;
}
