/**
 * What comes from another thread is copied: each text once per place, and nothing frozen any more. A pool makes records
 * as small and as fixed as they were.
 */
const MOST_TEXTS = 16_384;

export class StringPool {
  readonly #texts = new Map<string, string>();

  /** The value with its texts shared and its records frozen. Changes `value` itself. */
  adopt<T>(value: T): T {
    if (typeof value === "object" && value !== null) this.#adoptFields(value);
    return value;
  }

  #adoptFields(value: object): void {
    for (const [key, field] of Object.entries(value)) {
      if (typeof field === "string") Reflect.set(value, key, this.#share(field));
      else if (typeof field === "object" && field !== null) this.#adoptFields(field);
    }
    Object.freeze(value);
  }

  #share(text: string): string {
    const shared = this.#texts.get(text);
    if (shared !== undefined) return shared;
    if (this.#texts.size >= MOST_TEXTS) this.#texts.clear();
    this.#texts.set(text, text);
    return text;
  }
}
