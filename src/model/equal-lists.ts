/** Element-by-element comparison of lists. */

/** Whether both lists hold the same elements (`===`) in the same order. */
export function equalLists(a: readonly unknown[], b: readonly unknown[]): boolean {
  return a === b || (a.length === b.length && a.every((item, index) => item === b[index]));
}
