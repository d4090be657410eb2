/**
 * The program. Without a subcommand it is kube-proxy: same flags, same exit statuses. Each command is loaded on demand.
 */

import { writeSync } from "node:fs";
import { attempt } from "../../logging/attempt.ts";
import { escapeLine } from "../../logging/escape.ts";
import { fitLines } from "../../text/fit-lines.ts";
import { COMMANDS, findCommand } from "./commands.ts";
import { EXIT_BAD_INPUT, EXIT_FAILURE, type Output, terminalOf, UsageError, widthOf } from "./output.ts";
import { progressLine } from "./progress.ts";
import { takeColour } from "./subcommand-options.ts";

// Synchronous: work that never waits shows it, too.
const progress = process.stderr.isTTY
  ? progressLine(
      (text) => void attempt(() => writeSync(2, text)),
      () => widthOf(process.stderr) ?? 80,
    )
  : undefined;
const output: Output = {
  out: (text) => {
    progress?.end();
    process.stdout.write(text);
  },
  err: (text) => {
    progress?.end();
    process.stderr.write(fitLines(text, widthOf(process.stderr)));
  },
  progress: progress?.tell,
  waiting: () => process.stdout.writableLength,
};

async function main(argv: readonly string[]): Promise<number> {
  const [name = "", ...rest] = argv;
  const command = findCommand(name);
  if (command !== undefined) {
    const { argv: own, choice = "never" } = colourOf(rest);
    if (own === undefined) return (await command.load()).line.throws === true ? EXIT_FAILURE : EXIT_BAD_INPUT;
    const seen = { ...output, terminal: terminalOf(process.stdout, choice, process.env) };
    if (command.asksDaemon === true && own.some((word) => /^--(node\b|all-nodes$)/.test(word))) {
      const { isForNodes, onNodes } = await import("./on-nodes.ts");
      if (isForNodes(name, own, process.env)) return await onNodes(name, own, seen);
    }
    return await (await command.load())(own, seen);
  }
  const shown = { ...output, terminal: terminalOf(process.stdout, "never", process.env) };
  if (process.env.KUBE_PROXY_TS_PLUGIN === "1" && !/^--version(?:=|$)/.test(name)) {
    return (await import("./help.ts")).pluginWithoutCommand(argv, shown);
  }
  if (/^[a-z]/.test(name)) await suggestCommand(name);
  return await (await import("./proxy-command.ts")).proxyCommand(argv, shown);
}

/** Returns no arguments after reporting that they are wrong. */
function colourOf(words: readonly string[]): Partial<ReturnType<typeof takeColour>> {
  try {
    return takeColour(words);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    tell(error);
    return {};
  }
}

function tell({ message, hint }: UsageError): void {
  const said = `Error: ${message}\n${hint === undefined ? "" : `${hint}\n`}`;
  output.err(said.split("\n").map(escapeLine).join("\n"));
}

/** @throws UsageError for a word that resembles a command. kube-proxy's own command line rejects other words. */
async function suggestCommand(word: string): Promise<void> {
  const { didYouMean } = await import("./suggestion.ts");
  const names = COMMANDS.map(({ name }) => name);
  const hint = didYouMean(word, names, "kube-proxy ");
  if (hint !== undefined) throw new UsageError(`unknown command "${word}" for "kube-proxy"`, hint);
}

// SIGUSR1 would start a debugger that anything on the node can talk to; bin/kube-proxy switches that off as well.
process.on("SIGUSR1", () => {});

// The reader of our output may stop reading (`| head`): that is not a failure.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") process.exit(0);
  tell(new UsageError(`the answer cannot be written: ${error.message}`));
  process.exit(EXIT_FAILURE);
});

// No top-level `await`: in the bundle this module is part of a script (launch.ts).
main(process.argv.slice(2)).then(
  (status) => {
    process.exitCode = status;
  },
  (error: unknown) => {
    if (!(error instanceof UsageError)) throw error;
    tell(error);
    process.exitCode = EXIT_FAILURE;
  },
);
