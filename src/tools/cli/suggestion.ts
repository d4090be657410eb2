/** Suggests what a word was probably meant to be, if it is mistyped or a name without its namespace. */
import { editDistance } from "../../text/edit-distance.ts";
import { UsageError } from "./output.ts";

/** A word that is this far away, in edits per letter, is a different word. */
const LIMIT = 0.4;

/** The known word nearest to a given one, if any is near. Case does not matter, nor does `_` instead of `-`. */
export function nearestWord(word: string, known: Iterable<string>): string | undefined {
  const given = plain(word);
  let best: { readonly name: string; readonly distance: number } | undefined;
  for (const name of known) {
    const distance = farness(given, plain(name));
    if (distance <= LIMIT * Math.max(given.length, name.length) && distance < (best?.distance ?? Infinity)) {
      best = { name, distance };
    }
  }
  return best?.name;
}

/** The hint after an error about a word. @param before precedes the suggestion. @returns undefined if none is near */
export function didYouMean(word: string, known: Iterable<string>, before = ""): string | undefined {
  const nearest = nearestWord(word, known);
  return nearest === undefined ? undefined : `Did you mean ${before}${nearest}?`;
}

/** Known names that are the same in any namespace: a wrong one is the usual mistake. @param name `namespace/name`, like the known ones */
export function namesakes(name: string, known: Iterable<string>): readonly string[] {
  return [...new Set(known)].filter((one) => one.endsWith(name.slice(name.indexOf("/"))));
}

/**
 * The only one of the known `namespace/name` that equals `name` or has it as its name; undefined if there is none.
 *
 * @param namespace takes precedence over others. @throws UsageError if there are several
 */
export function onlyNamed(
  flag: string,
  name: string,
  known: readonly string[],
  namespace?: string,
): string | undefined {
  const named = [...new Set(known)].filter((one) => one === name || one.endsWith(`/${name}`));
  const own = named.find((one) => one === `${namespace}/${name}`) ?? named[0];
  if (own === undefined || named.length === 1 || own.startsWith(`${namespace}/`)) return own;
  throw new UsageError(`${flag}: there are ${named.join(", ")}`, "Give the namespace as well.");
}

function plain(word: string): string {
  return word.toLowerCase().replaceAll("_", "-");
}

/** A prefix counts as near. */
function farness(a: string, b: string): number {
  return a.length > 2 && b.startsWith(a) ? 1 : editDistance(a, b);
}
