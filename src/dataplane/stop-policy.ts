/** How the process ends when it is told to: what is logged, and how long that may take. */
export interface StopPolicy {
  readonly message: string;
  /** After this long, in milliseconds, the process ends anyway. */
  readonly limitMs: number;
}

/** For modes whose rules work on without the process. */
export const KEEPS_RULES: StopPolicy = { message: "Stopping; the rules stay in place", limitMs: 5_000 };

/** For `--cleanup` and other actions: they are finished, if there is time. */
export const FINISHES: StopPolicy = { message: "Told to stop; what was begun is finished first", limitMs: 5_000 };

/** How long connections that the process carries beside its rules may go on. */
export const RELAY_DRAIN_MS = 10_000;

/** For modes in which some connections may end with the process (node ports on loopback, extended). */
export function drainsRelay(isExtended: boolean): StopPolicy {
  return isExtended ? { ...KEEPS_RULES, limitMs: KEEPS_RULES.limitMs + RELAY_DRAIN_MS } : KEEPS_RULES;
}
