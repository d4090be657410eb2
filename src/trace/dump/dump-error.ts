/** A text that is no dump, or half of one. */
export class DumpError extends Error {
  override readonly name = "DumpError";
}
