/** The names in a sentence. They are whole words of it that its writer could use; nothing is guessed. */

export type NameKind = "pod" | "node" | "service";
export type Names = ReadonlyMap<string, NameKind>;
/** {@link Names} in an answer. */
export type NameList = readonly (readonly [name: string, kind: NameKind])[];

/** The words of a text at odd places, without what closes a sentence or a clause; what is between them at even ones. */
export const wordsIn = (text: string): readonly string[] => text.split(/([^\s()"',;=]*[^\s()"',;=.:])/);

/** Of what failed, the Services and service ports: other subjects are no names. */
export const servicesOf = (subjects: readonly string[]): Names =>
  new Map(subjects.flatMap((one) => (/^[^/\s]+\/\S+$/.test(one) ? [[one, "service"]] : [])));

/** The names of what a service port meets on a node: its endpoints' pods and nodes, this node, and the service ports that have its addresses. */
export function namesAround({
  node,
  endpoints,
  frontends,
}: {
  readonly node: string;
  readonly endpoints: readonly { readonly pod: string | null; readonly node: string }[];
  readonly frontends: readonly { readonly owner: string | null }[];
}): Names {
  const known: readonly (readonly [string | null, NameKind])[] = [
    ...endpoints.flatMap((one) => [[one.pod, "pod"] as const, [one.node, "node"] as const]),
    ...frontends.map(({ owner }) => [owner, "service"] as const),
    [node, "node"],
  ];
  return new Map(known.flatMap(([name, kind]) => (name ? [[name, kind]] : [])));
}
