/** Element-by-element comparison of lists, for the model's structural equalities. */

const isSame = (x: unknown, y: unknown): boolean => x === y;

/** Whether both lists hold equal elements in the same order; elements compare with `===` unless told. Pure. */
export function equalLists<T extends {}>(
  a: readonly T[],
  b: readonly T[],
  equal: (x: T, y: T) => boolean = isSame,
): boolean {
  if (a === b) return true;
  if (a.length !== b.length) return false;
  for (let index = 0; index < a.length; index += 1) {
    const item = a[index];
    const other = b[index];
    if (item === undefined || other === undefined || !equal(item, other)) return false;
  }
  return true;
}

/** Like {@link equalLists} for lists that may be absent; absent equals only absent. Pure. */
export function equalOptionalLists(a: readonly string[] | undefined, b: readonly string[] | undefined): boolean {
  return a === undefined || b === undefined ? a === b : equalLists(a, b);
}
