/** A projected object together with what tells it apart. */
import type { ObjectKind, ObjectKinds } from "../object-source.ts";

/** One record of kind `K`; without `K`, of any kind. */
export type ObjectEntry<K extends ObjectKind = ObjectKind> = {
  readonly [P in K]: {
    readonly kind: P;
    /** Unique among the records of its kind: `namespace/name`, or the name. */
    readonly key: string;
    /** Equal digests mean equal objects. */
    readonly digest: string;
    readonly record: ObjectKinds[P];
  };
}[K];

/** Makes an entry; `key` from the record's own names. Pure. */
export function objectEntry<K extends ObjectKind>(kind: K, record: ObjectKinds[K], digest: string): ObjectEntry<K> {
  const key = "namespace" in record ? `${record.namespace}/${record.name}` : record.name;
  return { kind, key, digest, record };
}
