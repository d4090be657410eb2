/**
 * Any Kubernetes object → its records. Knows the kinds, their API groups and the `…List` kinds; the projections know
 * the fields.
 */
import { attempt } from "../../logging/attempt.ts";
import { editDistance } from "../../text/edit-distance.ts";
import type { ObjectKind, ObjectKinds } from "../object-source.ts";
import type { PodRecord, ServiceNotes } from "../objects.ts";
import { contentDigest } from "./content-digest.ts";
import { isJsonObject, type JsonObject } from "./fields.ts";
import { describeValue, type FieldProblem, joinPath } from "./findings.ts";
import { ENDPOINT_SLICE, type KindOfObject, NODE, SERVICE, SERVICE_CIDR } from "./kinds.ts";
import { isDnsLabel, isDnsSubdomain } from "./names.ts";
import { projectPod } from "./pod.ts";
import { readServiceNotes } from "./service.ts";

interface TypeMeta {
  readonly apiVersion: string;
  readonly kind: string;
}

/** One record of kind `K`; without `K`, of any kind. */
export interface KindRecord<K extends ObjectKind = ObjectKind> {
  readonly kind: K;
  readonly record: ObjectKinds[K];
}

/** The outcome for one object. `title` names it for people: `Service default/web`. */
type ProjectedObject =
  | {
      readonly status: "accepted";
      readonly title: string;
      /** Identity of the object: kind, namespace and name. */
      readonly id: string;
      /** Undefined if the proxy's watches would exclude the object (reference services.md §1). */
      readonly found: KindRecord | undefined;
      readonly warnings: readonly FieldProblem[];
      /** Set for a Pod, which has no record. */
      readonly pod?: PodRecord;
      /** Set for a Service if pods are kept. */
      readonly notes?: ServiceNotes;
    }
  | {
      readonly status: "refused";
      readonly title: string;
      /** `undefined` if the object cannot be identified. */
      readonly id: string | undefined;
      readonly problems: readonly FieldProblem[];
    }
  /** An object of a kind that the proxy does not use. */
  | { readonly status: "ignored"; readonly title: string };

/** By `apiVersion/kind`. */
const KINDS: ReadonlyMap<string, KindOfObject> = new Map<string, KindOfObject>([
  ["v1/Service", SERVICE],
  ["v1/Node", NODE],
  ["discovery.k8s.io/v1/EndpointSlice", ENDPOINT_SLICE],
  ["networking.k8s.io/v1/ServiceCIDR", SERVICE_CIDR],
  ["networking.k8s.io/v1beta1/ServiceCIDR", SERVICE_CIDR],
]);

/** The most characters of an object's JSON text. By default etcd stores at most 1.5 MiB, in a more compact form. */
const MAX_OBJECT_CHARACTERS = 4 * 2 ** 20;

/** Kept only for commands that name pods. */
const POD = "v1/Pod";

