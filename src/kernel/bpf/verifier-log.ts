/** The verifier's log, reduced to what was refused and the line of ours that emitted it. */
import { disassemble } from "./asm/disassemble.ts";
import { slotNumbers } from "./asm/instruction.ts";
import type { Program } from "./asm/program.ts";

/** Lines of the log that count what was done, and explain nothing. */
const STATISTICS = /^(?:processed \d|verification time|stack depth|max_states|peak_states|mark_read)/;

/**
 * What went wrong in words: `connect4 is refused at 12: (61) r1 = *(u32 *)(r0 +0), from connect.ts:42: R0 invalid mem access`.
 * The last instruction in the log is the one; the line after it is the reason. Pure.
 */
export function explainVerifierLog(program: Program, log: string): string {
  const lines = log
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "" && !STATISTICS.test(line));
  const at = lines.findLastIndex((line) => /^\d+: \([0-9a-f]{2}\)/.test(line));
  const reasons = lines.slice(at + 1).filter((line) => !/^(?:\d+: R\d|; |from \d+ to )/.test(line));
  const reason = reasons.at(0) ?? lines.at(-1) ?? "the verifier said nothing";
  const slot = Number.parseInt(lines[at] ?? "", 10);
  const index = slotNumbers(program.instructions).indexOf(slot);
  const line = disassemble(program.instructions)[index];
  if (line === undefined) return `${program.name} is refused: ${reason}`;
  return `${program.name} is refused at ${line}, from ${program.notes[index] ?? "nowhere"}: ${reason}`;
}
