/** Says once what is not as an operator may expect. */
import type { Logger } from "../../logging/logger.ts";

/** Two are the same when everything is. */
export interface PortWarning {
  readonly message: string;
  readonly facts: object;
  /** Worth a line, and no warning. @default false */
  readonly isInfo?: true;
}

export class PortWarnings {
  readonly #log: Logger;
  /** Those said and still true, by service port. */
  readonly #said = new Map<string, readonly string[]>();
  readonly #told = new Set<string>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** All that is to be said of a service port; nothing when it is gone. */
  note(key: string, warnings: readonly PortWarning[]): void {
    const said = this.#said.get(key) ?? [];
    const texts = warnings.map((warning) => JSON.stringify(warning));
    for (const [index, { message, facts, isInfo = false }] of warnings.entries()) {
      if (!said.includes(texts[index] ?? "")) this.#log[isInfo ? "info" : "warn"](message, { ...facts });
    }
    if (texts.length > 0) this.#said.set(key, texts);
    else this.#said.delete(key);
  }

  /** A full sync has noted all that there are. */
  keepOnly(services: ReadonlyMap<string, unknown>): void {
    for (const key of this.#said.keys()) if (!services.has(key)) this.#said.delete(key);
  }

  /** A warning about anything else. @param what tells it from others. */
  tellOnce(what: string, message: string, facts: object): void {
    if (this.#told.has(what)) return;
    this.#told.add(what);
    this.#log.warn(message, { ...facts });
  }
}
