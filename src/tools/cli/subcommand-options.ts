/** The commands besides kube-proxy's own command line: their options, with errors that say what to type, and how they run and end. */
import type { ParseArgsOptionsConfig } from "node:util";
import { parseArgs } from "../../async/node-util.ts";
import { fitHelp } from "../../text/fit-lines.ts";
import { quoteGo } from "../../text/go-text.ts";
import { COLOURS, EXIT_SUCCESS, inspecting, type Output, UsageError } from "./output.ts";
import { nearestWord } from "./suggestion.ts";

/** The values of `--output` in most commands, the default first. */
export const TEXT_OR_JSON = ["text", "json"];

/**
 * Options as help texts write them, with what they mean: `"-f, --filename FILE..."` can be given several times, `"--mode MODE"` once,
 * `"--kernel"` is a switch. An option without a meaning is accepted, and not listed.
 */
export type OptionTable = Readonly<Record<string, string>>;

/** A command's help is texts and tables of options in this order; from the tables come parser, help, completion and manual page. */
export type HelpPart = string | OptionTable;

type Long<Key> = Key extends `-${string}, --${infer Long}` ? Long : Key extends `--${infer Long}` ? Long : never;
type NameOf<Key> = Long<Key> extends `${infer Name} ${string}` ? Name : Long<Key>;
type ValueOf<Key> = Key extends `${string}...`
  ? readonly string[] | undefined
  : Long<Key> extends `${string} ${string}`
    ? string | undefined
    : boolean;
type KeyOf<Part> = Part extends string ? never : keyof Part & string;

/** The values of a command line, by the options' long names. */
export type OptionValues<Part> = { readonly [Key in KeyOf<Part> as NameOf<Key>]: ValueOf<Key> };

/** How a command is called. */
export interface CommandLine<Part extends HelpPart = HelpPart> {
  readonly name: string;
  readonly parts: readonly Part[];
  /** The values of `--output`, the default first. @default any */
  readonly forms?: readonly string[];
  /** Whether it also takes words. @default false */
  readonly takesWords?: boolean;
  /** Whether main.ts says what is wrong, and ends with status 1: 1 is no answer. @default false */
  readonly throws?: boolean;
}

/** The values that a command line gives, and its words. */
export interface ReadLine<Line> {
  readonly values: Line extends CommandLine<infer Part> ? OptionValues<Part> : never;
  readonly positionals: string[];
  /** The value of `--output`, or its default. */
  readonly form: string;
}

/** @param name as it is typed. @param parts of its help, with the options. */
export function commandLine<const Part extends HelpPart>(
  name: string,
  more: Pick<CommandLine, "forms" | "takesWords" | "throws">,
  parts: readonly Part[],
): CommandLine<Part> {
  return { name, parts, ...more };
}

/** The last options of most commands. */
export const FORM_AND_HELP = { "-o, --output FORM": "text, json (default text)", "-h, --help": "this text" };

interface Option {
  /** As the help writes it. */
  readonly label: string;
  readonly name: string;
  readonly meaning: readonly string[];
  readonly parse: ParseArgsOptionsConfig[string];
}

/** What a table says of each option. */
function optionsIn(table: OptionTable): readonly Option[] {
  return Object.entries(table).map(([key, meaning]) => {
    const [, short, name = "", value, multiple] = /^(?:-(\w), )?--([\w-]+)( .*?)?(\.{3})?$/.exec(key) ?? [];
    const type = value === undefined ? ({ type: "boolean", default: false } as const) : ({ type: "string" } as const);
    return {
      label: key.replace(/\.{3}$/, ""),
      name,
      meaning: meaning === "" ? [] : meaning.split("\n").map((line) => line.trimStart()),
      parse: { ...type, ...(short !== undefined && { short }), ...(multiple !== undefined && { multiple: true }) },
    };
  });
}

/** The listed options of a command. */
export function listedOptions({ parts }: CommandLine): readonly Option[] {
  return tablesOf(parts)
    .flatMap(optionsIn)
    .filter(({ meaning }) => meaning.length > 0);
}

function tablesOf(parts: readonly HelpPart[]): readonly OptionTable[] {
  return parts.filter((part) => typeof part !== "string");
}

/** Where meanings begin in a help text. */
const MEANINGS = 31;

