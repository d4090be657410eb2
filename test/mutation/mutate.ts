/** Mutants of one line of TypeScript: small faults that a programmer could have made there. */

/** What stands for a part of a line that is no code: as long as it, so that places agree. */
const FILLER = "\u0000";

/** @returns the line with the contents of strings, regular expressions' names and comments blanked out. */
function codeOf(line: string): string {
  return line.replace(/"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`|'(?:[^'\\]|\\.)*'|\/\/.*$/g, (text) =>
    FILLER.repeat(text.length),
  );
}

/** A pattern of code, and what takes its place; undefined where a match is no fault to make. */
type Rule = readonly [RegExp, (match: string) => string];

const swap =
  (words: Readonly<Record<string, string>>) =>
  (match: string): string =>
    match.replace(/\S+/, (word) => words[word] ?? word);

const RULES: readonly Rule[] = [
  [/ (?:===|!==) /g, swap({ "===": "!==", "!==": "===" })],
  [/ (?:<=|>=|<|>) (?!\()/g, swap({ "<": "<=", ">": ">=", "<=": "<", ">=": ">" })],
  [/ (?:&&|\|\|) /g, swap({ "&&": "||", "||": "&&" })],
  [/ \?\? /g, () => " && "],
  [/ [+-] /g, swap({ "+": "-", "-": "+" })],
  [/\b(?:true|false)\b/g, swap({ true: "false", false: "true" })],
  [/(?<=\bif \(|\bwhile \(|\? |return |=> )!(?=[\w(#])/g, () => ""],
  [/(?<=\bif \()(?=[\w#])(?=[^;{]*\) (?:return|continue|break|throw|\{))/g, () => "!"],
  [/\.(?:reverse|toReversed|sort|toSorted)\(\)/g, () => ""],
  [/\b\d+\b(?![.\w])/g, (match) => String(Number(match) + 1)],
];

/** A statement that is whole on its line and does something: it can be left out. */
const STATEMENT = /^\s*(?:await )?(?:this\.)?[#\w]+(?:\??\.[#\w]+)*(?:\(.*\)| [-+|&?]*= .*);$/;
/** Lines without a decision: declarations, types, imports. */
const NO_CODE = /^\s*(?:import|export (?:type|interface|\*|\{)|type|interface|readonly|\*|\/\*|\/\/|[{}\])]|$)/;

/** A line with a fault in it. */
export interface Mutant {
  /** The whole line. */
  readonly line: string;
}

/**
 * @param line of a source file, without its line break.
 * @returns every mutant of it; none where it has nothing that can be wrong.
 */
export function mutantsOf(line: string): Mutant[] {
  if (NO_CODE.test(line)) return [];
  const code = codeOf(line);
  const mutants = RULES.flatMap(([pattern, replacement]) =>
    [...code.matchAll(pattern)].map(({ 0: match, index }) => ({
      line: line.slice(0, index) + replacement(match) + line.slice(index + match.length),
    })),
  );
  // Types have comparison signs and literals, too: what is only a type changes nothing.
  if (STATEMENT.test(code)) mutants.push({ line: "" });
  return mutants.filter((mutant) => mutant.line !== line);
}
