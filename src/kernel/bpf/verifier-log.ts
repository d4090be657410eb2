/** Lines of the log that count what was done, and explain nothing. */
const STATISTICS = /^(?:processed \d|verification time|stack depth|max_states|peak_states|mark_read)/;

/**
 * The verifier's log in one line: `kpts_connect4 is refused at 12: (61) r1 = *(u32 *)(r0 +0): R0 invalid mem access`. The last
 * instruction in the log is the one; the line after it is the reason. Pure.
 */
export function explainVerifierLog(program: string, log: string): string {
  const lines = log
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "" && !STATISTICS.test(line));
  const at = lines.findLastIndex((line) => /^\d+: \([0-9a-f]{2}\)/.test(line));
  const reasons = lines.slice(at + 1).filter((line) => !/^(?:\d+: R\d|; |from \d+ to )/.test(line));
  const reason = reasons.at(0) ?? lines.at(-1) ?? "the verifier said nothing";
  // What the verifier knows of registers follows the instruction.
  const instruction = lines[at]?.replace(/\s*;.*$/, "");
  return `${program} is refused${instruction === undefined ? "" : ` at ${instruction}`}: ${reason}`;
}
