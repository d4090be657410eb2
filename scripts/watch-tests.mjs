/**
 * `npm run watch -- FILE|FOLDER… [--test-name-pattern=REGEXP]`: runs test files now, and again whenever one of them or a module that it
 * imports changes. Ends with Ctrl-C.
 */
import { existsSync, statSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { run } from "node:test";
import { fileURLToPath } from "node:url";
import { TEST_ENGINE } from "../testkit/batches/test-engine.ts";
import { allTestFiles, filesBelow, meant } from "./test-files.mjs";
import { needsOf, provide } from "./test-needs.mjs";
import report, { closingLine } from "./test-report.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const args = process.argv.slice(2).filter((arg) => arg !== "--");
const NAMES = "--test-name-pattern=";
const testNamePatterns = args.filter((arg) => arg.startsWith(NAMES)).map((arg) => arg.slice(NAMES.length));
const unknown = args.filter((arg) => arg.startsWith("-") && !arg.startsWith(NAMES));
const places = args.filter((arg) => !arg.startsWith("-")).map((path) => meant(root, path));
const files = filesBelow(allTestFiles(root), places);
if (unknown.length > 0 || files.length === 0) {
  console.error(
    unknown.length > 0
      ? `unknown: ${unknown.join(" ")}; known: ${NAMES}REGEXP and paths`
      : `no test file under ${args.join(" ") || "nothing: npm run watch -- FILE|FOLDER…"}`,
  );
  process.exit(1);
}
// Once: bin/kube-proxy runs edited sources as they are.
await provide(root, needsOf(root, files));

/** A folder also stands for files that are added to it. */
const patternOf = (place) => (existsSync(place) && statSync(place).isDirectory() ? join(place, "**/*.test.ts") : place);
const stream = run({
  watch: true,
  cwd: root,
  globPatterns: places.map((place) => relative(root, patternOf(place))),
  execArgv: TEST_ENGINE,
  ...(testNamePatterns.length > 0 && { testNamePatterns }),
});
/** The events, without the summary of each round, which becomes its last line. */
async function* withClosingLines() {
  for await (const event of stream) {
    if (event.type !== "test:summary" || event.data.file !== undefined) yield event;
    else console.log(`${closingLine(event.data.counts)}; waiting for a change (Ctrl-C ends)`);
  }
}
for await (const text of report(withClosingLines())) process.stdout.write(text);
