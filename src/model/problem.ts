/** How the model reports what it had to leave out of a bad object: a constant sentence and the facts that vary. */
import type { Facts } from "../logging/logger.ts";

/** Called once per thing left out; must not throw. The model goes on without the bad part. */
export type OnProblem = (message: string, facts: Facts) => void;
