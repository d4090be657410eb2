/**
 * `kube-proxy completion bash|zsh|fish`: a shell script that asks this program at each Tab, as kubectl asks its plugin, for the words
 * that may follow.
 */
import { MODES } from "../../modes/registry.ts";
import { COMMANDS } from "./commands.ts";
import { FLAGS } from "./flags/table.ts";
import { COLOURS, EXIT_SUCCESS, type Output, UsageError } from "./output.ts";
import { commandLine, listedOptions, usageOf } from "./subcommand-options.ts";
import { didYouMean } from "./suggestion.ts";

const COMPLETION = commandLine("kube-proxy completion", { throws: true }, [
  `Usage: kube-proxy completion bash|zsh|fish
       kube-proxy completion kubectl WORD…

Prints a script that lets the shell complete commands, flags and their values: at each Tab it asks kube-proxy for the words that may
follow. kubectl asks the same of its plugin by itself, if it finds kubectl_complete-kube_proxy in PATH.

Examples:
  source <(kube-proxy completion bash)
  source <(kube-proxy completion zsh)
  kube-proxy completion fish | source

Exit status: 0; 1 for a shell that is not known.
`,
]);

/** Values of flags that take only a few. */
const VALUES: Readonly<Record<string, readonly string[]>> = {
  "--mode": MODES.map(({ name }) => name),
  "--proxy-mode": MODES.map(({ name }) => name),
  "--family": ["ipv4", "ipv6", "both"],
  "--color": COLOURS,
};

/** @param argv without the word `completion`. @returns the exit status. @throws UsageError */
async function run(argv: readonly string[], output: Output): Promise<number> {
  const [shell = "", ...more] = argv;
  if (shell === "--help" || shell === "-h") {
    output.out(usageOf(COMPLETION));
    return EXIT_SUCCESS;
  }
  if (shell === "kubectl") {
    output.out(await wordsAfter(more));
    return EXIT_SUCCESS;
  }
  const script = Object.hasOwn(SCRIPTS, shell) ? SCRIPTS[shell] : undefined;
  if (script === undefined || more.length > 0) {
    const known = Object.keys(SCRIPTS);
    throw new UsageError(
      `completion needs a shell, one of ${known.join(", ")}${shell === "" ? "" : `; got "${argv.join(" ")}"`}`,
      didYouMean(shell, known) ?? "See 'kube-proxy completion --help'.",
    );
  }
  output.out(script);
  return EXIT_SUCCESS;
}

/** Runs the command. */
export const completion = Object.assign(run, { line: COMPLETION });

/** Directives to kubectl, as the library of its command line numbers them: files may follow; no files. */
const [FILES, NO_FILES] = [":0", ":4"];

/** @param line the words after `kube-proxy`; the last one is to be completed. */
async function wordsAfter(line: readonly string[]): Promise<string> {
  const isFirst = line.length < 2;
  const command = isFirst ? undefined : COMMANDS.find(({ name }) => name === line[0]);
  const options = (await command?.load())?.line;
  const last = line.at(-1) ?? "";
  const [, flag = line.at(-2) ?? "", typed = last] = /^(--[a-z-]+)=(.*)$/.exec(last) ?? [];
  const values = flag === "-o" || flag === "--output" ? options?.forms : VALUES[flag];
  const isOption = typed.startsWith("-");
  const flags =
    options === undefined ? FLAGS.filter(({ deprecated }) => deprecated === undefined) : listedOptions(options);
  const names = isOption ? [...flags.map(({ name }) => `--${name}`).sort(), ...(options ? ["--color"] : [])] : [];
  const commands = COMMANDS.map(({ name, summary }) => `${name}\t${summary}`);
  const words = (values ?? (isFirst && !isOption ? commands : names)).filter((word) => word.startsWith(typed));
  const isFile = !isFirst && values === undefined && !isOption;
  return `${[...words, isFile ? FILES : NO_FILES].join("\n")}\n`;
}

/** Each runs `kube-proxy` as it was typed. */
const SCRIPTS: Readonly<Record<string, string>> = {
  bash: `# bash completion of kube-proxy
_kube_proxy() {
  local word line=() IFS=$'\\n'
  # --flag=value comes as three words
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD}"; do [ "$word" = = ] || line+=("$word"); done
  [ "\${COMP_WORDS[COMP_CWORD]}" = = ] && line+=("")
  COMPREPLY=($("$1" completion kubectl "\${line[@]}" 2>/dev/null | sed '$d' | cut -f1))
}
complete -o default -F _kube_proxy kube-proxy
`,
  zsh: `#compdef kube-proxy
# zsh completion of kube-proxy
_kube_proxy() {
  local -a lines
  lines=("\${(@f)$(\${words[1]} completion kubectl "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  compset -P '--*='
  if [[ \${lines[-1]} == ${FILES} ]]; then _files; return; fi
  lines=("\${(@)lines[1,-2]/$'\\t'/:}")
  _describe word lines
}
compdef _kube_proxy kube-proxy
`,
  fish: `# fish completion of kube-proxy
function __kube_proxy
    set -l line (commandline -opc)
    set -l token (commandline -ct)
    set -l words ($line[1] completion kubectl $line[2..] "$token" 2>/dev/null)
    test "$words[-1]" = ${FILES}; and __fish_complete_path $token
    string replace -r -- '^' (string match -r -- '^--[a-z-]+=|' "$token") $words[..-2]
end
complete -c kube-proxy -f -a '(__kube_proxy)'
`,
};
