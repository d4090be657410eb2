/**
 * Documents and comments are written in plain English: the words below read like a translation, and there is always a shorter
 * way to say who or what is meant.
 */
import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { CHECKOUT, markdownFiles, proseLines, type TextLine } from "./markdown.ts";

const WORDS = /\b(?:somebody|nobody|whoever|whatever|shall|anew|for ever|for want of)\b/i;

/** Words that have a better one in this field: frontend, last known good, bisect, offender, drift, unverified. */
const TERMS = /\b(?:front[ -]ends?|last good rules?|halving|piecemeal|culprits?|guilty|foreign hands?)\b/i;

/** In documents: who does it, and what it says. Notes name tests as they are. */
const PASSIVE = /\b(?:(?:is|are|was|were|be|been|being) (?:led|told)|remarks?|what is known of)\b/i;
const NOTES = /^docs\/notes\//;

/** Folders whose comments are looked at; in `src/` also the texts of the program. */
const SOURCES = [
  "src/*/**/*.ts",
  "demo/**/*.ts",
  "test/**/*.ts",
  "testkit/**/*.ts",
  "bench/**/*.ts",
  "scripts/*.{ts,mjs}",
];
const TEST = /\.test\.ts$|-contract\.ts$/;
/** Names the words. */
const THIS_FILE = "test/docs/plain-words.test.ts";

/** A line that names a test: what follows `test(`, `it(` or `describe(`. */
const TITLE = /^\s*(?:test|it|describe)\((["'`].*)$/;

/** The part of a line that is a comment. */
const commentOf = (line: string): string => /^\s*(?:\/?\*|\/\/)(.*)$|\s\/\/ (.*)$/.exec(line)?.[0] ?? "";

function sourceLines(path: string): readonly TextLine[] {
  const lines = readFileSync(join(CHECKOUT, path), "utf8").split("\n");
  const looked = (text: string): string => {
    if (TEST.test(path)) return TITLE.exec(text)?.[1] ?? commentOf(text);
    return path.startsWith("src/") ? text : commentOf(text);
  };
  return lines.map((text, index) => ({ number: index + 1, text: looked(text) }));
}

const withoutCode = (text: string): string => text.replaceAll(/`[^`]*`/g, "");

function findings(path: string, lines: readonly TextLine[], isBad: (text: string) => boolean): readonly string[] {
  return lines.filter(({ text }) => isBad(text)).map(({ number, text }) => `${path}:${number}: ${text.trim()}`);
}

const isBadProse = (text: string): boolean => WORDS.test(withoutCode(text)) || TERMS.test(withoutCode(text));

/** In a comment, backquotes hold a name of the code; elsewhere they hold a text of the program, or a test's name. */
const isBadCode = (line: string): boolean => (commentOf(line) === "" ? WORDS.test(line) : isBadProse(commentOf(line)));

test("documents do without them", () => {
  assert.deepEqual(
    markdownFiles().flatMap((path) => findings(path, proseLines(path), isBadProse)),
    [],
  );
});

test("documents say who does something", () => {
  const isPassive = (text: string): boolean => PASSIVE.test(withoutCode(text));
  const pages = markdownFiles().filter((path) => !NOTES.test(path));
  assert.deepEqual(
    pages.flatMap((path) => findings(path, proseLines(path), isPassive)),
    [],
  );
});

test("comments, the texts of the program, and the names of tests do without them", () => {
  const files = globSync(SOURCES, { cwd: CHECKOUT }).filter((path) => path !== THIS_FILE);
  assert.ok(files.length > 600, "the sources are found at all");
  assert.deepEqual(
    files.flatMap((path) => findings(path, sourceLines(path), isBadCode)),
    [],
  );
});
