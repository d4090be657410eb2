/** The commands besides kube-proxy's own command line: their options, with errors that say what to type, and how they run and end. */
import type { ParseArgsOptionsConfig } from "node:util";
import { parseArgs } from "../kernel/node-util.ts";
import { fitHelp } from "../text/fit-lines.ts";
import { quoteGo } from "../text/go-text.ts";
import { COLOURS, EXIT_SUCCESS, inspecting, type Output, UsageError } from "./output.ts";
import { nearestWord } from "./suggestion.ts";

/** The values of `--output` in most commands, the default first. */
export const TEXT_OR_JSON = ["text", "json"];

type Read = { readonly values: { readonly help?: boolean | undefined; readonly output?: string } };

interface Call<R extends Read> {
  readonly argv: readonly string[];
  readonly output: Output;
  readonly usage: string;
  /** The values of `--output`. @default any */
  readonly forms?: readonly string[];
  readonly read: (argv: readonly string[]) => R;
}

/** Runs a command whose exit status 1 is an answer: prints its help, and returns status 2 if its flags are wrong. */
export async function runCommand<R extends Read>(
  { argv, output, usage, forms, read }: Call<R>,
  run: (options: R) => Promise<number>,
): Promise<number> {
  return await inspecting(output, async () => {
    const options = read(argv);
    const { help, output: form = "" } = options.values;
    if (help === true) {
      output.out(fitHelp(usage, output.terminal?.width));
      return EXIT_SUCCESS;
    }
    if (forms !== undefined && !forms.includes(form) && form !== "wide") {
      const hint = form === "svg" ? "Pictures are on the page of --inspect-bind-address." : undefined;
      throw new UsageError(`--output must be ${forms.join(forms.length > 2 ? ", " : " or ")}, got "${form}"`, hint);
    }
    return await run(options);
  });
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

/** Makes a parser for a command that takes only flags; it throws UsageError. @param command as typed, for hints. */
export function flagReader<const T extends ParseArgsOptionsConfig>(command: string, options: T) {
  return (argv: readonly string[]) => readWords(command, argv, options, false);
}

/** The same for a command that also takes words. */
export function wordReader<const T extends ParseArgsOptionsConfig>(command: string, options: T) {
  return (argv: readonly string[]) => readWords(command, argv, options, true);
}

const ALL_NAMESPACES: ReadonlySet<string> = new Set(["-A", "--all-namespaces"]);

function readWords<const T extends ParseArgsOptionsConfig>(
  command: string,
  argv: readonly string[],
  options: T,
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
export function takeOptions<const T extends ParseArgsOptionsConfig>(argv: readonly string[], options: T) {
  const args = [...argv];
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
  return { values: readWords("", taken, options, false).values, rest: [...rest.values()] };
}

/** Takes `--color` out of a command's arguments. @throws UsageError */
export function takeColour(argv: readonly string[]) {
  const { values, rest } = takeOptions(argv, { color: { type: "string", default: "auto" } });
  const choice = COLOURS.find((one) => one === values.color);
  if (choice !== undefined) return { argv: rest, choice };
  throw new UsageError(`--color must be ${COLOURS.join(", ")}, got "${values.color}"`, "For example: --color=always");
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
      return new UsageError(error.message.replaceAll("\n", " "), flagHint(command, "", names));
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
