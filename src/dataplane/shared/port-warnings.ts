/** Logs once what an operator may not expect. */
import type { Logger } from "../../logging/logger.ts";

/** Two warnings are the same if all fields are equal. */
export interface PortWarning {
  readonly message: string;
  readonly facts: object;
  /** Logged as information, not as a warning. @default false */
  readonly isInfo?: true;
}

export class PortWarnings {
  readonly #log: Logger;
  /** Warnings that were logged and still hold, by service port. */
  readonly #said = new Map<string, readonly string[]>();
  readonly #told = new Set<string>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Sets all current warnings of a service port, and logs the new ones; none if it is gone. */
  note(key: string, warnings: readonly PortWarning[]): void {
    const said = this.#said.get(key) ?? [];
    const texts = warnings.map((warning) => JSON.stringify(warning));
    for (const [index, { message, facts, isInfo = false }] of warnings.entries()) {
      if (!said.includes(texts[index] ?? "")) this.#log[isInfo ? "info" : "warn"](message, { ...facts });
    }
    if (texts.length > 0) this.#said.set(key, texts);
    else this.#said.delete(key);
  }

  /** Forgets service ports that no longer exist, after a full sync. */
  keepOnly(services: ReadonlyMap<string, unknown>): void {
    for (const key of this.#said.keys()) if (!services.has(key)) this.#said.delete(key);
  }

  /** Logs a warning about anything else, once. @param what identifies it. */
  tellOnce(what: string, message: string, facts: object): void {
    if (this.#told.has(what)) return;
    this.#told.add(what);
    this.#log.warn(message, { ...facts });
  }
}
