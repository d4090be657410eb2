/**
 * The command line of `kube-proxy`, parsed by the rules of upstream's flag library. `node:util` parseArgs does not fit: it takes
 * `-v2` for two options, does not know flags whose optional value must follow `=`, and has its own error texts.
 * Reference start.md §1 steps 1–3, §2.
 */

import type { AnyFlag, Flag } from "../../../contract/config/flag.ts";
import { releaseOf } from "../../../contract/config/release.ts";
import { buildInfo, rawVersionText, versionText } from "../../../program/version.ts";
import { quoteGo } from "../../../text/go-text.ts";
import { UsageError } from "../output.ts";
import { flagHint, refuseOneWord } from "../subcommand-options.ts";
import { COMPATIBILITY, HELP, VERSION } from "./process.ts";
import { FLAGS } from "./table.ts";

/** What a command line asks for. `stderrLines` go to standard error first. */
export type CommandLine =
  | { readonly kind: "help"; readonly stderrLines: readonly string[] }
  | { readonly kind: "print"; readonly text: string; readonly stderrLines: readonly string[] }
  | {
      readonly kind: "run";
      readonly stderrLines: readonly string[];
      readonly flags: FlagValues;
    };

/**
 * Reads a command line.
 *
 * @param args without node and the program's own path.
 * @returns a text to print on standard output and status 0 (`--version`), that help is wanted, or the flags of a run.
 * @throws {@link UsageError} for unknown flags and wrong values (both with a hint), and for positional arguments.
 */
export function parseCommandLine(args: readonly string[]): CommandLine {
  const { values, positional, deprecations: stderrLines } = parseFlags(args);
  if (values.get(HELP)) return { kind: "help", stderrLines };
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

export interface FlagValues {
  isGiven(flag: AnyFlag): boolean;
  /** The texts that the flag was given, in order. */
  textsOf(flag: AnyFlag): readonly string[];
  /** The value of the flag, or its default if it was not given. */
  get<T>(flag: Flag<T>): T;
}

/** The values of several flags, under the same names. */
export type ValuesOf<F> = { readonly [Name in keyof F]: F[Name] extends Flag<infer T> ? T : never };

const byName: ReadonlyMap<string, AnyFlag> = new Map(FLAGS.map((flag) => [flag.name, flag]));
const byShorthand: ReadonlyMap<string, AnyFlag> = new Map(
  FLAGS.flatMap((flag) => (flag.shorthand === undefined ? [] : [[flag.shorthand, flag] as const])),
);

/**
 * Reads the arguments after the program's name.
 *
 * @throws {@link UsageError} (with a hint) for an unknown flag, a missing or a wrong value.
 */
function parseFlags(args: readonly string[]) {
  const texts = new Map<AnyFlag, string[]>();
  const positional: string[] = [];
  const deprecations: string[] = [];

  const set: Set = (flag, text) => {
    const given = texts.get(flag) ?? [];
    const refusal = flag.refusal(given, text);
    const title = flag.shorthand === undefined ? `--${flag.name}` : `-${flag.shorthand}, --${flag.name}`;
    if (refusal !== undefined) fail(`invalid argument ${quoteGo(text)} for ${quoteGo(title)} flag: ${refusal}`);
    texts.set(flag, [...given, text]);
    if (flag.deprecated !== undefined) deprecations.push(`Flag --${flag.name} has been deprecated, ${flag.deprecated}`);
  };

  for (let index = 0; index < args.length; index++) {
    const arg = args[index] ?? "";
    // Takes the next argument as the value, even if it looks like a flag.
    const nextText = (missing: string): string => {
      index += 1;
      return args[index] ?? fail(missing);
    };
    if (arg === "--") {
      positional.push(...args.slice(index + 1));
      break;
    }
    refuseOneWord(arg, (name) => byName.has(name.replaceAll("_", "-")), flagHint("kube-proxy", "", []), "=");
    if (arg.startsWith("--")) setLong(arg, set, nextText);
    else if (arg.startsWith("-") && arg.length > 1) setShort(arg.slice(1), set, nextText);
    else positional.push(arg);
  }
  const textsOf = (flag: AnyFlag): readonly string[] => texts.get(flag) ?? [];
  const values: FlagValues = { isGiven: (flag) => texts.has(flag), textsOf, get: (flag) => flag.read(textsOf(flag)) };
  // Each use of a deprecated flag adds a line for standard error.
  return { values, positional, deprecations };
}

type Set = (flag: AnyFlag, text: string) => void;
type NextText = (missing: string) => string;

/** Upstream prints all flags before such an error, which is then hard to find; a hint line after it does the job. */
function fail(message: string, given = ""): never {
  const names = FLAGS.filter(({ deprecated }) => deprecated === undefined).map(({ name }) => name);
  const hint = removalOf(given) ?? flagHint("kube-proxy", given === "--mode" ? "--proxy-mode" : given, names);
  throw new UsageError(message, hint);
}

/** Flags that kube-proxy no longer has: since when, and what to do (upstream's change logs). */
const REMOVED: readonly (readonly [names: string, release: string, instead: string])[] = [
  ["cleanup-iptables", "v1.15", "It is --cleanup now."],
  ["conntrack-max", "v1.15", "Use --conntrack-min and --conntrack-max-per-core."],
  ["resource-container", "v1.16", "Leave it out."],
  ["cleanup-ipvs", "v1.21", "--cleanup does it always."],
  [
    "add-dir-header alsologtostderr log-backtrace-at log-dir log-file-max-size logtostderr one-output skip-headers skip-log-headers stderrthreshold",
    "v1.26",
    "Lines go to standard error; -v and --vmodule say how many.",
  ],
];

function removalOf(flag: string): string | undefined {
  const name = flag.replace(/^--/, "").replaceAll("_", "-");
  const [, release, instead] = REMOVED.find(([names]) => names.split(" ").includes(name)) ?? [];
  return release === undefined ? undefined : `kube-proxy has no ${flag} since ${release}. ${instead}`;
}

function setLong(arg: string, set: Set, nextText: NextText): void {
  const body = arg.slice(2);
  if (body.startsWith("-") || body.startsWith("=")) fail(`bad flag syntax: ${arg}`);
  const equals = body.indexOf("=");
  const name = equals < 0 ? body : body.slice(0, equals);
  const flag = byName.get(name.replaceAll("_", "-"));
  if (flag === undefined) fail(`unknown flag: --${name}`, `--${name}`);
  if (equals >= 0) set(flag, body.slice(equals + 1));
  else set(flag, flag.bareText ?? nextText(`flag needs an argument: ${arg}`));
}

/** `-v2`, `-v=2`, `-v 2`, and several flags in one word if all but the last take no value (`-hv2`). */
function setShort(word: string, set: Set, nextText: NextText): void {
  for (let rest = word; rest !== ""; ) {
    const letter = rest.slice(0, 1);
    const flag = byShorthand.get(letter);
    if (flag === undefined) fail(`unknown shorthand flag: '${letter}' in -${rest}`);
    if (rest.length > 2 && rest[1] === "=") {
      set(flag, rest.slice(2));
      return;
    }
    if (flag.bareText === undefined) {
      set(flag, rest.length > 1 ? rest.slice(1) : nextText(`flag needs an argument: '${letter}' in -${rest}`));
      return;
    }
    set(flag, flag.bareText);
    rest = rest.slice(1);
  }
}
