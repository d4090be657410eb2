/** What a mistyped word was probably meant to be. Pure. */

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
