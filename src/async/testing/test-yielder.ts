/**
 * Counts how often computations yield in a test, so that a fake clock knows when all of them are done. With
 * `KPTS_YIELD=always` they yield at every check; `npm test` runs the backend tests that way, too.
 */
import { turnPolicy } from "../turns.ts";

const chosen = process.env.KPTS_YIELD;
if (chosen !== undefined && chosen !== "always") throw new Error(`KPTS_YIELD is ${chosen}, and must be always`);
if (chosen === "always") turnPolicy.isDue = () => true;

let turns = 0;

/** How often computations have yielded so far in this process. */
export function turnsTaken(): number {
  return turns;
}

const eventLoopTurn = turnPolicy.turn;
turnPolicy.turn = () => {
  turns += 1;
  return eventLoopTurn();
};
