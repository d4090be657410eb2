/** What is done with objects before the lists of them are whole: nothing has to wait that need not. */
import type { Logger } from "../logging/logger.ts";
import { messageOf } from "../logging/message-of.ts";

/** As many objects as this are worth a look at what they need. A small cluster is listed before that. */
const OBJECTS_AT_ONCE = 256;

export class HeadStart {
  readonly #work: () => Promise<void>;
  readonly #log: Logger;
  #objects = 0;
  #isOver = false;
  #underWay: Promise<void> | undefined;

  /** @param work with what has come since it was last called; never overlaps itself, and is not called again when it has rejected. */
  constructor(work: () => Promise<void>, log: Logger) {
    this.#work = work;
    this.#log = log;
  }

  /** One more object has come. */
  note(): void {
    this.#objects += 1;
    if (this.#isOver || this.#underWay !== undefined || this.#objects < OBJECTS_AT_ONCE) return;
    this.#underWay = this.#run();
  }

  /** Begins nothing any more, and waits for what is under way. */
  async end(): Promise<void> {
    this.#isOver = true;
    await this.#underWay;
  }

  async #run(): Promise<void> {
    try {
      // All that comes in one piece is taken together.
      await Promise.resolve();
      while (this.#objects >= OBJECTS_AT_ONCE && !this.#isOver) {
        this.#objects = 0;
        await this.#work();
      }
    } catch (error) {
      this.#isOver = true;
      this.#log.v(2, "Could not prepare rules before the lists were whole", { reason: messageOf(error) });
    } finally {
      this.#underWay = undefined;
    }
  }
}
