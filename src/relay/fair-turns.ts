/**
 * Shares the event loop: connections at full speed would otherwise move all of their bytes in one turn, and with
 * hundreds of them nothing else (new connections, datagrams, syncs, health checks) would run for half a second.
 */

/** How long connections may read in one turn; after that each still forwards what it has read. */
const TURN_MS = 8;

/** Waiting connections that resume in the next turn: all of them, with a read each, might make it too long again. */
const GO_ON_AT_ONCE = 32;

export class FairTurns {
  readonly #nowMs: () => number;
  #startMs = 0;
  #isTurnKnown = false;
  readonly #waiting: (() => void)[] = [];

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  /**
   * Ask after every large read.
   *
   * @returns whether to keep reading in this turn of the event loop; if not, `goOn` is called in a later one, first come,
   * first served.
   */
  mayGoOn(goOn: () => void): boolean {
    if (!this.#isTurnKnown) {
      this.#beginTurn();
      return true;
    }
    if (this.#nowMs() - this.#startMs < TURN_MS) return true;
    this.#waiting.push(goOn);
    return false;
  }

  #beginTurn(): void {
    this.#isTurnKnown = true;
    this.#startMs = this.#nowMs();
    // Runs after all socket events of this turn.
    setImmediate(this.#endTurn);
  }

  readonly #endTurn = (): void => {
    this.#isTurnKnown = false;
    for (const goOn of this.#waiting.splice(0, GO_ON_AT_ONCE)) goOn();
    // Possibly no connection asks in the next turn, while some wait for its end.
    if (this.#waiting.length > 0) this.#beginTurn();
  };
}
