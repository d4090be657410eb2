/**
 * The first of what may be thousands, and how many more there are: enough for people to see what is meant. Pure.
 *
 * @param most that are named.
 */
export function someOf(items: Iterable<string>, most = 10): string {
  const all = [...items];
  const left = all.length - most;
  return left > 0 ? `${all.slice(0, most).join(", ")} and ${left} more` : all.join(", ");
}
