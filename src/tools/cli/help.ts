/** `kube-proxy help [COMMAND]`: the help of each command, with examples. */
import { fitHelp } from "../../text/fit-lines.ts";
import { COMMANDS, findCommand } from "./commands.ts";
import { EXIT_SUCCESS, type Output, UsageError } from "./output.ts";
import { commandLine, usageOf } from "./subcommand-options.ts";
import { didYouMean } from "./suggestion.ts";

const HELP = commandLine("kube-proxy help", { throws: true }, [
  `Usage: kube-proxy help [COMMAND]

Prints the help of a command, with examples and exit status.

On a terminal, the commands fit their tables to its width, and colour what is well and what is not; the proxy itself does not:

  --color WHEN         auto (on a terminal), always, never
  NO_COLOR=1           no colour, unless --color=always

Examples:
  kube-proxy help explain
  kube-proxy explain shop/web -f examples --node node-a --color=always | less -R

Exit status: 0; 1 when there is no such command.
`,
]);

/**
 * `kubectl kube-proxy` without a command that it has. It starts no daemon: that would be a second one beside the node's.
 *
 * @returns the exit status. @throws UsageError for a word that is no command, and for flags before the command
 */
export function pluginWithoutCommand(argv: readonly string[], output: Pick<Output, "out" | "terminal">): number {
  const [first = "--help"] = argv;
  const known = COMMANDS.map(({ name }) => name);
  if (!first.startsWith("-")) {
    const own = "It says what kube-proxy does with Services on a node, and why.";
    const near = didYouMean(first, known, "kubectl kube-proxy ") ?? `Its commands: ${known.join(", ")}.`;
    throw new UsageError(`unknown command "${first}" for "kubectl kube-proxy"`, `${own} ${near}`);
  }
  const at = argv.findIndex((word) => known.includes(word));
  if (at > 0) {
    const inOrder = [...argv.slice(at), ...argv.slice(0, at)].join(" ");
    throw new UsageError(`${first} comes after the command`, `kubectl kube-proxy ${inOrder}`);
  }
  const text = `kubectl kube-proxy says what kube-proxy does with Services on a node, and why.

Usage: kubectl kube-proxy COMMAND [options]

Commands:
${commandList()}

Options come after the command, kubectl's (--context, --kubeconfig, -n) too. kubectl kube-proxy help COMMAND says which there are.

Examples:
  kubectl kube-proxy explain svc/web -n shop
  kubectl kube-proxy status --all-nodes
`;
  output.out(fitHelp(text, output.terminal?.width));
  return EXIT_SUCCESS;
}

function commandList(): string {
  return COMMANDS.map(({ name, summary }) => `  ${name.padEnd(12)}${summary}`).join("\n");
}

/** @param argv without the word `help`. @returns the exit status. @throws UsageError */
async function run(argv: readonly string[], output: Output): Promise<number> {
  const [word, ...more] = argv;
  if (word === "-h" || word === "--help") {
    output.out(fitHelp(usageOf(HELP), output.terminal?.width));
    return EXIT_SUCCESS;
  }
  if (word === undefined) {
    const all = `${usageOf(HELP)}\nCommands:\n${commandList()}\n\nkube-proxy --help lists the flags of the proxy itself.\n`;
    output.out(fitHelp(all, output.terminal?.width));
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
  output.out(fitHelp(usageOf(found.line), output.terminal?.width));
  return EXIT_SUCCESS;
}

/** Runs the command. */
export const help = Object.assign(run, { line: HELP });
