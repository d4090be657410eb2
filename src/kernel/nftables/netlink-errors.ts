/** Turns the kernel's errors into errors of the contract: reference nfnetlink.md §11. */
import { NetlinkError } from "../netlink/errors.ts";
import type { BatchResult } from "../netlink/socket.ts";
import type { EncodedTransaction } from "./netlink-transaction.ts";
import { NftError, type NftErrorCode } from "./nftables.ts";
import type { NftExpression } from "./wire/expressions.ts";
import { explainFailure } from "./wire/failure.ts";

const CODES: Readonly<Record<string, NftErrorCode>> = {
  ENOENT: "not_found",
  EEXIST: "exists",
  EBUSY: "busy",
  ERESTART: "conflict",
  EPERM: "denied",
  EACCES: "denied",
  EOPNOTSUPP: "unsupported",
  EPROTONOSUPPORT: "unsupported",
  EAFNOSUPPORT: "unsupported",
  EMSGSIZE: "too_large",
  too_large: "too_large",
};

const ADVICE: Partial<Readonly<Record<NftErrorCode, string>>> = {
  denied: "run as root or with CAP_NET_ADMIN",
  unsupported: "the kernel lacks it: a module or a newer kernel is needed",
};

/** Messages for errors of a whole batch, which name no operation. */
const SAID: Partial<Readonly<Record<NftErrorCode, string>>> = {
  denied: "nftables: the kernel does not permit it (EPERM)",
  conflict: "nftables: another program has changed the ruleset since it was read (ERESTART)",
};

/** Expressions that refer to objects by name. ENOENT for any other means that the kernel lacks the expression. */
const REFERRING: ReadonlySet<NftExpression["kind"]> = new Set(["lookup", "dynset", "objref", "immediate"]);

/** Converts an error of the socket, or of a request outside of transactions. */
export function fromNetlinkError(error: unknown): NftError {
  if (error instanceof NftError) return error;
  if (!(error instanceof NetlinkError)) {
    return new NftError("failed", `nftables: ${String(error)}`, undefined, { cause: error });
  }
  const code = CODES[error.code] ?? "failed";
  return new NftError(code, withAdvice(error.message, code), undefined, { cause: error });
}

/** Converts the errors of a rejected batch. The first one counts: the others mostly follow from it. */
export function fromRefusal(
  { errors }: Extract<BatchResult, { committed: false }>,
  transaction: EncodedTransaction,
): NftError {
  const [first] = errors;
  if (first === undefined) return new NftError("failed", "nftables: the kernel refused a transaction", undefined);
  const { index } = first.facts.request ?? {};
  const { expression, message } = explainFailure(transaction.batch.messages, first);
  // The kernel also returns ENOENT for an expression type that it does not have.
  const isLacking = first.code === "ENOENT" && expression !== undefined && !REFERRING.has(expression.kind);
  const isStale = errors.some((error) => error.code === "ERESTART");
  const code = isStale ? "conflict" : isLacking ? "unsupported" : (CODES[first.code] ?? "failed");
  const more = errors.length > 1 ? ` (and ${errors.length - 1} more refusals)` : "";
  return new NftError(
    code,
    withAdvice(`${SAID[code] ?? message}${more}`, code),
    index === undefined ? undefined : transaction.operationOf(index),
    { cause: first },
  );
}

function withAdvice(message: string, code: NftErrorCode): string {
  const advice = ADVICE[code];
  return advice === undefined ? message : `${message}; ${advice}`;
}
