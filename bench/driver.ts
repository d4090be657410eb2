/** One driver for all benches: command line, help, root check, verdicts, figures as JSON. */
import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { type Figures, figuresTable, judgeFigures, middleOf, type Verdict } from "./table.ts";
import { inWorker } from "./workers.ts";

interface BenchOption {
  readonly help: string;
  /** How help names its value. @default it is a switch */
  readonly value?: string;
  readonly initial?: string;
  /** Replaces `initial` with `--quick`. */
  readonly quick?: string;
}

export interface Bench {
  /** After `npm run bench --`; empty for the default bench. */
  readonly name: string;
  readonly about: string;
  /** Help by name. @default it has no parts */
  readonly parts?: Readonly<Record<string, string>>;
  /** The one required word, as help names it; {@link Given.parts} has it. @default there is none */
  readonly operand?: string;
  /** `--json`, `--check` and `--help` are added. */
  readonly options: Readonly<Record<string, BenchOption>>;
  /** @default true */
  readonly needsRoot?: boolean;
  /**
   * The tasks for {@link Bench.worker}, by column title. Of several runs of a column, the middle one counts.
   * @throws RangeError for wrong options.
   */
  tasks?(given: Given): Readonly<Record<string, readonly object[]>>;
  /** Targets besides those that figures have. */
  judge?(columns: Readonly<Record<string, Figures>>): readonly Verdict[];
  /** Instead of tasks: measures and prints. */
  run?(given: Given): Promise<Outcome>;
  /** Runs in a process of its own. @returns its figures; undefined if it wrote them itself. */
  worker?(task: never): Promise<unknown>;
  /** Whether it does so without its own network namespace. @default false */
  readonly isOnHost?: boolean;
}

export interface ClusterSize {
  readonly services: number;
  readonly endpointsEach: number;
}

export interface Outcome {
  /** Targets; `--check` fails when one is missed. @default none */
  readonly verdicts?: readonly Verdict[];
  /** For `--json`, besides the verdicts. */
  readonly figures?: object;
}

/** The options that a command line gives. */
export class Given {
  readonly #values: Readonly<Record<string, string | boolean | undefined>>;
  readonly #options: Bench["options"];
  /** The parts named. */
  readonly parts: readonly string[];

  constructor(
    values: Readonly<Record<string, string | boolean | undefined>>,
    options: Bench["options"],
    parts: readonly string[],
  ) {
    this.#values = values;
    this.#options = options;
    this.parts = parts;
  }

  isOn(name: string): boolean {
    return this.#values[name] === true;
  }

  optional(name: string): string | undefined {
    const { initial, quick } = this.#options[name] ?? {};
    const value = this.#values[name] ?? (this.isOn("quick") ? (quick ?? initial) : initial);
    return typeof value === "string" ? value : undefined;
  }

  text(name: string): string {
    const value = this.optional(name);
    if (value === undefined) throw new RangeError(`--${name} is missing`);
    return value;
  }

  list(name: string): readonly string[] {
    return this.text(name).split(",");
  }

  /** A whole number. @param least the smallest sensible one. */
  whole(name: string, least = 1): number {
    return whole(name, this.text(name), least);
  }

  wholes(name: string): readonly number[] {
    return this.list(name).map((text) => whole(name, text, 1));
  }

  /** Cluster sizes, like 3000x4. */
  sizes(name: string): readonly ClusterSize[] {
    return this.list(name).map((text) => {
      const [, services, endpointsEach] = /^(\d+)x(\d+)$/.exec(text) ?? [];
      if (services === undefined) throw new RangeError(`--${name}: ${JSON.stringify(text)} is not like 3000x4`);
      return { services: Number(services), endpointsEach: Number(endpointsEach) };
    });
  }

  /** A number above 0. */
  positive(name: string): number {
    const text = this.text(name);
    const number = Number(text);
    if (!(number > 0 && number < Number.POSITIVE_INFINITY)) {
      throw new RangeError(`--${name}: ${JSON.stringify(text)} is not a positive number`);
    }
    return number;
  }

  /** Some of these words. */
  someOf<T extends string>(name: string, known: readonly T[]): readonly T[] {
    return this.list(name).map((text) => {
      const found = known.find((word) => word === text);
      if (found !== undefined) return found;
      throw new RangeError(`--${name}: ${JSON.stringify(text)} is not one of ${known.join(", ")}`);
    });
  }

