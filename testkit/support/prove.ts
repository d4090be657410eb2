/** A proof at one go. */
import { type Proof, proving } from "../../src/tools/prove/proof.ts";

/** {@link proving} to its end. */
export function prove(...asked: Parameters<typeof proving>): Proof {
  const steps = proving(...asked);
  let step = steps.next();
  while (step.done !== true) step = steps.next();
  return step.value;
}
