/** Explains why a batch was rejected, in terms of the objects that were sent, by decoding the message that the kernel names. */
import { byteReader, type Codec, forEachAttribute } from "../../netlink/attributes.ts";
import { align4, HOST_IS_LITTLE_ENDIAN } from "../../netlink/constants.ts";
import type { NetlinkError } from "../../netlink/errors.ts";
import type { MessageBuffer } from "../../netlink/message-buffer.ts";
import { NFNL_HEADERS_BYTES } from "../../netlink/nfnetlink.ts";
import { KINDS, type NftKind, operationOfType } from "./batch.ts";
import { NFTA_SET_ELEM_LIST_ELEMENTS } from "./constants.ts";
import { expression, type NftExpression } from "./expressions.ts";
import { element, type NftElementObject } from "./objects.ts";

const NFTA_RULE_EXPRESSIONS = 4;

/** One rejected operation. */
export interface NftFailure {
  /** The kernel's error: errno, text, offset. */
  readonly error: NetlinkError;
  readonly verb: "add" | "delete" | undefined;
  readonly kind: NftKind | undefined;
  /** The operation's names, as far as it has them: `chain` is the chain itself or that of the rule, `set` likewise. */
  readonly table?: string | undefined;
  readonly chain?: string | undefined;
  readonly set?: string | undefined;
  /** The rejected element, if the kernel names it. */
  readonly element?: NftElementObject | undefined;
  /** The rejected expression of a rule, if the kernel names it. */
  readonly expression?: NftExpression | undefined;
  /** For people: `nf_tables: add rule to chain service-…: chain filter, table kube-proxy: ENOENT`. */
  readonly message: string;
}

/** Explains an error of a batch. An error that names no operation (batch markers, lost answers) has no kind. */
export function explainFailure(messages: MessageBuffer, error: NetlinkError): NftFailure {
  const index = error.facts.request?.index;
  const found = index === undefined ? undefined : operationOfType(messages.typeOf(index));
  if (index === undefined || found === undefined) {
    return { error, verb: undefined, kind: undefined, message: `nf_tables: ${error.message}` };
  }
  const names = readNames(messages, index, found.kind);
  const { offset } = error.facts;
  const failure = {
    error,
    ...found,
    ...names,
    element:
      found.kind === "elements" ? memberAt(messages, index, NFTA_SET_ELEM_LIST_ELEMENTS, element, offset) : undefined,
    expression:
      found.kind === "rule" ? memberAt(messages, index, NFTA_RULE_EXPRESSIONS, expression, offset) : undefined,
  };
  return { ...failure, message: describe(failure) };
}

type Names = Pick<NftFailure, "table" | "chain" | "set">;

function readNames(messages: MessageBuffer, index: number, kind: NftKind): Names {
  const { input, start, end } = payload(messages, index);
  // Every object has these fields for what contains it, and `name` for itself.
  const object = KINDS[kind].codec.read(input, start, end) as Names & { readonly name?: string };
  const { name, table = name, chain = name, set = name } = object;
  return {
    table,
    ...((kind === "chain" || kind === "rule") && { chain }),
    ...((kind === "set" || kind === "elements") && { set }),
  };
}

/** The member of a list attribute at the offset that the kernel's error names. */
function memberAt<T>(
  messages: MessageBuffer,
  index: number,
  list: number,
  member: Codec<T>,
  offset: number | undefined,
): T | undefined {
  if (offset === undefined) return undefined;
  const { input, start, end, messageStart } = payload(messages, index);
  const at = messageStart + offset;
  let found: T | undefined;
  forEachAttribute(input, start, end, (type, from, to) => {
    if (type !== list || at < from || at >= to) return;
    forEachAttribute(input, from, to, (_type, memberStart, memberEnd) => {
      if (at >= memberStart - 4 && at < align4(memberEnd)) found = member.read(input, memberStart, memberEnd);
    });
  });
  return found;
}

function payload(messages: MessageBuffer, index: number) {
  const input = byteReader(messages.bytes);
  const messageStart = messages.startOf(index);
  const length = input.view.getUint32(messageStart, HOST_IS_LITTLE_ENDIAN);
  return { input, messageStart, start: messageStart + NFNL_HEADERS_BYTES, end: messageStart + length };
}

function describe(failure: Omit<NftFailure, "message">): string {
  const { verb, kind, error } = failure;
  const where = [
    failure.chain === undefined ? undefined : `chain ${failure.chain}`,
    failure.set === undefined ? undefined : `set ${failure.set}`,
    failure.table === undefined ? undefined : `table ${failure.table}`,
  ].filter((part) => part !== undefined);
  const key = failure.element?.key?.value;
  const which = key === undefined ? "" : ` with key ${Buffer.from(key).toString("hex")}`;
  const what = failure.expression === undefined ? "" : ` ${describeExpression(failure.expression)}`;
  const why = error.facts.kernelMessage === undefined ? error.code : `${error.code} (${error.facts.kernelMessage})`;
  return `nf_tables: ${verb} ${kind === "elements" ? "element" : kind}${which}${what}: ${where.join(", ")}: ${why}`;
}

/** The object that an expression refers to, which may be missing; otherwise the expression itself. */
function describeExpression(expression: NftExpression): string {
  const chain = expression.kind === "immediate" ? expression.data?.verdict?.chain : undefined;
  if (chain !== undefined) return `to chain ${chain}`;
  if (expression.kind === "lookup" && expression.set !== undefined) return `with set ${expression.set}`;
  if (expression.kind === "dynset" && expression.setName !== undefined) return `with set ${expression.setName}`;
  return `with expression ${expression.kind}`;
}
