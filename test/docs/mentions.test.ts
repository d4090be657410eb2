/** What documents name is there: files and folders of the repository, npm scripts, commands of the program. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";
import { PROCESS_FLAGS } from "../../src/tools/cli/flags/process.ts";
import { CHECKOUT, markdownFiles } from "./markdown.ts";

/** History names what was there; it need not be there now. */
const HISTORY = new Set(["CHANGELOG.md"]);

/** What documents may name before it exists: made by a build, an install or a user. */
const MADE = /^(?:dist|node_modules|\.cache|coverage)(?:\/|$)/;

interface Mention {
  readonly where: string;
  readonly text: string;
}

/** Code in a document: what stands in backquotes, and the lines of fenced blocks. */
function codeOf(path: string): readonly Mention[] {
  let isFenced = false;
  return readFileSync(join(CHECKOUT, path), "utf8")
    .split("\n")
    .flatMap((line, index) => {
      const where = `${path}:${index + 1}`;
      if (/^\s*```/.test(line)) {
        isFenced = !isFenced;
        return [];
      }
      if (isFenced) return [{ where, text: line }];
      return [...line.matchAll(/`([^`]+)`/g)].map(([, text = ""]) => ({ where, text }));
    });
}

const tracked = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard"], {
  cwd: CHECKOUT,
  encoding: "utf8",
})
  .trim()
  .split("\n");
const paths = new Set(tracked.flatMap((path) => parentsOf(path)));
const names = new Set(tracked.map((path) => basename(path)));
const topFolders = new Set(tracked.filter((path) => path.includes("/")).map((path) => path.split("/", 1)[0] ?? ""));
const sourceFolders = new Set(readdirSync(join(CHECKOUT, "src")));
const documents = markdownFiles().filter((path) => !HISTORY.has(path));
const mentions = documents.flatMap(codeOf);

/** `a`, `a/b` and `a/b/c.ts` for the last of them. */
function parentsOf(path: string): readonly string[] {
  const parts = path.split("/");
  return parts.map((_, index) => parts.slice(0, index + 1).join("/"));
}

/** Whether a word of code is meant as a file of this repository: its full path, one inside of `src/`, or a name. */
function isOurs(word: string): boolean {
  const [first = ""] = word.split("/", 1);
  if (word.includes("/") && topFolders.has(first)) return true;
  return /\.(?:ts|mjs)$/.test(word) && (!word.includes("/") || sourceFolders.has(first));
}

function exists(word: string): boolean {
  const path = word.replace(/\/$/, "");
  if (paths.has(path) || paths.has(`src/${path}`)) return true;
  return !path.includes("/") && names.has(path);
}

/** Words that could be paths, without what a pattern, a placeholder or a sentence adds. */
function wordsOf({ text }: Mention): readonly string[] {
  return text
    .split(/[\s"'=|(),;]+/)
    .map((word) => word.replace(/^\.\//, "").replace(/[.:]+$/, ""))
    .filter((word) => word !== "" && !/[<>*{}…$^\\]|^[-/@.]|^x\.test\.ts$/.test(word));
}

test("files and folders that documents name exist", () => {
  const words = mentions.flatMap((mention) => wordsOf(mention).map((text) => ({ where: mention.where, text })));
  const ours = words.filter(({ text }) => isOurs(text) && !MADE.test(text));
  assert.ok(ours.length > 150, "the mentions are found at all");
  assert.deepEqual(
    ours.filter(({ text }) => !exists(text)),
    [],
  );
});

test("npm scripts that documents name exist", () => {
  const { scripts }: { scripts: Record<string, string> } = JSON.parse(
    readFileSync(join(CHECKOUT, "package.json"), "utf8"),
  );
  const named = mentions.flatMap(({ where, text }) =>
    [...text.matchAll(/\bnpm (?:run ([\w:-]+)|(start|test)\b)/g)].map(([, run, short]) => ({
      where,
      text: run ?? short ?? "",
    })),
  );
  assert.ok(named.length > 20, "the mentions are found at all");
  assert.deepEqual(
    named.filter(({ text }) => !(text in scripts)),
    [],
  );
});

test("commands of kube-proxy that documents name exist", () => {
  const known = new Set(
    [...readFileSync(join(CHECKOUT, "docs/commands.md"), "utf8").matchAll(/^#+ .*kube-proxy ([a-z-]+)/gm)].map(
      ([, name]) => name,
    ),
  );
  assert.ok(known.has("render"), "the commands are found at all");
  const COMMAND = /(?:bin\/|npx )kube-proxy(?:-ts)? ([a-z][a-z-]+)|^kube-proxy ([a-z][a-z-]+)(?= -)/g;
  const named = mentions.flatMap(({ where, text }) =>
    [...text.matchAll(COMMAND)].map(([, run, bare]) => ({ where, text: run ?? bare ?? "" })),
  );
  assert.ok(named.length > 5, "the mentions are found at all");
  assert.deepEqual(
    named.filter(({ text }) => !known.has(text)),
    [],
  );
});

test("messages that operators find in the log are quoted as the program writes them", () => {
  const sources = tracked.filter((path) => /^src\/.*\.ts$/.test(path) && !/\.test\.ts$|\/testing\//.test(path));
  const written = sources.map((path) => readFileSync(join(CHECKOUT, path), "utf8")).join("\n");
  const quoted = documents
    .filter((path) => /^docs\/[a-z-]+\.md$/.test(path) && path !== "docs/commands.md")
    .flatMap((path) =>
      [...readFileSync(join(CHECKOUT, path), "utf8").matchAll(/`([A-Z][a-z]+\s[^`]*\s[^`]*)`/g)].map(
        ([, text = ""]) => ({
          path,
          text: text.replaceAll(/\s+/g, " "),
        }),
      ),
    );
  assert.ok(quoted.length >= 10, "the messages are found at all");
  assert.deepEqual(
    // Modes say who did what: "Another program" comes from one place, what it did from another.
    quoted.filter(({ text }) => !written.includes(text.replace(/^Another program /, ""))),
    [],
  );
});

test("the page on configuration names all flags that count beside --config", () => {
  const guide = readFileSync(join(CHECKOUT, "docs/configuration.md"), "utf8");
  const [, named = ""] =
    /With `--config`, as upstream, only these flags(.*?)\. Others? that are given/s.exec(guide.replaceAll("\n", " ")) ??
    [];
  const beside = PROCESS_FLAGS.filter(({ help }) => /together with --config|also with --config/.test(help));
  assert.ok(beside.length > 5, "the flags are found at all");
  assert.deepEqual(
    beside.map(({ name }) => name).filter((name) => !named.includes(`\`--${name}\``)),
    [],
  );
});
