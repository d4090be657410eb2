/** Probabilities of the `statistic` match, as text: reference iptables.md §7B.4. */

const DECIMALS = 10;
const texts = new Map<number, string>();

/** `1/k` with ten decimals, rounded half to even (iptables.md §7B). Pure; results are kept, for lists repeat them. */
export function oneInText(k: number): string {
  const known = texts.get(k);
  if (known !== undefined) return known;
  const text = format(1 / k);
  texts.set(k, text);
  return text;
}

function format(value: number): string {
  // toFixed rounds exact ties up; 60 digits show a double of this size exactly.
  const exact = value.toFixed(60);
  const cut = exact.indexOf(".") + 1 + DECIMALS;
  const isTie = /^50*$/.test(exact.slice(cut));
  return isTie && Number(exact[cut - 1]) % 2 === 0 ? exact.slice(0, cut) : value.toFixed(DECIMALS);
}
