/**
 * The fields of one mode's section of the configuration file, as a table: the schema, the empty document and the types are
 * all made from it, and a program that starts without a file loads no schema library. Pure.
 */

/** What a field may hold: the Go type behind it, and whether upstream keeps it as a pointer ("optional"). */
interface FieldTypes {
  readonly text: string;
  readonly texts: readonly string[];
  readonly bool: boolean;
  readonly optionalBool: boolean | null;
  readonly optionalInt32: number | null;
  /** Nanoseconds. */
  readonly duration: bigint;
  /** Nanoseconds. */
  readonly optionalDuration: bigint | null;
}

export type FieldKind = keyof FieldTypes;
type OptionalKind = Extract<FieldKind, `optional${string}`>;

/** Field name → kind. */
export type SectionFields = Readonly<Record<string, FieldKind>>;

type OptionalNames<F extends SectionFields> = {
  [N in keyof F]: F[N] extends OptionalKind ? N : never;
}[keyof F];

/** A decoded section: what is not set is the zero value of its Go type, or absent where the kind is optional. */
export type SectionDocument<F extends SectionFields> = {
  readonly [N in Exclude<keyof F, OptionalNames<F>>]: FieldTypes[F[N]];
} & { readonly [N in OptionalNames<F>]?: FieldTypes[F[N]] | undefined };

const ZERO: { readonly [K in Exclude<FieldKind, OptionalKind>]: FieldTypes[K] } = {
  text: "",
  texts: [],
  bool: false,
  duration: 0n,
};

/** The section in which nothing is set. */
export function emptySection<F extends SectionFields>(fields: F): SectionDocument<F> {
  const set = Object.entries(fields).filter(([, kind]) => kind in ZERO);
  // The filter keeps exactly the fields that are not optional, each with the zero value of its kind.
  return Object.fromEntries(set.map(([name, kind]) => [name, ZERO[kind as keyof typeof ZERO]])) as SectionDocument<F>;
}
