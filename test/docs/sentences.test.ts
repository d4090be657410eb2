/** Documents are read to their end: sentences of at most 30 words outside of code, tables and lists of names, pages of at most 2,500. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { CHECKOUT, markdownFiles, proseLines } from "./markdown.ts";

const MOST_WORDS = 30;
const MOST_WORDS_OF_A_PAGE = 2_500;

/** `npm run docs` writes it. */
const GENERATED = "docs/commands.md";

/** Pages that are not read from one end to the other: what comments cite, notes, history. */
const LOOKED_UP = /^docs\/(?:reference|notes)\/|^CHANGELOG\.md$/;

/** Paragraphs and items of lists, each in one line. A table, a heading, a picture or a line of links begins another. */
function paragraphsOf(path: string): readonly string[] {
  const paragraphs: string[] = [];
  let before = 0;
  for (const { number, text } of proseLines(path)) {
    const isProse = !/^\s*(?:$|\||#|<|!\[)/.test(text) && !text.includes(" · ");
    if (!isProse) continue;
    const begins = number !== before + 1 || /^\s*(?:[-*]|\d+\.) /.test(text);
    if (begins) paragraphs.push(text);
    else paragraphs.push(`${paragraphs.pop() ?? ""} ${text}`);
    before = number;
  }
  return paragraphs;
}

/** Code is a word, and so is a list of code. */
function plainText(paragraph: string): string {
  return paragraph
    .replaceAll(/`[^`]*`/g, "Code")
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replaceAll(/Code(?:(?:,|,? and|,? or|:|;)? Code)+/g, "Code");
}

function sentencesOf(path: string): readonly string[] {
  return paragraphsOf(path).flatMap((paragraph) =>
    plainText(paragraph).split(/(?<=[.!?][)"*]*)\s+(?=["(*]*[\p{Lu}\d])/u),
  );
}

const wordsIn = (sentence: string): number => sentence.split(/\s+/).filter((word) => /[\p{L}\d]/u.test(word)).length;

test("a sentence has at most 30 words", () => {
  const pages = markdownFiles().filter((path) => !LOOKED_UP.test(path));
  const sentences = pages.flatMap((path) => sentencesOf(path).map((sentence) => ({ path, sentence })));
  assert.ok(sentences.length > 100, "the sentences are found at all");
  assert.deepEqual(
    sentences
      .filter(({ sentence }) => wordsIn(sentence) > MOST_WORDS)
      .map(({ path, sentence }) => `${path}: ${wordsIn(sentence)} words: ${sentence}`),
    [],
  );
});

test("a page has at most 2,500 words", () => {
  const pages = markdownFiles().filter((path) => !LOOKED_UP.test(path) && path !== GENERATED);
  const sizes = pages.map((path) => ({ path, words: readFileSync(join(CHECKOUT, path), "utf8").split(/\s+/).length }));
  assert.deepEqual(
    sizes.filter(({ words }) => words > MOST_WORDS_OF_A_PAGE),
    [],
  );
});
