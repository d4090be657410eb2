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

/** Folders whose comments are looked at; what `NOT_YET` names still has such words. */
const SOURCES = ["src/*/**/*.ts", "demo/**/*.ts", "testkit/**/*.ts"];
const NOT_YET = /^src\/(?:dataplane\/|sync\/backend\.ts$)/;
const TEST = /\.test\.ts$|-contract\.ts$/;

/** What a line says as a comment; texts of the program are not prose. */
const commentOf = (line: string): string => /^\s*(?:\/?\*|\/\/)(.*)$|\s\/\/ (.*)$/.exec(line)?.[0] ?? "";

function sourceLines(path: string): readonly TextLine[] {
  const lines = readFileSync(join(CHECKOUT, path), "utf8").split("\n");
  return lines.map((line, index) => ({ number: index + 1, text: commentOf(line) }));
}

function findings(path: string, lines: readonly TextLine[]): readonly string[] {
  return lines
    .filter(({ text }) => WORDS.test(text.replaceAll(/`[^`]*`/g, "")))
    .map(({ number, text }) => `${path}:${number}: ${text.trim()}`);
}

test("documents do without them", () => {
  assert.deepEqual(
    markdownFiles().flatMap((path) => findings(path, proseLines(path))),
    [],
  );
});

test("comments do without them", () => {
  const files = globSync(SOURCES, { cwd: CHECKOUT }).filter((path) => !NOT_YET.test(path) && !TEST.test(path));
  assert.ok(files.length > 300, "the sources are found at all");
  assert.deepEqual(
    files.flatMap((path) => findings(path, sourceLines(path))),
    [],
  );
});
