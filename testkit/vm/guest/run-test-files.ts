/**
 * `node run-test-files.ts CONCURRENCY NAMES FILE…`, inside the virtual machine: runs the files, limited to the tests
 * with these NAMES (a JSON list of regular expressions) if there are any, and prints a line for each.
 */
import { relative } from "node:path";
import { run } from "node:test";
import { TEST_ENGINE } from "../../batches/test-engine.ts";
import { missingForTopology } from "../../net/kernel-capabilities.ts";
import { type InnerResult, resultLine } from "../inner-result.ts";

/** Emulated processors need several times as long as the host. */
const FILE_LIMIT_MS = 900_000;
const NOISE_KEPT = 4000;

/** For a file whose process failed, says how it ended. */
interface TestError extends Error {
  readonly exitCode?: number | null;
  readonly signal?: string | null;
}

/** The events' fields, of which @types/node knows only some. */
interface TestEvent {
  readonly name: string;
  readonly nesting: number;
  /** Where the test is defined. */
  readonly file?: string | undefined;
  /** The file that was run. */
  readonly entryFile?: string | undefined;
  readonly skip?: string | boolean | undefined;
  readonly todo?: string | boolean | undefined;
  readonly details: { readonly duration_ms: number; readonly type?: string | undefined; readonly error?: TestError };
}

const [concurrency, names = "[]", ...files] = process.argv.slice(2);
const testNamePatterns = JSON.parse(names) as string[];
const openNames = new Map<string, string[]>();
const noise = new Map<string, string>();

function fileOf({ file, entryFile }: Pick<TestEvent, "file" | "entryFile">): string {
  return entryFile ?? file ?? "";
}

function failureType(error: unknown): unknown {
  return error instanceof Error && "failureType" in error ? error.failureType : undefined;
}

function errorText(error: TestError): string {
  const cause = error.cause ?? error;
  const text = cause instanceof Error ? (cause.stack ?? cause.message) : String(cause);
  const end = error.signal ?? error.exitCode;
  return end === undefined || end === null ? text : `${text} (the process ended with ${end})`;
}

function report(event: TestEvent, failed: boolean): void {
  const { name, nesting, skip, details } = event;
  const file = fileOf(event);
  // Its parts have already been reported; and a suite is not a test.
  if (failureType(details.error) === "subtestsFailed") return;
  if (details.type === "suite" && !failed && skip === undefined) return;
  const path = (openNames.get(file) ?? []).slice(0, nesting);
  const outcome = failed ? "failed" : skip !== undefined ? "skipped" : "passed";
  const said = failed && noise.has(file) ? `\nthe file printed:\n${noise.get(file)}` : "";
  const reason = failed && details.error !== undefined ? errorText(details.error) + said : skip;
  const result: InnerResult = {
    file: relative(process.cwd(), file),
    title: [...path, name].join(" › "),
    outcome,
    durationMs: details.duration_ms,
    ...(typeof reason === "string" && { reason }),
  };
  process.stdout.write(resultLine(result));
}

process.env.KPTS_MISSING = JSON.stringify(await missingForTopology());
const stream = run({
  files,
  concurrency: Number(concurrency),
  timeout: FILE_LIMIT_MS,
  execArgv: [...TEST_ENGINE],
  ...(testNamePatterns.length > 0 && { testNamePatterns }),
});
stream.on("test:start", (event) => {
  const { name, nesting } = event;
  const file = fileOf(event);
  const names = openNames.get(file) ?? [];
  names[nesting] = name;
  names.length = nesting + 1;
  openNames.set(file, names);
});
for (const type of ["test:stdout", "test:stderr"] as const) {
  stream.on(type, (event) => {
    const file = fileOf(event);
    noise.set(file, `${noise.get(file) ?? ""}${event.message}`.slice(-NOISE_KEPT));
  });
}
stream.on("test:pass", (event) => report(event, false));
stream.on("test:fail", (event) => {
  report(event, true);
  process.exitCode = 1;
});
stream.resume();
