/** `kube-proxy completion bash|zsh|fish`: a shell script; and what kubectl asks its plugin for. Made from the commands, their help texts and the flags. */
import { MODES } from "../../modes/registry.ts";
import { COMMANDS } from "./commands.ts";
import { FLAGS } from "./flags/table.ts";
import { COLOURS, EXIT_SUCCESS, type Output, UsageError } from "./output.ts";
import { commandLine, listedOptions, usageOf } from "./subcommand-options.ts";
import { didYouMean } from "./suggestion.ts";

export const COMPLETION = commandLine("kube-proxy completion", {}, [
  `Usage: kube-proxy completion bash|zsh|fish
       kube-proxy completion kubectl WORD…

Prints a script that lets the shell complete commands, flags and their values. kubectl completes the same of its plugin by itself, if
it finds kubectl_complete-kube_proxy in PATH: that asks for the words that may follow.

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

interface Words {
  /** Values of `-o` and `--output`, by command; none if it takes a file. */
  readonly forms: ReadonlyMap<string, readonly string[]>;
  /** Flags by command; the empty name stands for kube-proxy itself. */
  readonly flags: ReadonlyMap<string, readonly string[]>;
  readonly commands: readonly { readonly name: string; readonly summary: string }[];
}

/** Runs the command. @param argv without the word `completion`. @returns the exit status. @throws UsageError */
export async function completion(argv: readonly string[], output: Output): Promise<number> {
  const [shell = "", ...more] = argv;
  if (shell === "--help" || shell === "-h") {
    output.out(usageOf(COMPLETION));
    return EXIT_SUCCESS;
  }
  if (shell === "kubectl") {
    output.out(wordsForKubectl(await wordsOf(), more));
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
  output.out(script(await wordsOf()));
  return EXIT_SUCCESS;
}

async function wordsOf(): Promise<Words> {
  const own = FLAGS.filter(({ deprecated }) => deprecated === undefined).map(({ name }) => `--${name}`);
  const lines = await Promise.all(COMMANDS.map(async ({ name, load }) => ({ ...(await load()).line, name })));
  const flags = lines.map((line): [string, readonly string[]] => {
    const names = listedOptions(line).map(({ name }) => `--${name}`);
    return [line.name, [...names.sort(), "--color"]];
  });
  const forms = lines.flatMap(({ name, forms = [] }) => (forms.length > 0 ? [[name, forms] as const] : []));
  return { flags: new Map([["", own.sort()], ...flags]), forms: new Map(forms), commands: COMMANDS };
}

/** Directives to kubectl, as the library of its command line numbers them: files may follow; no files. */
const [FILES, NO_FILES] = [":0", ":4"];

/** @param line the words after `kubectl kube-proxy`; the last one is to be completed. */
function wordsForKubectl({ commands, flags, forms }: Words, line: readonly string[]): string {
  const [command = ""] = line;
  const last = line.at(-1) ?? "";
  const [, flag = line.at(-2) ?? "", typed = last] = /^(--[a-z-]+)=(.*)$/.exec(last) ?? [];
  const values = flag === "-o" || flag === "--output" ? forms.get(command) : VALUES[flag];
  const isOption = typed.startsWith("-");
  const words =
    line.length < 2
      ? commands.map(({ name, summary }) => ({ name, text: `${name}\t${summary}` }))
      : (values ?? (isOption ? (flags.get(command) ?? []) : [])).map((name) => ({ name, text: name }));
  const fitting = words.filter(({ name }) => name.startsWith(typed)).map(({ text }) => text);
  const isFile = line.length > 1 && values === undefined && !isOption;
  return `${[...fitting, isFile ? FILES : NO_FILES].join("\n")}\n`;
}

const SCRIPTS: Readonly<Record<string, (words: Words) => string>> = {
  bash: bashScript,
  zsh: zshScript,
  fish: fishScript,
};

function casesOf({ flags }: Words, assign: (words: string) => string): string {
  return [...flags]
    .filter(([name]) => name !== "")
    .map(([name, own]) => `    ${name}) ${assign(own.join(" "))} ;;`)
    .join("\n");
}

function formCasesOf({ forms }: Words, assign: (words: string) => string): string {
  return [...forms].map(([name, list]) => `      ${name}) ${assign(list.join(" "))} ;;`).join("\n");
}

function bashScript(words: Words): string {
  const commands = words.commands.map(({ name }) => name).join(" ");
  const values = Object.entries(VALUES).map(([flag, list]) => `    ${flag}) words="${list.join(" ")}" ;;`);
  return `# bash completion of kube-proxy
_kube_proxy() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD-1]} words=
  # --flag=value comes as three words
  if [ "$current" = = ]; then current=; elif [ "$previous" = = ]; then previous=\${COMP_WORDS[COMP_CWORD-2]}; fi
  case $previous in
${values.join("\n")}
    -o|--output) case \${COMP_WORDS[1]} in
${formCasesOf(words, (list) => `words="${list}"`)}
    esac ;;
    *) case \${COMP_WORDS[1]} in
${casesOf(words, (list) => `words="${list}"`)}
    *) words="${words.flags.get("")?.join(" ")}"; [ "$COMP_CWORD" -eq 1 ] && words="${commands} $words" ;;
    esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _kube_proxy kube-proxy
`;
}

function zshScript(words: Words): string {
  const commands = words.commands.map(({ name, summary }) => `    '${name}:${quoted(summary)}'`);
  const values = Object.entries(VALUES).map(([flag, list]) => `    ${flag}) compadd -- ${list.join(" ")}; return ;;`);
  return `#compdef kube-proxy
# zsh completion of kube-proxy
_kube_proxy() {
  local -a commands
  commands=(
${commands.join("\n")}
  )
  local previous=\${words[CURRENT-1]}
  if [[ \${words[CURRENT]} == --*=* ]]; then previous=\${words[CURRENT]%%=*}; compset -P '*='; fi
  case $previous in
${values.join("\n")}
    -o|--output) case \${words[2]} in
${formCasesOf(words, (list) => `compadd -- ${list}`)}
      *) _files ;;
    esac
    return ;;
  esac
  if [[ $CURRENT -eq 2 && \${words[2]} != -* ]]; then _describe command commands; return; fi
  if [[ \${words[CURRENT]} != -* ]]; then _files; return; fi
  case \${words[2]} in
${casesOf(words, (list) => `compadd -- ${list}`)}
    *) compadd -- ${words.flags.get("")?.join(" ")} ;;
  esac
}
compdef _kube_proxy kube-proxy
`;
}

function fishScript({ flags, forms, commands }: Words): string {
  const lines = ["# fish completion of kube-proxy"];
  for (const { name, summary } of commands) {
    lines.push(`complete -c kube-proxy -n __fish_use_subcommand -f -a ${name} -d '${quoted(summary)}'`);
  }
  for (const [name, own] of flags) {
    const condition = name === "" ? "__fish_use_subcommand" : `'__fish_seen_subcommand_from ${name}'`;
    for (const flag of own) {
      const isOutput = flag === "--output";
      const values = isOutput ? forms.get(name) : VALUES[flag];
      const list = values === undefined ? "" : ` -x -a '${values.join(" ")}'`;
      lines.push(`complete -c kube-proxy -n ${condition} -l ${flag.slice(2)}${isOutput ? " -s o -r" : ""}${list}`);
    }
  }
  return `${lines.join("\n")}\n`;
}

/** Makes a text safe within the single quotes of a shell. */
function quoted(text: string): string {
  return text.replaceAll("'", "");
}
