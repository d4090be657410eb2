/** A thrown value as one line: an error's own message, without its causes (those are in `errorText`). */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
