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
  /** How many service ports each of them holds for: those of one Service may share it. */
  readonly #holding = new Map<string, number>();
  readonly #told = new Set<string>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Sets all current warnings of a service port, and logs the new ones; none if it is gone. */
  note(key: string, warnings: readonly PortWarning[]): void {
    const said = this.#said.get(key) ?? [];
    const texts = warnings.map((warning) => JSON.stringify(warning));
    for (const [index, { message, facts, isInfo = false }] of warnings.entries()) {
      if (this.#hold(texts[index] ?? "", 1) === 1) this.#log[isInfo ? "info" : "warn"](message, { ...facts });
    }
    for (const text of said) this.#hold(text, -1);
    if (texts.length > 0) this.#said.set(key, texts);
    else this.#said.delete(key);
  }

  /** Forgets service ports that no longer exist, after a full sync. */
  keepOnly(services: ReadonlyMap<string, unknown>): void {
    for (const key of this.#said.keys()) if (!services.has(key)) this.note(key, []);
  }

  /** Counts the service ports that a warning holds for. */
  #hold(text: string, change: 1 | -1): number {
    const count = (this.#holding.get(text) ?? 0) + change;
    if (count === 0) this.#holding.delete(text);
    else this.#holding.set(text, count);
    return count;
  }

  /** Logs a warning about anything else, once. @param what identifies it. */
  tellOnce(what: string, message: string, facts: object): void {
    if (this.#told.has(what)) return;
    this.#told.add(what);
    this.#log.warn(message, { ...facts });
  }
}
