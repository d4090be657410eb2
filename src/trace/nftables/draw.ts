/** Steps that depend on a random number: one result for each value that it can have. Pure. */
import { NO_MATCH, type StepResult } from "../netfilter/program.ts";
import type { Packet } from "../packet.ts";
import type { Expression } from "./expression.ts";
import type { Reading } from "./packet-fields.ts";

/** Reads the expression and judges what it gives; where it draws a number, for every number. */
export function drawn(expression: Expression, packet: Packet, judge: (reading: Reading) => StepResult): StepResult {
  const { draw } = expression;
  if (draw === undefined) return judge(expression.read(packet, 0));
  if (expression.isNoneForAll?.(packet) === true) return NO_MATCH;
  const odds = 1 / draw.count;
  const options = Array.from({ length: draw.count }, (_, number) => {
    return { odds, result: judge(expression.read(packet, number)) };
  });
  return { kind: "choice", options };
}
