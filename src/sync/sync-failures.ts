/** What the parts that a kernel refused mean for the sync as a whole. */
import type { SyncFailure } from "./backend.ts";

/** So many refused parts are named in the error of their sync. */
const NAMED_FAILURES = 10;

/** A sync that programmed everything but these parts; the message names the first of them. */
export class IncompleteSyncError extends Error {
  override readonly name = "IncompleteSyncError";
  constructor(failures: readonly SyncFailure[]) {
    const named = failures.slice(0, NAMED_FAILURES).map(({ subject, reason }) => `${subject} (${reason})`);
    const left = failures.length - named.length;
    const others = left === 0 ? "" : ` and ${left} more`;
    super(`the kernel refused a part of the rules: ${named.join(", ")}${others}`);
  }
}

/** The services, as `namespace/name`, that have a refused part. Pure. */
export function refusedServices(failures: readonly SyncFailure[]): ReadonlySet<string> {
  const services = new Set<string>();
  for (const { subject } of failures) {
    const colon = subject.indexOf(":");
    services.add(colon < 0 ? subject : subject.slice(0, colon));
  }
  return services;
}