  /** One of these words. */
  oneOf<T extends string>(name: string, known: readonly T[]): T {
    const [found, another] = this.someOf(name, known);
    if (found === undefined || another !== undefined)
      throw new RangeError(`--${name}: give one of ${known.join(", ")}`);
    return found;
  }

  /** Whether to measure a part: all of them if none is named. */
  wants(part: string): boolean {
    return this.parts.length === 0 || this.parts.includes(part);
  }
}

function whole(name: string, text: string, least: number): number {
  const number = Number(text);
  if (Number.isInteger(number) && number >= least) return number;
  throw new RangeError(`--${name}: ${JSON.stringify(text)} is not a whole number of at least ${least}`);
}

/** Runs a bench. @returns the exit status. Rejects with TypeError or RangeError for a wrong command line. */
export async function runBench(bench: Bench, argv: readonly string[]): Promise<number> {
  const { parts = {}, operand } = bench;
  const options = {
    ...Object.fromEntries(
      Object.entries(bench.options).map(([name, { value }]) => [name, { type: typeOf(value) }] as const),
    ),
    json: { type: "string" },
    check: { type: "boolean" },
    help: { type: "boolean" },
  } as const;
  const allowPositionals = (bench.parts ?? operand) !== undefined;
  const { values, positionals } = parseArgs({ args: [...argv], allowPositionals, options });
  if (values.help === true) {
    console.log(usageOf(bench));
    return 0;
  }
  if (operand !== undefined && positionals.length !== 1) throw new RangeError(`give one ${operand}`);
  const unknown = operand === undefined && positionals.find((name) => !Object.hasOwn(parts, name));
  if (typeof unknown === "string") {
    throw new RangeError(`${JSON.stringify(unknown)} is not one of the parts ${Object.keys(parts).join(", ")}`);
  }
  if (bench.needsRoot !== false && process.getuid?.() !== 0) {
    throw new Error("network namespaces need root: run the bench as root");
  }
  const given = new Given(values, bench.options, positionals);
  const { verdicts = [], figures = {} } = await (bench.run?.(given) ?? runTasks(bench, given));
  if (verdicts.length > 0) console.log("");
  for (const { passed, text } of verdicts) console.log(`${passed ? "PASS" : "FAIL"}  ${text}`);
  if (values.json !== undefined) {
    writeFileSync(values.json, `${JSON.stringify({ node: process.version, ...figures, verdicts }, null, 2)}\n`);
  }
  return values.check === true && verdicts.some(({ passed }) => !passed) ? 1 : 0;
}

async function runTasks({ name, tasks, judge, isOnHost }: Bench, given: Given): Promise<Outcome> {
  const columns: Record<string, Figures> = {};
  const all = Object.entries(tasks?.(given) ?? {});
  for (const [title, runs] of all) {
    process.stderr.write(`measuring ${title}…\n`);
    const found: Figures[] = [];
    for (const task of runs) found.push(await inWorker(name, task, isOnHost));
    columns[title] = middleOf(found);
    // Long runs report as they go.
    if (all.length > 1) process.stderr.write(`${figuresTable(name, { [title]: middleOf(found) })}\n`);
  }
  console.log(figuresTable(name, columns));
  return { verdicts: [...judgeFigures(columns), ...(judge?.(columns) ?? [])], figures: { figures: columns } };
}

const typeOf = (value: string | undefined) => (value === undefined ? "boolean" : "string");

function usageOf({ name, about, parts, operand, options }: Bench): string {
  const optionRows = Object.entries(options).map(([option, { help, value, initial, quick }]) => {
    const initials = [initial, quick === undefined ? undefined : `with --quick ${quick}`].filter((text) => text);
    const defaults = value !== undefined && initials.length > 0 ? ` (default ${initials.join(", ")})` : "";
    return [`--${option}${value === undefined ? "" : ` ${value}`}`, help + defaults] as const;
  });
  const rows = (all: readonly (readonly [string, string])[]): string => {
    const width = Math.max(...all.map(([word]) => word.length));
    return all.map(([word, help]) => `  ${word.padEnd(width)}  ${help}\n`).join("");
  };
  const partText = parts === undefined ? "" : `\nParts, all of them by default:\n${rows(Object.entries(parts))}`;
  const words = `${operand === undefined ? "" : ` ${operand}`}${parts === undefined ? "" : " [PART…]"}`;
  return `Usage: npm run bench -- ${name === "" ? "[NAME]" : name}${words} [options]

${about}
${partText}
${rows([
  ...optionRows,
  ["--json FILE", "write all figures"],
  ["--check", "exit with status 1 when a target is missed"],
  ["--help", "this text"],
])}`;
}
