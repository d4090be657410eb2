/**
 * Every `PAGE.md §N` in a comment or a document leads to a section of docs/reference; so does every `§N` inside of these pages, where it
 * means the same page.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const PAGES = new Map(
  readdirSync(join(ROOT, "docs/reference")).map((name) => [
    name,
    readFileSync(join(ROOT, "docs/reference", name), "utf8"),
  ]),
);

/** `§3.1–3.3, §9.2` after the name of a page, also across the line breaks of a comment. */
const CITATION = /\b([A-Za-z-]+\.md)((?:(?:,|;| and|\s|\*|\/)*§§?\s?\d+[A-Z]?(?:\.\d+)*(?:[–-]\d+(?:\.\d+)*)?)+)/g;
const SECTION = /(\d+[A-Z]?(?:\.\d+)*)(?:[–-](\d+(?:\.\d+)*))?/g;

/** A section is a numbered heading, or an item of the numbered list in one, such as a trap. */
function hasSection(page: string, section: string): boolean {
  const heading = (number: string) => new RegExp(`^#{2,4} ${number.replaceAll(".", "\\.")}[. ]`, "m").exec(page);
  if (heading(section) !== null) return true;
  const [, parent = "", item = ""] = /^(.+)\.(\d+)$/.exec(section) ?? [];
  const start = parent === "" ? null : heading(parent);
  if (start === null) return false;
  const [text = ""] = page.slice(start.index + 3).split(/^## /m);
  return new RegExp(`^\\s*(?:\\*\\*)?${item}\\. `, "m").test(text);
}

interface Citation {
  readonly file: string;
  readonly page: string;
  readonly section: string;
}

/** Names and texts of the files that may cite. */
function sources(): ReadonlyMap<string, string> {
  const listed = execFileSync("git", ["ls-files", "-co", "--exclude-standard"], { cwd: ROOT, encoding: "utf8" });
  const files = listed.split("\n").filter((name) => /\.(ts|mjs|md)$/.test(name) && existsSync(join(ROOT, name)));
  return new Map(files.map((name) => [name, readFileSync(join(ROOT, name), "utf8")]));
}

function citations(): readonly Citation[] {
  const found: Citation[] = [];
  for (const [file, text] of sources()) {
    for (const [, name = "", sections = ""] of text.matchAll(CITATION)) {
      // It may begin a sentence.
      const page = name.toLowerCase();
      for (const [, first = "", last] of sections.matchAll(SECTION)) {
        found.push({ file, page, section: first });
        if (last !== undefined) found.push({ file, page, section: lastOf(first, last) });
      }
    }
  }
  return found;
}

/** `§3.1` without a page, in a page: what is left when the citations of other pages are taken out. */
function ownCitations(): readonly Citation[] {
  return [...PAGES].flatMap(([page, text]) =>
    [...text.replaceAll(CITATION, "").matchAll(/§§?\s?(\d+[A-Z]?(?:\.\d+)*)/g)].map(([, section = ""]) => ({
      file: `docs/reference/${page}`,
      page,
      section,
    })),
  );
}

/** `3.1–3` and `3.1–3.3` both end at 3.3. */
function lastOf(first: string, last: string): string {
  const parent = first.includes(".") && !last.includes(".") ? `${first.slice(0, first.lastIndexOf("."))}.` : "";
  return `${parent}${last}`;
}

test("every cited section of the reference exists", () => {
  const all = [...citations(), ...ownCitations()];
  assert.ok(all.length > 100, "the citations are found at all");
  const dangling = all.filter(({ page, section }) => !hasSection(PAGES.get(page) ?? "", section));
  assert.deepEqual(
    dangling.map(({ file, page, section }) => `${file}: ${page} §${section}`),
    [],
  );
});

test("facts are cited by page and section", () => {
  const numbered = [...sources()].flatMap(([file, text]) =>
    [...text.matchAll(/\b(?:traps? \d+|[Rr]eference §\d[\d.]*)/g)].map(([found]) => `${file}: ${found}`),
  );
  assert.deepEqual(numbered, []);
});

test("every cited page of the reference is in the repository", () => {
  const files = execFileSync("git", ["grep", "-hoE", "[Rr]eference [a-z-]+\\.md", "--", "src", "test", "bench"], {
    cwd: ROOT,
    encoding: "utf8",
  });
  const pages = new Set(files.split("\n").flatMap((line) => line.split(" ")[1] ?? []));
  assert.deepEqual(
    [...pages].filter((page) => !PAGES.has(page)),
    [],
  );
});

test("every page of the reference says at its top that it is for maintainers", () => {
  for (const [page, text] of PAGES) assert.match(text, /^# .*\n\n\*?For maintainers\b/, page);
});
