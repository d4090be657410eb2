/**
 * A reporter for node:test: one line per passing file, every failure in full where it happens. The closing line is the
 * runner's (run-tests.mjs), which knows of more than tests.
 */
import { relative } from "node:path";
import { stripVTControlCharacters, styleText } from "node:util";

/** What node:test says at the end of every file. */
const TOTALS = /^(?:tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) [\d.]+$/;

const indent = (text) => text.replace(/^/gm, "    ");

function causeOf(error) {
  return error?.cause ?? error;
}

function errorText(error) {
  const cause = causeOf(error);
  return cause instanceof Error ? (cause.stack ?? cause.message) : String(cause);
}

/** `suite › test` from a stack of the names that are open, kept per file because files run side by side. */
function titleOf(path, { name, nesting }) {
  return [...path.slice(0, nesting), name].join(" › ");
}

/** @param source the event stream of node:test. */
export default async function* report(source) {
  const paths = new Map();
  const noise = new Map();
  for await (const { type, data } of source) {
    const key = data.entryFile ?? data.file;
    const file = key === undefined ? "" : relative(process.cwd(), key);
    if (type === "test:start") {
      const path = paths.get(key) ?? [];
      path[data.nesting] = data.name;
      path.length = data.nesting + 1;
      paths.set(key, path);
    } else if (type === "test:stderr" || type === "test:stdout") {
      noise.set(key, ((noise.get(key) ?? "") + data.message).slice(-8000));
    } else if (type === "test:fail") {
      if (data.details.error?.failureType === "subtestsFailed") continue;
      const title = data.file === key && data.name === file ? file : `${file}: ${titleOf(paths.get(key) ?? [], data)}`;
      yield `${styleText("red", "✗")} ${title} (line ${data.line})\n${indent(errorText(data.details.error))}\n`;
      const said = noise.get(key);
      if (said !== undefined) yield `${indent(`the file printed:\n${stripVTControlCharacters(said)}`)}\n`;
      noise.delete(key);
    } else if (type === "test:pass" && data.skip !== undefined) {
      const reason = typeof data.skip === "string" ? `: ${data.skip}` : "";
      yield `${styleText("yellow", "-")} ${file}: ${titleOf(paths.get(key) ?? [], data)} skipped${reason}\n`;
    } else if (type === "test:diagnostic" && !TOTALS.test(data.message)) {
      yield `${indent(data.message)}\n`;
    } else if (type === "test:summary" && data.file !== undefined && data.success) {
      const { passed, skipped } = data.counts;
      const more = skipped > 0 ? `, ${skipped} skipped` : "";
      yield `${styleText("green", "✓")} ${file} ${styleText("dim", `${passed} passed${more}, ${Math.round(data.duration_ms)} ms`)}\n`;
    }
  }
}
