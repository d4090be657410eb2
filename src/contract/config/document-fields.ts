/**
 * The fields of a configuration document as tables, which define the document's type, the empty document and the
 * decoder (`v1alpha1-decode.ts`). Reference configuration.md §3.1, §3.2.
 */
import { type Quantity, ZERO_QUANTITY } from "./quantity.ts";

/** `logging.flushFrequency`: a duration text, or whole nanoseconds; written back in the form it was read. */
export interface FlushFrequency {
  readonly nanoseconds: bigint;
  readonly asText: boolean;
}

/** What a field of each kind holds. The "optional" kinds are pointers upstream: they are absent if not set. */
export interface FieldTypes {
  readonly text: string;
  /** A text of Go's type ProxyMode; the next is of type LocalMode. */
  readonly proxyMode: string;
  readonly localMode: string;
  readonly texts: readonly string[];
  readonly bool: boolean;
  readonly optionalBool: boolean;
  readonly int32: number;
  readonly optionalInt32: number;
  readonly verbosity: number;
  readonly uint32: number;
  readonly float32: number;
  /** Nanoseconds. */
  readonly duration: bigint;
  /** Nanoseconds. */
  readonly optionalDuration: bigint;
  readonly flushFrequency: FlushFrequency;
  readonly quantity: Quantity;
  /** Whether each gate is on, by name. */
  readonly gates: Readonly<Record<string, boolean>>;
}

export type FieldKind = keyof FieldTypes;
type OptionalKind = Extract<FieldKind, `optional${string}`>;

export interface Struct<F extends Fields = Fields> {
  /** Upstream's type, with its package: part of error texts. */
  readonly goType: string;
  readonly fields: F;
}

export interface StructList<F extends Fields = Fields> {
  readonly goType: string;
  readonly each: Struct<F>;
}

export type Field = FieldKind | Struct | StructList;

export interface Fields {
  readonly [name: string]: Field;
}

/** Fields of one mode's section. */
export type SectionFields = Readonly<Record<string, FieldKind>>;

type TimeKind = "duration" | "optionalDuration";

/** The program has only one of each of these, for all modes. */
type SharedField = "syncPeriod" | "minSyncPeriod" | "masqueradeAll";

/** The fields of a section as the program uses them: times are milliseconds, and say so in their names. */
export type SettingsOf<F extends SectionFields> = {
  readonly [N in Exclude<keyof F & string, SharedField> as F[N] extends TimeKind ? `${N}Ms` : N]: F[N] extends TimeKind
    ? number
    : FieldTypes[F[N]];
};

export type PlainValue = null | boolean | number | string | readonly PlainValue[] | PlainObject;

/** Part of a document as it is written back. */
export interface PlainObject {
  readonly [key: string]: PlainValue;
}

type ValueOf<F> = F extends FieldKind
  ? FieldTypes[F]
  : F extends StructList<infer Each>
    ? readonly DocumentOf<Each>[]
    : F extends Struct<infer Inner>
      ? DocumentOf<Inner>
      : never;

/** A decoded object: a field that is not set has its Go type's zero value, or is absent if its kind is optional. */
export type DocumentOf<F> = {
  readonly [N in keyof F as F[N] extends OptionalKind ? never : N]: ValueOf<F[N]>;
} & { readonly [N in keyof F as F[N] extends OptionalKind ? N : never]?: ValueOf<F[N]> | undefined };

const ZEROES: { readonly [K in FieldKind]: K extends OptionalKind ? undefined : FieldTypes[K] } = {
  text: "",
  proxyMode: "",
  localMode: "",
  texts: [],
  bool: false,
  optionalBool: undefined,
  int32: 0,
  optionalInt32: undefined,
  verbosity: 0,
  uint32: 0,
  float32: 0,
  duration: 0n,
  optionalDuration: undefined,
  flushFrequency: { nanoseconds: 0n, asText: true },
  quantity: ZERO_QUANTITY,
  gates: {},
};

/** The value of a field that is not set. */
export function zeroOf(field: Field): unknown {
  if (typeof field === "string") return ZEROES[field];
  return "each" in field ? [] : emptyObject(field.fields);
}

/** An object in which nothing is set: a {@link DocumentOf} these fields. */
export function emptyObject(fields: Fields): Record<string, unknown> {
  const zeroes = Object.entries(fields).map(([name, field]) => [name, zeroOf(field)] as const);
  return Object.fromEntries(zeroes.filter(([, zero]) => zero !== undefined));
}

/** Upstream writes an empty list as an absent one. */
export function listOrNull(list: readonly string[]): readonly string[] | null {
  return list.length === 0 ? null : list;
}
