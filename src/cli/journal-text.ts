/** Records of the journal in words, for `kube-proxy monitor`. Not yet safe for a terminal. Pure. */
import type { SyncCause, SyncRecord } from "../daemon/journal-stream.ts";

const CHANGES = { add: "added", update: "updated", delete: "deleted" } as const;
const WHOLE = {
  start: "the first sync",
  retry: "what failed before is tried again",
  periodic: "the periodic look at everything",
  zone: "the node is in another zone",
  "node-addresses": "the node has other addresses",
  "service-cidrs": "the ServiceCIDRs have changed",
  requested: "a sync was asked for",
} as const;

/** One record: a line for each cause, and one with what was written and how long that took. */
export function recordText(record: SyncRecord): string {
  const { family, endedMs, isFullSync, causes, furtherCauses, result, failures, furtherFailures } = record;
  const time = new Date(endedMs).toISOString().slice(11, 23);
  const lines = causes.map(
    (cause, index) => `${index === 0 ? `${time} ${family}` : " ".repeat(17)} ${causeText(cause)}`,
  );
  if (furtherCauses > 0) lines.push(`${" ".repeat(17)} and ${furtherCauses} more`);
  const what = `${isFullSync ? "full sync, " : ""}${writtenText(record)}`;
  lines.push(`    ${result === "done" ? "" : `${result.toUpperCase()}: `}${what}; ${stagesText(record)}`);
  for (const { subject, reason } of failures) lines.push(`    refused: ${subject}: ${reason}`);
  if (furtherFailures > 0) lines.push(`    and ${furtherFailures} more refused`);
  return `${lines.join("\n")}\n`;
}

function causeText(cause: SyncCause): string {
  switch (cause.kind) {
    case "object": {
      const { object, change, namespace, name, service } = cause;
      const of = service === name || service === "" ? "" : ` of ${namespace}/${service}`;
      return `${object} ${namespace}/${name}${of} ${CHANGES[change]}`;
    }
    case "repair": {
      const what = cause.servicePorts === null ? "our rules" : `rules of ${counted(cause.servicePorts)}`;
      return `${what} destroyed by ${cause.by ?? "another program"}`;
    }
    default:
      return WHOLE[cause.kind] ?? cause.kind;
  }
}

function writtenText({ written, servicePorts }: SyncRecord): string {
  const things = Object.entries(written ?? {}).filter(([, count]) => count > 0);
  if (written === null) return `${counted(servicePorts)} changed`;
  if (things.length === 0) return `${counted(servicePorts)} changed, nothing to write`;
  return `${counted(servicePorts)} changed, wrote ${things.map(([what, count]) => `${what} ×${count}`).join(", ")}`;
}

function stagesText({ stages: { waiting, model, rules, kernel, after } }: SyncRecord): string {
  const inKernel = kernel === null ? "" : ` (kernel ${ms(kernel)})`;
  const total = ms(waiting + model + rules + after);
  return `${total} ms: waited ${ms(waiting)}, model ${ms(model)}, rules ${ms(rules)}${inKernel}, after ${ms(after)}`;
}

const counted = (count: number): string => `${count} service port${count === 1 ? "" : "s"}`;

/** Three digits that say something: `0.04`, `1.2`, `250`. */
function ms(value: number): string {
  return value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(2);
}