/** The text of `--help`. */
export function usageOf({ parts }: CommandLine): string {
  return parts.map((part) => (typeof part === "string" ? part : optionsIn(part).map(optionText).join(""))).join("");
}

function optionText({ label, meaning }: Option): string {
  if (meaning.length === 0) return "";
  const head = label.startsWith("--") ? `      ${label}` : `  ${label}`;
  const text = meaning.join(`\n${" ".repeat(MEANINGS)}`);
  return head.length < MEANINGS ? `${head.padEnd(MEANINGS)}${text}\n` : `${head}\n${" ".repeat(MEANINGS)}${text}\n`;
}

/**
 * A command: reads its words, prints its help, and says what is wrong with them.
 *
 * @param run returns the exit status. @returns runs it; `input` is what `-` reads
 */
export function command<Line extends CommandLine, More extends readonly unknown[]>(
  line: Line,
  run: (read: ReadLine<Line>, output: Output, input: NodeJS.ReadableStream, ...more: More) => Promise<number>,
) {
  const act = async (argv: readonly string[], output: Output, input: NodeJS.ReadableStream, more: More) => {
    const read = readLine(line, argv);
    if (read === "help") {
      output.out(fitHelp(usageOf(line), output.terminal?.width));
      return EXIT_SUCCESS;
    }
    requireForm(line, read.form);
    return await run(read, output, input, ...more);
  };
  const runs = async (argv: readonly string[], output: Output, input?: NodeJS.ReadableStream, ...more: More) => {
    const acting = () => act(argv, output, input ?? process.stdin, more);
    return await (line.throws === true ? acting() : inspecting(output, acting));
  };
  const own: CommandLine = line;
  return Object.assign(runs, { line: own });
}

function requireForm({ forms }: CommandLine, form: string): void {
  const isOfMost = forms === TEXT_OR_JSON;
  // kubectl's word for more columns.
  if (forms === undefined || forms.includes(form) || (isOfMost && form === "wide")) return;
  const hint = isOfMost && form === "svg" ? "Pictures are on the page of --inspect-bind-address." : undefined;
  throw new UsageError(`--output must be ${forms.join(forms.length > 2 ? ", " : " or ")}, got "${form}"`, hint);
}

/** @returns `help` if that is asked for. @throws UsageError */
export function readLine<Line extends CommandLine>(line: Line, argv: readonly string[]): ReadLine<Line> | "help" {
  const { name, parts, forms = [], takesWords = false } = line;
  const { values, positionals } = readWords(name, argv, parserOf(tablesOf(parts)), takesWords);
  if (values.help === true) return "help";
  const form = typeof values.output === "string" ? values.output : (forms[0] ?? "");
  return { values: values as ReadLine<Line>["values"], positionals, form }; // by the same names
}

function parserOf(tables: readonly OptionTable[]): ParseArgsOptionsConfig {
  return Object.fromEntries(tables.flatMap(optionsIn).map(({ name, parse }) => [name, parse]));
}

/** The number that a flag was given. @param what it must be, in words, where not any number will do. @throws UsageError */
export function numberOf(flag: string, text: string, pattern = /^\d{1,9}$/, what = "a number"): number {
  if (pattern.test(text)) return Number(text);
  throw new UsageError(`${flag} must be ${what}, got "${text}"`);
}

/** Runs something that Ctrl-C or SIGTERM ends cleanly. */
export async function untilInterrupted<T>(run: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const stop = new AbortController();
  const end = (): void => stop.abort();
  const signals = ["SIGINT", "SIGTERM"] as const;
  for (const name of signals) process.once(name, end);
  try {
    return await run(stop.signal);
  } finally {
    for (const name of signals) process.off(name, end);
  }
}

const ALL_NAMESPACES: ReadonlySet<string> = new Set(["-A", "--all-namespaces"]);

function readWords(
  command: string,
  argv: readonly string[],
  options: ParseArgsOptionsConfig,
  allowPositionals: boolean,
) {
  // What kubectl's users type: all namespaces are looked at anyway.
  const args = argv.filter((word) => !ALL_NAMESPACES.has(word) || Object.hasOwn(options, "all-namespaces"));
  const isKnown = (name: string): boolean =>
    Object.hasOwn(options, name) || Object.values(options).some(({ short }) => short === name);
  const end = args.indexOf("--");
  for (const word of end < 0 ? args : args.slice(0, end)) refuseOneWord(word, isKnown, flagHint(command, "", []));
  try {
    return parseArgs({ args, options, allowPositionals });
  } catch (error) {
    throw refusal(command, error, Object.keys(options));
  }
}

