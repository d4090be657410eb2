/**
 * When the computations of a test give way: `KPTS_YIELD=always` or `never` (the default). The backend tests run with both in
 * `npm test`. Turns are counted, so that a fake clock knows when nothing goes on any more.
 */
import { alwaysYield, neverYield, type Yielder } from "../yielder.ts";

const chosen = process.env.KPTS_YIELD ?? "never";
if (chosen !== "always" && chosen !== "never") throw new Error(`KPTS_YIELD is ${chosen}, and must be always or never`);
const yielder = chosen === "always" ? alwaysYield : neverYield;

let turns = 0;

/** How many turns computations have asked for so far in this process. */
export function turnsTaken(): number {
  return turns;
}

export const testYielder: Yielder = {
  isDue: () => yielder.isDue(),
  turn(signal) {
    turns += 1;
    return yielder.turn(signal);
  },
};
