/**
 * Counts the turns that the computations of a test give, so that a fake clock knows when nothing goes on any more. With
 * `KPTS_YIELD=always` they give one whenever they look; the backend tests run with that, too, in `npm test`.
 */
import { turnPolicy } from "../turns.ts";

const chosen = process.env.KPTS_YIELD;
if (chosen !== undefined && chosen !== "always") throw new Error(`KPTS_YIELD is ${chosen}, and must be always`);
if (chosen === "always") turnPolicy.isDue = () => true;

let turns = 0;

/** How many turns computations have asked for so far in this process. */
export function turnsTaken(): number {
  return turns;
}

const eventLoopTurn = turnPolicy.turn;
turnPolicy.turn = () => {
  turns += 1;
  return eventLoopTurn();
};