/** The types that are read, and lists of them. */
const KNOWN: readonly TypeMeta[] = [
  { apiVersion: "v1", kind: "List" },
  ...[...KINDS.keys()].flatMap((type) => {
    const [apiVersion, kind] = [type.replace(/\/[^/]*$/, ""), type.replace(/.*\//, "")];
    return [
      { apiVersion, kind },
      { apiVersion, kind: `${kind}List` },
    ];
  }),
];

/**
 * Projects one object that is not a list. Never throws on decoded JSON.
 *
 * @param typeMeta the item type of a typed list. @default the object's own `apiVersion` and `kind`
 * @param keepsPods also keeps Pods, and pod names in slices.
 */
export function projectObject(
  raw: unknown,
  typeMeta: TypeMeta | undefined = readTypeMeta(raw),
  keepsPods = false,
): ProjectedObject {
  if (!isJsonObject(raw))
    return refusedAs("document", undefined, "", "must be a Kubernetes object, as kubectl get -o yaml prints", raw);
  if (typeMeta === undefined) {
    const field = typeof raw.kind === "string" && raw.kind !== "" ? "apiVersion" : "kind";
    return refusedAs("document", undefined, field, "is required", raw[field]);
  }
  const type = `${typeMeta.apiVersion}/${typeMeta.kind}`;
  if (keepsPods && type === POD) return projectedPod(raw, typeMeta);
  const known = KINDS.get(type);
  if (known === undefined) return notRead(raw, typeMeta);
  const { isNamespaced, kind } = known;
  const title = titleOf(raw, typeMeta, isNamespaced);
  const id = identityOf(raw, typeMeta, isNamespaced);
  const notes = keepsPods && type === "v1/Service" ? { notes: readServiceNotes(raw) } : {};
  if (id !== undefined && !known.isSelected(raw)) {
    return { status: "accepted", title, id, found: undefined, warnings: [], ...notes };
  }
  const text = attempt(() => JSON.stringify(raw), RangeError);
  if (text === undefined) return refusedAs(title, id, "", "must be nested less deeply", raw);
  if (text.length > MAX_OBJECT_CHARACTERS) {
    return refusedAs(title, id, "", `must have at most ${MAX_OBJECT_CHARACTERS} characters of JSON`, text.length);
  }
  // Edits of exported objects in files leave `resourceVersion` unchanged, so a content digest replaces it.
  const projection = known.project(raw, contentDigest(text), keepsPods);
  if (!projection.ok) return { status: "refused", title, id, problems: projection.problems };
  if (id === undefined) return refusedAs(title, id, "metadata.name", "is required", undefined);
  const { record, warnings } = projection;
  return { status: "accepted", title, id, found: { kind, record }, warnings, ...notes };
}

/** Ignores an object of a foreign type, and refuses one that is probably meant to be read. */
function notRead(raw: JsonObject, typeMeta: TypeMeta): ProjectedObject {
  const meant = meantType(typeMeta);
  const isNamespaced = KINDS.get(`${meant?.apiVersion}/${meant?.kind}`)?.isNamespaced ?? true;
  const title = titleOf(raw, typeMeta, isNamespaced);
  if (meant === undefined) return { status: "ignored", title };
  // The object that is meant keeps its earlier version.
  const id = meant.kind.endsWith("List") ? undefined : identityOf(raw, meant, isNamespaced);
  return meant.kind === typeMeta.kind
    ? refusedAs(
        title,
        id,
        "apiVersion",
        `must be ${meant.apiVersion}: no other version of ${meant.kind} is read`,
        typeMeta.apiVersion,
      )
    : refusedAs(title, id, "kind", `must probably be ${meant.kind}`, typeMeta.kind);
}

/** Ignores an unusable pod like an object of another kind: it would only be shown by name. */
function projectedPod(raw: JsonObject, typeMeta: TypeMeta): ProjectedObject {
  const title = titleOf(raw, typeMeta);
  const id = identityOf(raw, typeMeta, true);
  const projection = projectPod(raw);
  if (id === undefined || !projection.ok) return { status: "ignored", title };
  return { status: "accepted", title, id, found: undefined, warnings: [], pod: projection.record };
}

/** One object of a document: the document itself, or an item of a list in it. */
interface ListedObject {
  readonly raw: unknown;
  /** The path in the document: empty, or `items[3]`. */
  readonly path: string;
  readonly typeMeta: TypeMeta | undefined;
}

const MAX_LIST_DEPTH = 8;

/** Flattens `List`, the typed lists of known kinds (`ServiceList`) and bare lists, also nested ones. */
export function* flattenLists(raw: unknown, path = "", given?: TypeMeta, depth = 0): Generator<ListedObject> {
  const typeMeta = readTypeMeta(raw) ?? given;
  if (Array.isArray(raw) && depth < MAX_LIST_DEPTH) {
    for (const [index, item] of raw.entries()) yield* flattenLists(item, `${path}[${index}]`, given, depth + 1);
    return;
  }
  const itemType = typeMeta && itemTypeOf(typeMeta);
  if (itemType === undefined || !isJsonObject(raw) || !Array.isArray(raw.items) || depth >= MAX_LIST_DEPTH) {
    yield { raw, path, typeMeta };
    return;
  }
  for (const [index, item] of raw.items.entries()) {
    yield* flattenLists(item, joinPath(path, `items[${index}]`), itemType === "any" ? undefined : itemType, depth + 1);
  }
}

/** The item type of a list kind; `undefined` if the kind is not a list, or a list of an unknown kind. */
function itemTypeOf({ apiVersion, kind }: TypeMeta): TypeMeta | "any" | undefined {
  if (!kind.endsWith("List")) return undefined;
  if (kind === "List") return apiVersion === "v1" ? "any" : undefined;
  const itemKind = kind.slice(0, -"List".length);
  const type = `${apiVersion}/${itemKind}`;
  return KINDS.has(type) || type === POD ? { apiVersion, kind: itemKind } : undefined;
}

function readTypeMeta(raw: unknown): TypeMeta | undefined {
  if (!isJsonObject(raw)) return undefined;
  const { apiVersion, kind } = raw;
  if (typeof apiVersion !== "string" || typeof kind !== "string" || apiVersion === "" || kind === "") return undefined;
  return { apiVersion, kind };
}

function identityOf(raw: JsonObject, typeMeta: TypeMeta, isNamespaced: boolean): string | undefined {
  const metadata = isJsonObject(raw.metadata) ? raw.metadata : {};
  const { name } = metadata;
  const namespace = isNamespaced ? metadata.namespace || "default" : "-";
  if (typeof name !== "string" || !isDnsSubdomain(name)) return undefined;
  if (typeof namespace !== "string" || (isNamespaced && !isDnsLabel(namespace))) return undefined;
  return `${typeMeta.kind}/${namespace}/${name}`;
}

function titleOf(raw: JsonObject, typeMeta: TypeMeta, isNamespaced = true): string {
  const metadata = isJsonObject(raw.metadata) ? raw.metadata : {};
  const name = printable(metadata.name);
  return isNamespaced
    ? `${printable(typeMeta.kind)} ${printable(metadata.namespace || "default")}/${name}`
    : `${printable(typeMeta.kind)} ${name}`;
}

/** Keeps plain names as they are and writes anything else as JSON, so that no text can forge a second log line. */
function printable(value: unknown): string {
  if (value === undefined || value === null) return "(unnamed)";
  return typeof value === "string" && /^[-A-Za-z0-9._]{1,253}$/.test(value) ? value : describeValue(value);
}

function refusedAs(
  title: string,
  id: string | undefined,
  field: string,
  message: string,
  value: unknown,
): ProjectedObject {
  return { status: "refused", title, id, problems: [{ field, message, value }] };
}

/** Farther away, in letters, is another kind. */
const MOST_EDITS = 2;
/** Kubernetes' own kinds that are as near to one of the proxy's. */
const OTHERS: ReadonlySet<string> = new Set(["pod", "podlist", "endpointslist"]);

/** The type that is probably meant: an object of a mistyped one would vanish without a word. */
function meantType({ apiVersion, kind }: TypeMeta): TypeMeta | undefined {
  const group = groupOf(apiVersion);
  const given = kind.toLowerCase();
  if (OTHERS.has(given) || !isKubernetes(group)) return undefined;
  const byDistance = KNOWN.map((type) => {
    const edits = editDistance(given, type.kind.toLowerCase());
    // Between equally near kinds, that of the same group is meant.
    return { type, edits, distance: edits + editDistance(group, groupOf(type.apiVersion)) / 100 };
  }).filter(({ edits }) => edits <= MOST_EDITS);
  return byDistance.sort((one, other) => one.distance - other.distance)[0]?.type;
}

/** Whether a group is Kubernetes' own, or one letter or two from one that the proxy reads. Others may have a Service, too. */
function isKubernetes(group: string): boolean {
  if (!group.includes(".")) return true;
  return KNOWN.some(({ apiVersion }) => editDistance(group, groupOf(apiVersion)) <= MOST_EDITS);
}

function groupOf(apiVersion: string): string {
  return apiVersion.includes("/") ? apiVersion.replace(/\/[^/]*$/, "") : "";
}
