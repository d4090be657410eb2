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

/** How long connections that the process itself relays may outlast a stop, in milliseconds. */
export const RELAY_DRAIN_MS = 10_000;

/** For modes that relay some connections (node ports on loopback addresses, extended). */
export function drainsRelay(isExtended: boolean): StopPolicy {
  return isExtended ? { ...KEEPS_RULES, limitMs: KEEPS_RULES.limitMs + RELAY_DRAIN_MS } : KEEPS_RULES;
}
