/**
 * A reporter for node:test: one line per passing file, every failure in full where it happens, and shortened once more
 * at the end. The closing line is the runner's (run-tests.mjs), which knows about more than tests.
 */
import { relative } from "node:path";
import { stripVTControlCharacters, styleText } from "node:util";
import { WARM_UP } from "../testkit/batches/run-batch.ts";
import { busyWords } from "../testkit/support/patience.ts";

/** What node:test prints at the end of every file. */
const TOTALS = /^(?:tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) [\d.]+$/;

/** How much of a failure is repeated at the end: the error comes first, the log of what led to it last. */
const [FIRST_LINES, LAST_LINES, LINE_LENGTH] = [40, 19, 400];

/** A message that speaks of time: of a limit, or of a duration. */
const OF_TIME = /\b(?:waited|timed? ?-?out|time limit|killed after|ETIMEDOUT)\b|\d ?m?s\b/i;

/** For a test that time has ended, where the machine has more to do than it can. */
function busyLine(error) {
  const isByTime = error?.failureType === "testTimeoutFailure" || OF_TIME.test(causeOf(error)?.message ?? "");
  const words = isByTime ? busyWords() : undefined;
  return words === undefined ? "" : `\n${words}`;
}

const indent = (text) => text.replace(/^/gm, "    ");

function causeOf(error) {
  return error?.cause ?? error;
}

function errorText(error) {
  const cause = causeOf(error);
  return cause instanceof Error ? (cause.stack ?? cause.message) : String(cause);
}

/** Cuts a text to as many lines as fit in a record that keeps the end of a run. */
function cut(text) {
  const lines = text.split("\n").map((line) => line.slice(0, LINE_LENGTH));
  const left = lines.length - FIRST_LINES - LAST_LINES;
  if (left <= 1) return lines.join("\n");
  return [...lines.slice(0, FIRST_LINES), `… ${left} lines are above …`, ...lines.slice(-LAST_LINES)].join("\n");
}

/** What a run ends with. @param counts of node:test. */
export const closingLine = ({ passed, failed, cancelled = 0, skipped, todo = 0 }) =>
  `${passed} passed, ${failed + cancelled} failed, ${skipped + todo} skipped`;

/**
 * All failures once more, for readers who look at the end of the output first.
 *
 * @param failures as {@link report} has added them.
 */
export const failuresAgain = (failures) =>
  failures.map(({ title, text }) => `${styleText("red", "✗")} ${title}\n${indent(cut(text))}\n`).join("");

function passedLine(file, passed, skipped, durationMs) {
  const more = skipped > 0 ? `, ${skipped} skipped` : "";
  return `${styleText("green", "✓")} ${file} ${styleText("dim", `${passed} passed${more}, ${Math.round(durationMs)} ms`)}\n`;
}

/** What one process has reported so far: for one test file, or the files of a batch. */
class ProcessReport {
  /** The names of the open tests, outermost first. */
  #open = [];
  #noise = "";
  #passed = 0;
  #skipped = 0;

  #path;
  #file;
  #failures;

  /**
   * @param path what node:test was given.
   * @param batch what runs in this process, if it is not a test file itself.
   * @param failures failures are added here.
   */
  constructor(path, batch, failures) {
    this.#path = path;
    this.#failures = failures;
    this.#file = relative(process.cwd(), path);
    this.batch = batch;
  }

  /** The test file, relative to the checkout; for a batch, the open one. */
  get file() {
    return this.batch === undefined ? this.#file : (this.#open[0] ?? this.batch.title);
  }

  start({ name, nesting }) {
    this.#open[nesting] = name;
    this.#open.length = nesting + 1;
    if (this.batch === undefined || nesting > 0) return;
    this.#passed = 0;
    this.#skipped = 0;
  }

  say(message) {
    this.#noise = (this.#noise + message).slice(-8000);
  }

  /** `suite › test`. */
  #title({ name, nesting }) {
    return [...this.#open.slice(this.batch === undefined ? 0 : 1, nesting), name].join(" › ");
  }

  /** Whether this is about the process: it ended in another way than with its last test. */
  #isProcess({ name, nesting }) {
    return nesting === 0 && (name === this.#path || name === this.#file);
  }

  *fail(data) {
    const { failureType } = data.details.error ?? {};
    if (failureType === "subtestsFailed") return;
    const isProcess = this.#isProcess(data);
    const isFile = this.batch !== undefined && data.nesting === 0 && data.name === this.file;
    const title = isProcess || isFile ? this.file : `${this.file}: ${this.#title(data)}`;
    const where = isProcess ? "" : ` (line ${data.line})`;
    const whose =
      isProcess && this.batch !== undefined
        ? `: the process of ${this.batch.title} has ended; its other files follow`
        : where;
    const text = stripVTControlCharacters(errorText(data.details.error)) + busyLine(data.details.error);
    const failure = { title: `${title}${whose}`, text };
    this.#failures.push(failure);
    yield `${styleText("red", "✗")} ${failure.title}\n${indent(failure.text)}\n`;
    if (this.#noise !== "") yield `${indent(`the file printed:\n${stripVTControlCharacters(this.#noise)}`)}\n`;
    this.#noise = "";
  }

  *pass(data) {
    if (data.skip !== undefined) {
      const reason = typeof data.skip === "string" ? `: ${data.skip}` : "";
      this.#skipped += 1;
      yield `${styleText("yellow", "-")} ${this.file}: ${this.#title(data)} skipped${reason}\n`;
    } else if (data.details.type !== "suite") this.#passed += 1;
    else if (this.batch !== undefined && data.nesting === 0 && data.name !== WARM_UP) {
      yield passedLine(this.file, this.#passed, this.#skipped, data.details.duration_ms);
    }
  }

  *end({ success, counts, duration_ms }) {
    if (success && this.batch === undefined) yield passedLine(this.#file, counts.passed, counts.skipped, duration_ms);
  }
}

/**
 * @param source the event stream of node:test.
 * @param batches by the path of the file that runs the batch: `{ title }`.
 * @param failures failed tests are added here: `{ title, text }`.
 */
export default async function* report(source, batches = new Map(), failures = []) {
  const processes = new Map();
  for await (const { type, data } of source) {
    const key = data?.entryFile ?? data?.file;
    if (key === undefined) {
      if (type === "test:diagnostic" && !TOTALS.test(data.message)) yield `${indent(data.message)}\n`;
      continue;
    }
    if (!processes.has(key)) processes.set(key, new ProcessReport(key, batches.get(key), failures));
    const report = processes.get(key);
    if (type === "test:start") report.start(data);
    else if (type === "test:stderr" || type === "test:stdout") report.say(data.message);
    else if (type === "test:fail") yield* report.fail(data);
    else if (type === "test:pass") yield* report.pass(data);
    else if (type === "test:diagnostic" && !TOTALS.test(data.message)) yield `${indent(data.message)}\n`;
    else if (type === "test:summary") yield* report.end(data);
  }
}
