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
