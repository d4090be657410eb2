/** The parts of `metadata` that the projections need. */
import { isAbsent, isJsonObject, type JsonObject, objectField } from "./fields.ts";
import { type Findings, newFindings, refuse } from "./findings.ts";
import { DNS_LABEL_RULE, DNS_SUBDOMAIN_RULE, isDnsLabel, isDnsSubdomain } from "./names.ts";

const sharedDnsLabel = sharedStrings(isDnsLabel);
export const sharedDnsSubdomain = sharedStrings(isDnsSubdomain);
const NAMESPACE_BY_DEFAULT = "default";

/** Begins to read an object; a missing `metadata` is recorded. */
export function beginObject(raw: unknown) {
  const found = newFindings();
  const object = objectField(found, raw, "");
  if (isAbsent(object.metadata)) refuse(found, "metadata", "is required", undefined);
  const metadata = objectField(found, object.metadata, "metadata");
  objectField(found, metadata.labels, "metadata.labels");
  objectField(found, metadata.annotations, "metadata.annotations");
  return { found, object, metadata };
}

/** Reads `metadata.name` as an RFC 1123 label (Services) or subdomain (everything else). */
export function readName(found: Findings, metadata: JsonObject, syntax: "label" | "subdomain"): string {
  const name = metadata.name;
  if (typeof name === "string" && (syntax === "label" ? isDnsLabel(name) : isDnsSubdomain(name))) return name;
  refuse(found, "metadata.name", syntax === "label" ? DNS_LABEL_RULE : DNS_SUBDOMAIN_RULE, name);
  return "";
}

/** Reads `metadata.namespace` as a shared string; `default` if a manifest omits it. */
export function readNamespace(found: Findings, metadata: JsonObject): string {
  const namespace = metadata.namespace;
  if (isAbsent(namespace) || namespace === "") return NAMESPACE_BY_DEFAULT;
  const shared = typeof namespace === "string" ? sharedDnsLabel(namespace) : undefined;
  if (shared !== undefined) return shared;
  refuse(found, "metadata.namespace", DNS_LABEL_RULE, namespace);
  return NAMESPACE_BY_DEFAULT;
}

/** Reads a port's name as a shared DNS label; empty if absent. */
export function readPortName(found: Findings, value: unknown, field: string): string {
  if (isAbsent(value) || value === "") return "";
  const shared = typeof value === "string" ? sharedDnsLabel(value) : undefined;
  if (shared === undefined) refuse(found, field, DNS_LABEL_RULE, value);
  return shared ?? "";
}

/** A node name as a shared string; empty if absent, undefined if invalid. */
export function sharedNodeName(value: unknown): string | undefined {
  if (isAbsent(value) || value === "") return "";
  return typeof value === "string" ? sharedDnsSubdomain(value) : undefined;
}

/** The value of a label or annotation as found; `undefined` if the key is absent. */
export function metadataEntry(object: unknown, map: "labels" | "annotations", key: string): unknown {
  if (!isJsonObject(object) || !isJsonObject(object.metadata)) return undefined;
  const entries = object.metadata[map];
  return isJsonObject(entries) && Object.hasOwn(entries, key) ? (entries[key] ?? "") : undefined;
}

/**
 * The size limit of a pool. Pools keep one copy of each string that thousands of records repeat (namespaces, node
 * names, port names, zones). They contain only valid strings, so a lookup is also the check. The limit matters in a
 * cluster whose nodes come and go for months.
 */
const LIMIT = 16_384;

/** Creates a pool: a function that returns the shared copy of a valid string, and `undefined` for an invalid one. */
export function sharedStrings(isValid: (text: string) => boolean): (text: string) => string | undefined {
  const known = new Map<string, string>();
  return (text) => {
    const shared = known.get(text);
    if (shared !== undefined) return shared;
    if (!isValid(text)) return undefined;
    if (known.size >= LIMIT) known.clear();
    known.set(text, text);
    return text;
  };
}
