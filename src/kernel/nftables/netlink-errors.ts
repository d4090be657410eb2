/** Turns the kernel's errors into errors of the contract: reference nfnetlink.md §11. */
import { NetlinkError } from "../netlink/errors.ts";
import type { EncodedTransaction } from "./netlink-transaction.ts";
import { NftError, type NftErrorCode } from "./nftables.ts";
import type { NftExpression } from "./wire/expressions.ts";
import type { NftFailure } from "./wire/failure.ts";
import type { CommitResult } from "./wire/nftables-client.ts";

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
  result: Extract<CommitResult, { committed: false }>,
  transaction: EncodedTransaction,
): NftError {
  const [first] = result.failures;
  if (first === undefined) return new NftError("failed", "nftables: the kernel refused a transaction", undefined);
  const { index } = first.error.facts.request ?? {};
  const code = result.isStale ? "conflict" : codeOf(first);
  const said = SAID[code] ?? first.message;
  const more = result.failures.length > 1 ? ` (and ${result.failures.length - 1} more refusals)` : "";
  return new NftError(
    code,
    withAdvice(`${said}${more}`, code),
    index === undefined ? undefined : transaction.operationOf(index),
    { cause: first.error },
  );
}

function codeOf({ error, expression }: NftFailure): NftErrorCode {
  // The kernel also returns ENOENT for an expression type that it does not have.
  if (error.code === "ENOENT" && expression !== undefined && !REFERRING.has(expression.kind)) return "unsupported";
  return CODES[error.code] ?? "failed";
}

function withAdvice(message: string, code: NftErrorCode): string {
  const advice = ADVICE[code];
  return advice === undefined ? message : `${message}; ${advice}`;
}
