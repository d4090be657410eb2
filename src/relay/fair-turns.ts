/**
 * A share of the event loop for all: connections at full speed would otherwise take all of their bytes in one turn, and
 * with hundreds of them nothing else (new connections, datagrams, syncs, health) would be looked at for half a second.
 */

/** How long connections may carry bytes in one turn; after that each still carries what it has read. */
const TURN_MS = 8;

/** Connections that had to wait and go on in the next turn: all of them, with a read each, might make it too long again. */
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
   * @returns whether to read on in this turn of the event loop; otherwise `goOn` is called in a later one, in the order of
   * asking.
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
    // Comes when all sockets of this turn have been looked at.
    setImmediate(this.#endTurn);
  }

  readonly #endTurn = (): void => {
    this.#isTurnKnown = false;
    for (const goOn of this.#waiting.splice(0, GO_ON_AT_ONCE)) goOn();
    // It may be that none asks in the next turn, while some wait for its end.
    if (this.#waiting.length > 0) this.#beginTurn();
  };
}
