/**
 * JSON of the API server's objects. A third of it says who last wrote which field (`metadata.managedFields`), which no rule depends
 * on: left out of the text it is neither parsed nor collected as garbage (docs/performance.md).
 */

/** Follows something else: an object has a name. */
const START = ',"managedFields":[{';
/** The end of the last entry and of the list. No other list stands in between: FieldsV1 is objects in objects. */
const END = "}]";

/** @throws SyntaxError when the text is no JSON. */
export function parseObject(text: string): unknown {
  const shorter = withoutManagedFields(text);
  if (shorter === text) return JSON.parse(text);
  try {
    return JSON.parse(shorter);
  } catch {
    // A text among the fields looked like their end.
    return JSON.parse(text);
  }
}

/** Only where the fields are the last of the metadata, as the API server writes them. */
function withoutManagedFields(text: string): string {
  const start = text.indexOf(START);
  if (start === -1) return text;
  const end = text.indexOf(END, start) + END.length;
  return end < END.length || text[end] !== "}" ? text : text.slice(0, start) + text.slice(end);
}
