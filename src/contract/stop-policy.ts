/** How the process stops when told to: what is logged, and how long that may take. */
export interface StopPolicy {
  readonly message: string;
  /** After this long, in milliseconds, the process ends anyway. */
  readonly limitMs: number;
}

/** For modes whose rules work without the process. */
export const KEEPS_RULES: StopPolicy = { message: "Stopping; the rules stay in place", limitMs: 5_000 };

/** For `--cleanup` and other actions: they are finished if time allows. */
export const FINISHES: StopPolicy = { message: "Told to stop; finishing the current action first", limitMs: 5_000 };
