/** Sending payloads, and which failures may be the fault of single rules. */
import { type Iptables, IptablesRestoreError } from "../../../kernel/iptables/iptables.ts";
import type { Payload, WrittenRules } from "./payload.ts";

/** Sends a payload, if there is anything in it; resolves to its counts. Throws {@link IptablesRestoreError}. */
export async function send(iptables: Iptables, payload: Payload): Promise<WrittenRules> {
  if (payload.parts.length > 0) await iptables.restore(texts(payload));
  return payload.written;
}

function* texts(payload: Payload): Iterable<string> {
  for (const part of payload.parts) yield part.text;
}

/** Whether a failure may be the fault of single rules, so that leaving them out can help. */
export function isAttributable(error: unknown): error is IptablesRestoreError {
  return error instanceof IptablesRestoreError && error.code !== "lock_held" && error.code !== "missing_tool";
}
