/** Explains why a batch was rejected, in terms of the objects that were sent, by decoding the message that the kernel names. */
import { type ByteReader, byteReader, type Codec, forEachAttribute } from "../../netlink/attributes.ts";
import { HOST_IS_LITTLE_ENDIAN } from "../../netlink/constants.ts";
import type { NetlinkError } from "../../netlink/errors.ts";
import { align4, type MessageBuffer } from "../../netlink/message-buffer.ts";
import { NFNL_HEADERS_BYTES } from "../../netlink/nfnetlink.ts";
import { KINDS, operationOfType } from "./batch.ts";
import { NFTA_SET_ELEM_LIST_ELEMENTS } from "./constants.ts";
import { expression, type NftExpression } from "./expressions.ts";
import { element } from "./objects.ts";

const NFTA_RULE_EXPRESSIONS = 4;

/** What the kernel rejected. */
interface NftFailure {
  /** The rejected expression of a rule, if the kernel names it. */
  readonly expression?: NftExpression | undefined;
  /** For people: `nf_tables: add rule to chain service-…: chain filter, table kube-proxy: ENOENT`. */
  readonly message: string;
}

/** Explains an error of a batch, as far as it names an operation (not a batch marker, not lost answers). */
export function explainFailure(messages: MessageBuffer, error: NetlinkError): NftFailure {
  const { request, offset, kernelMessage } = error.facts;
  const operation = request && operationOfType(request.type);
  if (request === undefined || operation === undefined) return { message: `nf_tables: ${error.message}` };
  const { verb, kind } = operation;
  const input = byteReader(messages.bytes);
  const messageStart = messages.startOf(request.index);
  const payload = {
    ...{ input, start: messageStart + NFNL_HEADERS_BYTES },
    end: messageStart + input.view.getUint32(messageStart, HOST_IS_LITTLE_ENDIAN),
  };
  const at = offset === undefined ? Number.NaN : messageStart + offset;
  const key = kind === "elements" ? memberAt(payload, at, NFTA_SET_ELEM_LIST_ELEMENTS, element)?.key?.value : undefined;
  const which = key === undefined ? "" : ` with key ${Buffer.from(key).toString("hex")}`;
  const found = kind === "rule" ? memberAt(payload, at, NFTA_RULE_EXPRESSIONS, expression) : undefined;
  const how = found === undefined ? "" : ` ${describeExpression(found)}`;
  // Every object has these fields for what contains it, and `name` for itself.
  const object = KINDS[kind].codec.read(input, payload.start, payload.end) as Names;
  const { name, table = name, chain = name, set = name } = object;
  // An anonymous set has a number instead of a name.
  const places = {
    chain: kind === "chain" || kind === "rule" ? chain : undefined,
    set: kind === "set" || kind === "elements" ? set : undefined,
    table,
  };
  const where = Object.entries(places).flatMap(([what, text]) => (text === undefined ? [] : [`${what} ${text}`]));
  const why = kernelMessage === undefined ? error.code : `${error.code} (${kernelMessage})`;
  const verbAndKind = `${verb} ${kind === "elements" ? "element" : kind}`;
  return { expression: found, message: `nf_tables: ${verbAndKind}${which}${how}: ${where.join(", ")}: ${why}` };
}

type Names = Partial<Record<"table" | "chain" | "set" | "name", string>>;

interface Payload {
  readonly input: ByteReader;
  readonly start: number;
  readonly end: number;
}

/** The member of a list attribute at this byte. */
function memberAt<T>({ input, start, end }: Payload, at: number, list: number, member: Codec<T>): T | undefined {
  let found: T | undefined;
  forEachAttribute(input, start, end, (type, from, to) => {
    if (type !== list || at < from || at >= to) return;
    forEachAttribute(input, from, to, (_type, memberStart, memberEnd) => {
      if (at >= memberStart - 4 && at < align4(memberEnd)) found = member.read(input, memberStart, memberEnd);
    });
  });
  return found;
}

/** The object that an expression refers to, which may be missing; otherwise the expression itself. */
function describeExpression(expression: NftExpression): string {
  const chain = expression.kind === "immediate" ? expression.data?.verdict?.chain : undefined;
  if (chain !== undefined) return `to chain ${chain}`;
  if (expression.kind === "lookup" && expression.set !== undefined) return `with set ${expression.set}`;
  if (expression.kind === "dynset" && expression.setName !== undefined) return `with set ${expression.setName}`;
  return `with expression ${expression.kind}`;
}
