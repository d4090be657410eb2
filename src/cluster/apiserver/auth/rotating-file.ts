/** A file that is replaced now and then: tokens, certificates, CA bundles. */
import { readFile } from "node:fs/promises";
import type { Clock } from "../../../async/clock.ts";
import type { Logger } from "../../../logging/logger.ts";
import { messageOf } from "../../../logging/message-of.ts";
import { ClientConfigError } from "../connection/client-config.ts";

/** Upstream re-reads token files after a minute less ten seconds (reference operation.md §8.1). */
const MAX_AGE_MS = 50_000;

export interface RotatingFileOptions<T> {
  readonly path: string;
  /** What it is, for messages: `token file`. */
  readonly title: string;
  /** What to look at when it is not usable: `tokenFile in the kubeconfig`. */
  readonly hint: string;
  /** Makes the value of the text; throws when it is not usable. */
  readonly parse: (text: string) => T;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Gives the value of the file's content, never older than about a minute, and the last good one when it turns bad. */
export class RotatingFile<T> {
  readonly #options: RotatingFileOptions<T>;
  #known: { readonly text: string; readonly value: T } | undefined;
  /** What the file said when it was last read, of use or not. */
  #seen: string | undefined;
  #readAtMs = Number.NEGATIVE_INFINITY;
  #isBad = false;

  constructor(options: RotatingFileOptions<T>) {
    this.#options = options;
  }

  /**
   * The value; the same one while the text is the same.
   *
   * @throws ClientConfigError when there has never been a good one.
   */
  async read(): Promise<T> {
    const { clock } = this.#options;
    if (this.#known !== undefined && clock.monotonicMs() - this.#readAtMs < MAX_AGE_MS) return this.#known.value;
    try {
      const text = await readFile(this.#options.path, "utf8");
      this.#seen = text;
      if (this.#known?.text !== text) this.#known = { text, value: this.#options.parse(text) };
      this.#readAtMs = clock.monotonicMs();
      this.#isBad = false;
      return this.#known.value;
    } catch (error) {
      return this.#lastGood(error);
    }
  }

  /**
   * Whether the file says something else than when it was last read. One that cannot be read now does not, and what was of no use then
   * is of no use now.
   */
  async hasChanged(): Promise<boolean> {
    const text = await readFile(this.#options.path, "utf8").catch(() => undefined);
    return text !== undefined && text !== this.#seen;
  }

  /** The next reading looks at the file again: the server did not accept what it said. */
  expire(): void {
    this.#readAtMs = Number.NEGATIVE_INFINITY;
  }

  #lastGood(error: unknown): T {
    const { path, title, hint, log, clock } = this.#options;
    const reason = messageOf(error);
    if (this.#known === undefined) {
      throw new ClientConfigError(`cannot use the ${title} ${path}: ${reason}: check ${hint}`, { cause: error });
    }
    if (!this.#isBad) log.error(`Cannot use the new ${title}, keeping the last good one`, error, { path });
    this.#isBad = true;
    this.#readAtMs = clock.monotonicMs();
    return this.#known.value;
  }
}
