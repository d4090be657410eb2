import { type Clock, systemClock } from "../../../async/clock.ts";

const MOST_MS = 5;
const soon = (delayMs: number): number => Math.min(delayMs, MOST_MS);

/** The system clock, but every wait is short. */
export const HURRIED: Clock = {
  ...systemClock,
  setTimer: (delayMs, callback) => systemClock.setTimer(soon(delayMs), callback),
  sleep: (delayMs, signal) => systemClock.sleep(soon(delayMs), signal),
};
