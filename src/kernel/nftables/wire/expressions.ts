/**
 * The expressions of rules: reference nfnetlink.md §6. A value is a flat object, `{ kind: "cmp", sreg: 1, … }`, with the
 * kernel's attribute names. Attributes are in the kernel's order, so that listings can be compared byte by byte. An
 * unknown expression keeps its bytes.
 */
import {
  attributes,
  binary,
  type Codec,
  forEachAttribute,
  list,
  u8,
  u32be,
  u64be,
  type ValueOf,
  writeAttribute,
  zstring,
} from "../../netlink/attributes.ts";
import { data } from "./data.ts";

/** Expressions that count or limit; sets and their elements can also contain them. */
const STATEFUL = {
  counter: attributes({ bytes: [1, u64be], packets: [2, u64be] }),
  limit: attributes({ rate: [1, u64be], unit: [2, u64be], burst: [3, u32be], type: [4, u32be], flags: [5, u32be] }),
} as const;

export interface UnknownExpression {
  readonly kind: "unknown";
  readonly name: string;
  /** The undecoded attributes. */
  readonly data: Uint8Array;
}

type Tables = Readonly<Record<string, Codec<unknown>>>;
type ExpressionOf<T extends Tables> =
  | { [K in keyof T]: { readonly kind: K } & ValueOf<T[K]> }[keyof T]
  | UnknownExpression;

const NAME = 1;
const DATA = 2;

/** A codec for the expressions in these tables. */
function expressionCodec<T extends Tables>(tables: T): Codec<ExpressionOf<T>> {
  const byName: ReadonlyMap<string, Codec<unknown>> = new Map(Object.entries(tables));
  return {
    nested: true,
    write(out, value) {
      if (isUnknown(value)) {
        writeAttribute(out, NAME, zstring, value.name);
        writeAttribute(out, DATA, { ...binary, nested: true }, value.data);
        return;
      }
      const name = String(value.kind);
      const table = byName.get(name);
      if (table === undefined) throw new TypeError(`nf_tables: no such expression: ${name}`);
      writeAttribute(out, NAME, zstring, name);
      writeAttribute(out, DATA, table, value);
    },
    read(input, start, end) {
      let name = "";
      let from = end;
      let to = end;
      forEachAttribute(input, start, end, (type, valueStart, valueEnd) => {
        if (type === NAME) name = zstring.read(input, valueStart, valueEnd);
        else if (type === DATA) [from, to] = [valueStart, valueEnd];
      });
      const table = byName.get(name);
      if (table === undefined) return { kind: "unknown", name, data: binary.read(input, from, to) };
      // The table under this name reads the attributes of this kind.
      return Object.assign({ kind: name }, table.read(input, from, to)) as ExpressionOf<T>;
    },
  };
}

function isUnknown(value: { readonly kind: PropertyKey }): value is UnknownExpression {
  return value.kind === "unknown";
}

/** The expressions inside sets, elements and dynset. */
export const statefulExpression = expressionCodec(STATEFUL);

const TABLES = {
  ...STATEFUL,
  meta: attributes({ key: [2, u32be], dreg: [1, u32be], sreg: [3, u32be] }),
  payload: attributes({
    sreg: [5, u32be],
    dreg: [1, u32be],
    base: [2, u32be],
    offset: [3, u32be],
    len: [4, u32be],
    csumType: [6, u32be],
    csumOffset: [7, u32be],
    csumFlags: [8, u32be],
  }),
  cmp: attributes({ sreg: [1, u32be], op: [2, u32be], data: [3, data] }),
  bitwise: attributes({
    sreg: [1, u32be],
    dreg: [2, u32be],
    len: [3, u32be],
    op: [6, u32be],
    mask: [4, data],
    xor: [5, data],
    data: [7, data],
  }),
  lookup: attributes({ set: [1, zstring], sreg: [2, u32be], dreg: [3, u32be], flags: [5, u32be], setId: [4, u32be] }),
  immediate: attributes({ dreg: [1, u32be], data: [2, data] }),
  ct: attributes({ dreg: [1, u32be], key: [2, u32be], sreg: [4, u32be], direction: [3, u8] }),
  fib: attributes({ dreg: [1, u32be], result: [2, u32be], flags: [3, u32be] }),
  numgen: attributes({ dreg: [1, u32be], modulus: [2, u32be], type: [3, u32be], offset: [4, u32be] }),
  hash: attributes({
    sreg: [1, u32be],
    dreg: [2, u32be],
    len: [3, u32be],
    modulus: [4, u32be],
    seed: [5, u32be],
    offset: [6, u32be],
    type: [7, u32be],
  }),
  nat: attributes({
    type: [1, u32be],
    family: [2, u32be],
    regAddrMin: [3, u32be],
    regAddrMax: [4, u32be],
    regProtoMin: [5, u32be],
    regProtoMax: [6, u32be],
    flags: [7, u32be],
  }),
  masq: attributes({ flags: [1, u32be], regProtoMin: [2, u32be], regProtoMax: [3, u32be] }),
  redir: attributes({ regProtoMin: [1, u32be], regProtoMax: [2, u32be], flags: [3, u32be] }),
  reject: attributes({ type: [1, u32be], icmpCode: [2, u8] }),
  dynset: attributes({
    sregKey: [4, u32be],
    sregData: [5, u32be],
    op: [3, u32be],
    setName: [1, zstring],
    setId: [2, u32be],
    timeout: [6, u64be],
    expression: [7, statefulExpression],
    expressions: [10, list(1, statefulExpression)],
    flags: [9, u32be],
  }),
  objref: attributes({
    immName: [2, zstring],
    immType: [1, u32be],
    setSreg: [3, u32be],
    setName: [4, zstring],
    setId: [5, u32be],
  }),
  socket: attributes({ key: [1, u32be], dreg: [2, u32be], level: [3, u32be] }),
} as const;

export const expression = expressionCodec(TABLES);
export type NftExpression = ValueOf<typeof expression>;

/**
 * The chain to which the last expression of a rule jumps or goes; undefined if none. The other expressions are not decoded, so that
 * tens of thousands of rules can be read quickly.
 */
export const jumpTarget: Codec<string | undefined> = {
  nested: true,
  write: () => {
    throw new TypeError("nf_tables: the target of a rule is read-only");
  },
  read(input, start, end) {
    let from = end;
    let to = end;
    forEachAttribute(input, start, end, (_type, valueStart, valueEnd) => {
      [from, to] = [valueStart, valueEnd];
    });
    const last = expression.read(input, from, to);
    return last.kind === "immediate" ? last.data?.verdict?.chain : undefined;
  },
};
