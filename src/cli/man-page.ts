/** Manual pages in roff (man(7)), made from the help texts of the commands. Pure. */

interface ManSource {
  /** `kube-proxy-explain` */
  readonly name: string;
  readonly summary: string;
  /** As `--help` prints it. */
  readonly usage: string;
  /** Of the program. */
  readonly version: string;
  readonly seeAlso: readonly string[];
}

/** An option of a help text: `  -f, --filename DIR|FILE|-    manifests …`. */
const OPTION = /^ {2,6}((?:-\w, )?--?[\w-]+(?:[ =]\S+)*?)(?: {2,}(.*))?$/;
const HEADING = /^(?:([A-Z][^:.]{0,60}):|(Exit status): (.*))$/;

/** The page, section 1. */
export function manPage({ name, summary, usage, version, seeAlso }: ManSource): string {
  const [synopsis, body] = synopsisOf(usage.trimEnd().split("\n"));
  const lines = [
    `.TH ${name.toUpperCase().replaceAll("-", "\\-")} 1 "" "kube-proxy-ts ${version}" "User Commands"`,
    ".SH NAME",
    `${text(name)} \\- ${text(summary)}`,
    ".SH SYNOPSIS",
    ".nf",
    ...synopsis.map(text),
    ".fi",
    ".SH DESCRIPTION",
    ...bodyLines(body),
    ".SH SEE ALSO",
    seeAlso.map((other) => `.BR ${text(other)} (1)`).join("\n"),
  ];
  return `${lines.join("\n")}\n`;
}

/** What the usage begins with, until the first empty line. */
function synopsisOf(lines: readonly string[]): readonly [synopsis: readonly string[], body: readonly string[]] {
  const end = lines.indexOf("");
  const head = lines.slice(0, end < 0 ? lines.length : end);
  const synopsis = head.map((line) => line.replace(/^Usage:\s*/, "").trim()).filter((line) => line !== "");
  return [synopsis, end < 0 ? [] : lines.slice(end + 1)];
}

/** Inside of a paragraph, of lines that stay as they are, or of an option. */
type State = "text" | "verbatim" | "option";

function bodyLines(lines: readonly string[]): string[] {
  const out: string[] = [];
  let state = "text" as State;
  let hasHeading = false;
  const enter = (next: State) => {
    if (state === "verbatim" && next !== "verbatim") out.push(".fi", ".RE");
    if (next === "verbatim" && state !== "verbatim") out.push(".RS 4", ".nf");
    state = next;
  };
  for (const line of lines) {
    const [, title, status, rest] = HEADING.exec(line) ?? [];
    const heading = title ?? status;
    const [, option, meaning] = OPTION.exec(line) ?? [];
    if (line === "") {
      if (state === "verbatim") out.push("");
      else out.push(".PP");
    } else if (heading !== undefined) {
      enter("text");
      hasHeading = true;
      out.push(`.SH ${text(heading.toUpperCase())}`);
      if (rest !== undefined) out.push(text(rest));
    } else if (option?.startsWith("-") === true) {
      enter("option");
      if (!hasHeading) out.push(".SH OPTIONS");
      hasHeading = true;
      out.push(".TP", `\\fB${text(option)}\\fR`, ...(meaning === undefined ? [] : [text(meaning)]));
    } else if (line.startsWith("  ") && state === "option") out.push(text(line.trim()));
    else if (line.startsWith("  ")) {
      enter("verbatim");
      out.push(text(line.slice(2)));
    } else {
      enter("text");
      out.push(text(line));
    }
  }
  enter("text");
  return out;
}

/** A line that roff prints as it is: no request, no escape. */
function text(line: string): string {
  const escaped = line.replaceAll("\\", "\\e").replaceAll("-", "\\-").replaceAll("…", "\\[u2026]");
  return /^[.']/.test(escaped) ? `\\&${escaped}` : escaped;
}
