/**
 * docs/commands.md, made from the flags and the usage texts of the program, and the manual pages that package.json names. As a program
 * (`npm run docs`) it writes them;
 * `command-reference.test.ts` fails while the page is not what this makes.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { AnyFlag } from "../../src/contract/config/flag.ts";
import { COMMANDS } from "../../src/tools/cli/commands.ts";
import { PROCESS_FLAGS } from "../../src/tools/cli/flags/process.ts";
import { KERNEL_FLAGS, LOGGING_FLAGS, MODE_FLAGS, NETWORK_FLAGS } from "../../src/tools/cli/flags/table.ts";
import { usageOf } from "../../src/tools/cli/subcommand-options.ts";
import { CHECKOUT } from "./markdown.ts";

/** The page, from the top of the checkout. */
export const COMMAND_REFERENCE = "docs/commands.md";

/** The headings of the page with their flags: together they are all flags that the program has. */
export const FLAG_GROUPS: Readonly<Record<string, readonly AnyFlag[]>> = {
  "Process, cluster and configuration": PROCESS_FLAGS,
  "Network, node ports and servers": NETWORK_FLAGS,
  Modes: MODE_FLAGS,
  Kernel: KERNEL_FLAGS,
  Logging: LOGGING_FLAGS,
};

const INTRODUCTION = `# Commands

This page is generated: \`npm run docs\` writes it again after a flag has changed.

| Command | What it does |
|---|---|
| \`kube-proxy [flags]\` | runs the proxy |
| \`kube-proxy --cleanup\` | removes the rules of every mode, and ends |
| \`kube-proxy --config FILE --write-config-to FILE\` | writes the configuration with all defaults, or says what is wrong with it, and ends |
| \`kube-proxy --version\` | prints the versions, and ends |
${COMMANDS.map(({ name, summary }) => `| \`kube-proxy ${name} …\` | ${summary}: [below](#kube-proxy-${name}) |`).join("\n")}

Exit status: 0 when an action is done, or after SIGTERM or SIGINT; 1 for everything else, and the last line says why.

## kube-proxy

With \`--config\`, only the logging flags, \`--hostname-override\`, \`--master\`, \`--manifests\` and the flags that name an action
still count, as upstream. Flags marked with * are extensions of kube-proxy-ts. \`kube-proxy --help\` also lists the feature gates.
`;

/** The whole page. */
export async function commandReference(): Promise<string> {
  const groups = Object.entries(FLAG_GROUPS).map(([title, flags]) => `### ${title}\n\n${flagTable(flags)}`);
  const sections = await Promise.all(
    COMMANDS.map(async ({ name, load }) => usageSection(name, usageOf((await load()).line))),
  );
  return `${[INTRODUCTION, ...groups, ...sections].join("\n")}`;
}

function flagTable(flags: readonly AnyFlag[]): string {
  const rows = [...flags].sort((a, b) => (a.name < b.name ? -1 : 1)).map(flagRow);
  return `| Flag | Default | Meaning |\n|---|---|---|\n${rows.join("\n")}\n`;
}

function flagRow(flag: AnyFlag): string {
  const short = flag.shorthand === undefined ? "" : `\`-${flag.shorthand}\`, `;
  const word = flag.word === "" ? "" : ` ${flag.word}`;
  const mark = flag.isExtension ? " *" : "";
  const initial = flag.defaultText === "" ? "" : code(flag.defaultText);
  const meaning = flag.deprecated === undefined ? flag.help : `${flag.help} ${flag.deprecated}`;
  return `| ${short}${code(`--${flag.name}${word}`)}${mark} | ${initial} | ${cell(meaning)} |`;
}

const cell = (text: string): string => text.replaceAll("|", "\\|").replaceAll("*", "\\*");
const code = (text: string): string => `\`${text.replaceAll("|", "\\|")}\``;

function usageSection(name: string, usage: string): string {
  return `## kube-proxy ${name}\n\n\`\`\`\n${usage.trimEnd()}\n\`\`\`\n`;
}

/** The manual pages as package.json has to name them: npm does not link those of a folder where it installs a tarball. */
export function manualPages(): readonly string[] {
  return ["", ...COMMANDS.map(({ name }) => `-${name}`)].sort().map((name) => `dist/man/kube-proxy${name}.1`);
}

if (import.meta.main) {
  writeFileSync(join(CHECKOUT, COMMAND_REFERENCE), await commandReference());
  const file = join(CHECKOUT, "package.json");
  const manifest = { ...JSON.parse(readFileSync(file, "utf8")), man: manualPages() };
  writeFileSync(file, `${JSON.stringify(manifest, undefined, 2)}\n`);
}
