/** Records of the journal as lines, for `kube-proxy monitor`. Not yet safe for a terminal. Pure. */
import type { SyncRecord } from "../daemon/inspect-socket.ts";
import { causeWords, writtenWords } from "../daemon/sync-words.ts";

/** One record: a line for each cause, and one with what was written and how long that took. */
export function recordText(record: SyncRecord): string {
  const { family, endedMs, isFullSync, causes, furtherCauses, result, failures, furtherFailures } = record;
  const time = new Date(endedMs).toISOString().slice(11, 23);
  const lines = causes.map((cause, index) => {
    const { before, object, after } = causeWords(cause);
    return `${index === 0 ? `${time} ${family}` : " ".repeat(17)} ${before}${object}${after}`;
  });
  if (furtherCauses > 0) lines.push(`${" ".repeat(17)} and ${furtherCauses} more`);
  const what = `${isFullSync ? "full sync, " : ""}${writtenWords(record)}`;
  lines.push(`    ${result === "done" ? "" : `${result.toUpperCase()}: `}${what}; ${stagesText(record)}`);
  for (const { subject, reason } of failures) lines.push(`    refused: ${subject}: ${reason}`);
  if (furtherFailures > 0) lines.push(`    and ${furtherFailures} more refused`);
  return `${lines.join("\n")}\n`;
}

function stagesText({ stages: { waiting, model, rules, kernel, after } }: SyncRecord): string {
  const inKernel = kernel === null ? "" : ` (kernel ${ms(kernel)})`;
  const total = ms(waiting + model + rules + after);
  return `${total} ms: waited ${ms(waiting)}, model ${ms(model)}, rules ${ms(rules)}${inKernel}, after ${ms(after)}`;
}

/** With the digits that say something: `0.04`, `1.2`, `250`. */
function ms(value: number): string {
  return value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(2);
}
