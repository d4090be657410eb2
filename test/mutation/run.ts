/**
 * `npm run mutate [-- --lines N] [--seed N] [--under PATH] [FILE:LINE…]`: changes random production lines, one at a time, and sees whether a
 * test fails. The tests nearest to a line run first (those beside it and those that import its file), then all that reach it, nearest
 * first. A survivor is either held by a new test or named in equivalent.json with its reason. Exit status 1 under the wanted score.
 */
import { spawn } from "node:child_process";
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { TEST_ENGINE } from "../../testkit/batches/test-engine.ts";
import { Sources } from "../../testkit/needs/reach.ts";
import { mutantsOf } from "./mutate.ts";

/** A line for the person who runs this. */
const say = (text: string): void => void process.stdout.write(`${text}\n`);

const ROOT = join(import.meta.dirname, "../..");
const WANTED_SCORE = 0.85;
/** For the tests of one stage; a mutant that hangs them is killed by it. */
const STAGE_MS = 240_000;
/** Test files of a stage, nearest first. */
const MOST_FILES = 40;
/** Needs another kernel or machine. */
const ELSEWHERE =
  /\.vm\.test\.ts$|^testkit\/vm|^test\/(?:deploy|windows|page|apiserver|attack)\/|^bench\/|^demo\/run-demo/;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    lines: { type: "string", default: "200" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    under: { type: "string", default: "src" },
  },
});

/** mulberry32: the same lines for the same seed. @returns numbers from 0 to below 1. */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

interface Place {
  readonly file: string;
  /** From 1. */
  readonly line: number;
  readonly mutant: string;
}

const random = randomFrom(Number(values.seed));
const sources = globSync(`${values.under}/**/*.ts`, { cwd: ROOT })
  .concat(values.under.endsWith(".ts") ? [values.under] : [])
  .filter((file) => !/\.test\.ts$|\.d\.ts$|\/testing\/|page\/client/.test(file))
  .sort();

function mutantsIn(file: string, only?: number): Place[] {
  const lines = readFileSync(join(ROOT, file), "utf8").split("\n");
  return lines.flatMap((text, index) =>
    only === undefined || only === index + 1
      ? mutantsOf(text).map((mutant) => ({ file, line: index + 1, mutant: mutant.line }))
      : [],
  );
}

/** One mutant for each line that is drawn. */
function draw(count: number): Place[] {
  const byLine = Map.groupBy(
    sources.flatMap((file) => mutantsIn(file)),
    ({ file, line }) => `${file}:${line}`,
  );
  const places = [...byLine.values()];
  const drawn: Place[] = [];
  while (drawn.length < count && places.length > 0) {
    const [mutants = []] = places.splice(Math.floor(random() * places.length), 1);
    const one = mutants[Math.floor(random() * mutants.length)];
    if (one !== undefined) drawn.push(one);
  }
  return drawn;
}

/** Test files by how many imports lie between them and each module that they reach. */
function distances(tests: readonly string[]): Map<string, Map<string, number>> {
  const found = new Sources(ROOT);
  const all = new Map<string, Map<string, number>>();
  for (const testFile of tests) {
    for (const [file, steps] of found.reachedFrom(testFile)) {
      const reached = all.get(file) ?? new Map<string, number>();
      all.set(file, reached.set(testFile, steps));
    }
  }
  return all;
}

const testFiles = globSync(["{src,test,testkit,demo}/**/*.test.ts"], { cwd: ROOT }).filter(
  (file) => !ELSEWHERE.test(file),
);
const reach = distances(testFiles);

/** A copy of the checkout to break. */
const copy = mkdtempSync(join(tmpdir(), "kpts-mutate-"));
process.on("exit", () => rmSync(copy, { recursive: true, force: true }));
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => process.exit(1));
const tracked = globSync("*", { cwd: ROOT }).filter((name) => !["node_modules", ".git", ".cache"].includes(name));
for (const name of tracked) cpSync(join(ROOT, name), join(copy, name), { recursive: true });
symlinkSync(join(ROOT, "node_modules"), join(copy, "node_modules"));

/** @returns whether all pass; a run that does not end in time has failed. */
function passes(files: readonly string[]): Promise<boolean> {
  return new Promise((done) => {
    const args = ["--test", "--test-concurrency=2", ...TEST_ENGINE.map((word) => word.replace(ROOT, copy)), ...files];
    const child = spawn(process.execPath, args, {
      cwd: copy,
      stdio: "ignore",
      detached: true,
      env: { ...process.env, CI: "" },
    });
    const end = (): void => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
      } catch {
        // It has ended by itself.
      }
    };
    const timer = setTimeout(end, STAGE_MS);
    child.on("close", (status) => {
      clearTimeout(timer);
      done(status === 0);
    });
  });
}

type Outcome = "killed near" | "killed" | "survived" | "no test";

async function outcomeOf({ file, line, mutant }: Place): Promise<Outcome> {
  const path = join(copy, file);
  const text = readFileSync(path, "utf8");
  const lines = text.split("\n");
  lines[line - 1] = mutant;
  writeFileSync(path, lines.join("\n"));
  try {
    const byDistance = [...(reach.get(file) ?? [])].sort(([, one], [, other]) => one - other);
    const isNear = ([test, steps]: readonly [string, number]): boolean => steps <= 1 || dirname(test) === dirname(file);
    const near = byDistance.filter(isNear).map(([test]) => test);
    const wider = byDistance.filter((one) => !isNear(one)).map(([test]) => test);
    if (near.length + wider.length === 0) return "no test";
    for (let from = 0; from < near.length; from += 10)
      if (!(await passes(near.slice(from, from + 10)))) return "killed near";
    const some = wider.slice(0, MOST_FILES);
    for (let from = 0; from < some.length; from += 10)
      if (!(await passes(some.slice(from, from + 10)))) return "killed";
    return "survived";
  } finally {
    writeFileSync(path, text);
  }
}

/** Mutants that no test can tell from the program, by `file: the line, then the mutant`, with the reason. */
const equivalents: Readonly<Record<string, string>> = JSON.parse(
  readFileSync(join(import.meta.dirname, "equivalent.json"), "utf8"),
);

const named = positionals.flatMap((word) => {
  const [file = "", line = ""] = word.split(":");
  return mutantsIn(file, Number(line));
});
const places = named.length > 0 ? named : draw(Number(values.lines));
say(`${places.length} mutants, --seed ${values.seed}`);
const counts = new Map<string, number>();
for (const place of places) {
  const before = readFileSync(join(ROOT, place.file), "utf8").split("\n")[place.line - 1]?.trim() ?? "";
  const key = `${place.file}: ${before} => ${place.mutant.trim()}`;
  const outcome = key in equivalents ? "equivalent" : await outcomeOf(place);
  counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
  if (outcome === "survived" || outcome === "no test")
    say(`${outcome}: ${place.file}:${place.line}\n  - ${before}\n  + ${place.mutant.trim()}`);
}
const judged = places.length - (counts.get("equivalent") ?? 0);
const killed = (counts.get("killed near") ?? 0) + (counts.get("killed") ?? 0);
say([...counts].map(([outcome, count]) => `${outcome}: ${count}`).join(", "));
say(
  `score ${((100 * killed) / Math.max(1, judged)).toFixed(1)} % of ${judged}, wanted ${100 * WANTED_SCORE} %, --seed ${values.seed}`,
);
process.exit(killed >= WANTED_SCORE * judged ? 0 : 1);
