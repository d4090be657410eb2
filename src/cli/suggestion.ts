/** What a word was probably meant to be: a mistyped one, and a name without its namespace. Pure. */
import { UsageError } from "./output.ts";

/** A word that is this far away, in edits per letter, is another word. */
const LIMIT = 0.4;

/** The known word that is nearest to a given one, if any is near. Upper and lower case, `_` and `-` do not matter. */
export function nearestWord(word: string, known: Iterable<string>): string | undefined {
  const given = plain(word);
  let best: { readonly name: string; readonly distance: number } | undefined;
  for (const name of known) {
    const distance = distanceOf(given, plain(name));
    if (distance <= LIMIT * Math.max(given.length, name.length) && distance < (best?.distance ?? Infinity)) {
      best = { name, distance };
    }
  }
  return best?.name;
}

/** The hint after an error about a word. @param before each known word, as it is typed. @returns undefined where none is near */
export function didYouMean(word: string, known: Iterable<string>, before = ""): string | undefined {
  const nearest = nearestWord(word, known);
  return nearest === undefined ? undefined : `Did you mean ${before}${nearest}?`;
}

/** Those of the same name in other namespaces, which people mean most, or in its own. @param name `namespace/name`, as the known ones */
export function namesakes(name: string, known: Iterable<string>): readonly string[] {
  return [...new Set(known)].filter((one) => one.endsWith(name.slice(name.indexOf("/"))));
}

/**
 * The only one of these `namespace/name` that has the name, or is it; undefined where none is.
 *
 * @param namespace that is meant before others. @throws UsageError for several
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

/** Levenshtein's: letters added, left out or replaced; words that begin alike are nearer. */
function distanceOf(a: string, b: string): number {
  if (a.length > 2 && b.startsWith(a)) return 1;
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
