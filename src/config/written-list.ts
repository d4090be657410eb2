/** Upstream does not tell an empty list from an absent one in what it writes, and writes the latter. Pure. */
export function listOrNull(list: readonly string[]): readonly string[] | null {
  return list.length === 0 ? null : list;
}
