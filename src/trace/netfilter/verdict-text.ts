/** Verdicts in words. Pure. */
import type { Verdict } from "./program.ts";

export function verdictText(verdict: Verdict): string {
  switch (verdict.kind) {
    case "jump":
    case "goto":
      return `${verdict.kind} ${verdict.chain}`;
    case "reject":
      return `reject with ${verdict.answer}`;
    case "forward-to":
      return `on to ${verdict.stage}`;
    default:
      return verdict.kind;
  }
}
