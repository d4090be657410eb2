/** Sending payloads, and which failures may be the fault of single rules. */
import { type Iptables, IptablesRestoreError } from "../../../kernel/iptables/iptables.ts";
import { type Payload, textsOf, type WrittenRules } from "./payload.ts";

/** Sends a payload, if there is anything in it; resolves to its counts. Throws {@link IptablesRestoreError}. */
export async function send(iptables: Iptables, { transactions, written }: Payload): Promise<WrittenRules> {
  if (transactions.length > 0) await iptables.restore(textsOf(transactions));
  return written;
}

/** Whether a failure may be the fault of single rules, so that leaving them out can help. */
export function isAttributable(error: unknown): error is IptablesRestoreError {
  return error instanceof IptablesRestoreError && error.code !== "lock_held" && error.code !== "missing_tool";
}
