/** Types that are probably meant to be one of the proxy's: their objects would vanish without a word. */
import { editDistance } from "../../text/edit-distance.ts";

export interface TypeMeta {
  readonly apiVersion: string;
  readonly kind: string;
}

/** Farther away, in letters, is another kind. */
const MOST_EDITS = 2;
/** Kubernetes' own kinds that are as near to one of the proxy's. */
const OTHERS: ReadonlySet<string> = new Set(["pod", "podlist", "endpointslist"]);

/** @param known the types to compare with. @returns the one that is meant; undefined for a foreign type */
export function meantType({ apiVersion, kind }: TypeMeta, known: readonly TypeMeta[]): TypeMeta | undefined {
  const group = groupOf(apiVersion);
  const given = kind.toLowerCase();
  if (OTHERS.has(given) || !isKubernetes(group, known)) return undefined;
  const byDistance = known
    .map((type) => {
      const edits = editDistance(given, type.kind.toLowerCase());
      // Between equally near kinds, that of the same group is meant.
      return { type, edits, distance: edits + editDistance(group, groupOf(type.apiVersion)) / 100 };
    })
    .filter(({ edits }) => edits <= MOST_EDITS);
  return byDistance.sort((one, other) => one.distance - other.distance)[0]?.type;
}

/** Whether a group is Kubernetes' own, or one letter or two from one that the proxy reads. Others may have a Service, too. */
function isKubernetes(group: string, known: readonly TypeMeta[]): boolean {
  if (!group.includes(".")) return true;
  return known.some(({ apiVersion }) => editDistance(group, groupOf(apiVersion)) <= MOST_EDITS);
}

function groupOf(apiVersion: string): string {
  return apiVersion.includes("/") ? apiVersion.replace(/\/[^/]*$/, "") : "";
}
