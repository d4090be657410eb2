/** `kube-proxy help [COMMAND]`: the help of each command, with examples. */
import { COMMANDS, findCommand } from "./commands.ts";
import { EXIT_SUCCESS, type Output, UsageError } from "./output.ts";
import { didYouMean } from "./suggestion.ts";

export const HELP_USAGE = `Usage: kube-proxy help [COMMAND]

Prints the help of a command, with examples and exit status.

On a terminal, the commands fit their tables to its width, and colour what is well and what is not; the proxy itself does not:

  --color WHEN         auto (on a terminal), always, never
  NO_COLOR=1           no colour, unless --color=always

Examples:
  kube-proxy help explain
  kube-proxy explain shop/web -f examples --node node-a --color=always | less -R

Exit status: 0; 1 when there is no such command.
`;

/** Runs the command. @param argv without the word `help`. @returns the exit status. @throws UsageError */
export async function help(argv: readonly string[], output: Output): Promise<number> {
  const [word, ...more] = argv;
  if (word === "-h" || word === "--help") {
    output.out(HELP_USAGE);
    return EXIT_SUCCESS;
  }
  if (word === undefined) {
    const commands = COMMANDS.map(({ name, summary }) => `  ${name.padEnd(16)}${summary}`).join("\n");
    output.out(`${HELP_USAGE}\nCommands:\n${commands}\n\nkube-proxy --help lists the flags of the proxy itself.\n`);
    return EXIT_SUCCESS;
  }
  const found = await findCommand(word)?.load();
  if (found === undefined || more.length > 0) {
    const known = COMMANDS.map(({ name }) => name);
    throw new UsageError(
      more.length > 0 ? `help takes one word, got "${argv.join(" ")}"` : `no help for "${word}"`,
      didYouMean(word, known, "kube-proxy help ") ?? `There is help for ${known.join(", ")}.`,
    );
  }
  output.out(found.usage);
  return EXIT_SUCCESS;
}
