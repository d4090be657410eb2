/** A file that is replaced now and then: tokens, certificates, CA bundles. */
import { readFile } from "node:fs/promises";
import type { Clock } from "../../../async/clock.ts";
import type { Logger } from "../../../logging/logger.ts";
import { messageOf } from "../../../logging/message-of.ts";
import { ClientConfigError } from "../connection/client-config.ts";

/** Upstream re-reads token files after a minute less ten seconds (reference operation.md §8.1). */
const MAX_AGE_MS = 50_000;

interface RotatingFileOptions<T> {
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

/** What a file is good for at the moment. */
export interface Reading<T> {
  /** The same value while the text is unchanged; the last good one while the file is unusable. */
  readonly value: T;
  /** What the file said when it was looked at for this. */
  readonly seen: string | undefined;
}

/** Gives the value of the file's content, never older than about a minute, and the last good one when it turns bad. */
export class RotatingFile<T> {
  readonly #options: RotatingFileOptions<T>;
  #known: { readonly text: string; readonly value: T } | undefined;
  /** What the file said when it was last read, of use or not. */
  #seen: string | undefined;
  #readAtMs = Number.NEGATIVE_INFINITY;
  /** A reading was asked for. */
  #isUsed = false;
  #isBad = false;

  constructor(options: RotatingFileOptions<T>) {
    this.#options = options;
  }

  /** @throws ClientConfigError when there has never been a good value. */
  async read(): Promise<Reading<T>> {
    const { clock } = this.#options;
    this.#isUsed = true;
    if (this.#known !== undefined && clock.monotonicMs() - this.#readAtMs < MAX_AGE_MS) {
      return { value: this.#known.value, seen: this.#seen };
    }
    try {
      const text = await readFile(this.#options.path, "utf8");
      this.#seen = text;
      if (this.#known?.text !== text) this.#known = { text, value: this.#options.parse(text) };
      this.#readAtMs = clock.monotonicMs();
      this.#isBad = false;
      return { value: this.#known.value, seen: text };
    } catch (error) {
      return { value: this.#lastGood(error), seen: this.#seen };
    }
  }

  /**
   * Whether the file has changed. A file that cannot be read now, that was unusable before and is the same, or that was never asked for
   * has not.
   * @param seen as of a {@link Reading}. @default of the last one
   */
  async hasChanged(seen: string | undefined = this.#seen): Promise<boolean> {
    if (!this.#isUsed) return false;
    const text = await readFile(this.#options.path, "utf8").catch(() => undefined);
    return text !== undefined && text !== seen;
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