/** An item of a container's `args` such as `"--v 4"`: no shell separates the value. @param joint of a short flag. @throws UsageError */
export function refuseOneWord(word: string, isFlag: (name: string) => boolean, hint: string, joint = ""): void {
  const [, flag = "", name = "", value = ""] = /^(--?([\w-]+))\s+(.+)$/s.exec(word) ?? [];
  if (!isFlag(name)) return;
  const joined = flag + (flag.startsWith("--") ? "=" : joint) + value.trim();
  throw new UsageError(
    `${quoteGo(word)} is a flag and its value in one word: write ${quoteGo(joined)}, or two words`,
    hint,
  );
}

/**
 * Takes some flags out of a command line whose rest another parser reads.
 *
 * @returns the flags' values, and the remaining words. @throws UsageError for a flag without its value.
 */
export function takeOptions<const Table extends OptionTable>(argv: readonly string[], table: Table) {
  const args = [...argv];
  const options = parserOf([table]);
  const { tokens } = parseArgs({ args, options, allowPositionals: true, strict: false, tokens: true });
  const taken: string[] = [];
  const rest = new Map(args.entries());
  for (const token of tokens) {
    if (token.kind !== "option" || !Object.hasOwn(options, token.name)) continue;
    const { index, name, value, inlineValue } = token;
    if (options[name]?.type === "string" && (value ?? "") === "") throw new UsageError(`--${name} needs a value`);
    for (const at of inlineValue === false ? [index, index + 1] : [index]) {
      const word = rest.get(at);
      if (word !== undefined) taken.push(word);
      rest.delete(at);
    }
  }
  const { values } = readWords("", taken, options, false);
  return { values: values as OptionValues<Table>, rest: [...rest.values()] }; // by the same names
}

/** Takes `--color` out of a command's arguments. @throws UsageError */
export function takeColour(argv: readonly string[]) {
  const {
    values: { color = "auto" },
    rest,
  } = takeOptions(argv, { "--color WHEN": "" });
  const choice = COLOURS.find((one) => one === color);
  if (choice !== undefined) return { argv: rest, choice };
  throw new UsageError(`--color must be ${COLOURS.join(", ")}, got "${color}"`, "For example: --color=always");
}

function refusal(command: string, error: unknown, names: readonly string[]): unknown {
  if (!(error instanceof Error) || !("code" in error)) return error;
  const quoted = /'([^']*)'/.exec(error.message)?.[1] ?? "";
  switch (error.code) {
    case "ERR_PARSE_ARGS_UNKNOWN_OPTION":
      return new UsageError(`unknown flag: ${quoted}`, flagHint(command, quoted, names));
    case "ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL":
      return new UsageError(`${command} takes flags only, got "${quoted}"`, flagHint(command, "", names));
    default:
      return new UsageError(
        error.message.replace(/^.*?'(-[^'<]*?)(?: <value>)?' argument.*$/s, "$1 needs a value").replaceAll("\n", " "),
        flagHint(command, "", names),
      );
  }
}

/** Flags of the daemon that these commands have by another name. */
const DAEMON_WORDS: Readonly<Record<string, string>> = {
  ...{ "--proxy-mode": "mode", "--cluster-cidr": "config", "--detect-local-mode": "config", "--pod-cidr": "config" },
  ...{ "--nodeport-addresses": "config", "--masquerade-all": "config", "--node-name": "node" },
};

/** The hint after an error about a flag: what was probably meant, and where all flags are explained. */
export function flagHint(command: string, given: string, names: Iterable<string>): string {
  const all = [...names];
  const daemons = DAEMON_WORDS[given] ?? "";
  if (all.includes(daemons)) return `The daemon's ${given} is --${daemons} here.`;
  if (given === "--services")
    return "Archives have no explain.json any more: kube-proxy explain SERVICE --dump FOLDER.";
  if (given === "-l" || given === "--selector") return "Labels are not looked at: name a Service, an address or a pod.";
  const nearest = given.startsWith("--") ? nearestWord(given.slice(2), all) : undefined;
  const help = `see '${command} --help'`;
  return nearest === undefined ? `S${help.slice(1)}.` : `Did you mean --${nearest}? Otherwise ${help}.`;
}
