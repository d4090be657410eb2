/**
 * The command line of `kube-proxy`: from arguments to what is to be done. Reference start.md §1 steps 1–3, §2.
 */

import { releaseOf } from "../../config/release.ts";
import { buildInfo, rawVersionText, versionText } from "../../program/version.ts";
import { quoteGo } from "../../text/go-text.ts";
import { UsageError } from "../exit.ts";
import { helpText } from "./help.ts";
import { type FlagValues, parseFlags } from "./parse.ts";
import { COMPATIBILITY, HELP, VERSION } from "./process.ts";

/** What a command line asks for. `stderrLines` are printed first, on standard error. */
export type CommandLine =
  | { readonly kind: "print"; readonly text: string; readonly stderrLines: readonly string[] }
  | {
      readonly kind: "run";
      readonly stderrLines: readonly string[];
      readonly flags: FlagValues;
    };

/**
 * Reads a command line. Pure but for the build facts of the process.
 *
 * @param args without node and the program's own path.
 * @returns a text to print on standard output and status 0 (`--help`, `--version`), or the flags of a run.
 * @throws {@link UsageError} for unknown flags and wrong values (both with a hint), and for positional arguments.
 */
export function parseCommandLine(args: readonly string[]): CommandLine {
  const { values, positional, deprecations: stderrLines } = parseFlags(args);
  if (values.get(HELP)) return { kind: "print", text: helpText(), stderrLines };
  if (positional.some((arg) => arg !== "")) {
    const got = `[${positional.map(quoteGo).join(" ")}]`;
    throw new UsageError(`"kube-proxy" does not take any arguments, got ${got}`);
  }
  const compatibility = COMPATIBILITY.shown(values.textsOf(COMPATIBILITY));
  const { gitVersion = releaseOf({ compatibility }).version, print } = values.get(VERSION);
  if (print === "raw") return { kind: "print", text: rawVersionText(buildInfo(gitVersion)), stderrLines };
  if (print === "short") return { kind: "print", text: versionText(gitVersion), stderrLines };
  return { kind: "run", flags: values, stderrLines };
}
