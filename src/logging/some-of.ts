/**
 * Names the first of what may be thousands of items, and how many more there are.
 *
 * @param most how many to name.
 */
export function someOf(items: Iterable<string>, most = 10): string {
  const all = [...items];
  const left = all.length - most;
  return left > 0 ? `${all.slice(0, most).join(", ")} and ${left} more` : all.join(", ");
}
