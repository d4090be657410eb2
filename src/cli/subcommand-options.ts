/** Options of the commands beside kube-proxy's own command line, with errors that say what to type. Pure. */
import type { ParseArgsOptionsConfig } from "node:util";
import { parseArgs } from "../kernel/node-util.ts";
import { UsageError } from "./exit.ts";
import { nearestWord } from "./suggestion.ts";

/** Reads a command's arguments. @param command as typed, for the hint. @throws UsageError */
export function parseOptions<const T extends ParseArgsOptionsConfig>(
  command: string,
  argv: readonly string[],
  options: T,
) {
  return parseWords(command, argv, options, false).values;
}

/** The same for a command that also takes words. @param allowPositionals whether words may stand between the flags. */
export function parseWords<const T extends ParseArgsOptionsConfig>(
  command: string,
  argv: readonly string[],
  options: T,
  allowPositionals = true,
) {
  try {
    return parseArgs({ args: [...argv], options, allowPositionals });
  } catch (error) {
    throw refusal(command, error, Object.keys(options));
  }
}

/**
 * Takes some flags out of a command line that another program reads.
 *
 * @returns the flags' values, and the words that are left for that program. @throws UsageError for a flag without its value.
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
  return { values: parseOptions("", taken, options), rest: [...rest.values()] };
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

/** The line after an error about a flag: what was probably meant, and where all flags are explained. */
export function flagHint(command: string, given: string, names: Iterable<string>): string {
  const nearest = given.startsWith("--") ? nearestWord(given.slice(2), names) : undefined;
  const help = `see '${command} --help'`;
  return nearest === undefined ? `S${help.slice(1)}.` : `Did you mean --${nearest}? Otherwise ${help}.`;
}
