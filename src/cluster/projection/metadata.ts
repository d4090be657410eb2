/** The parts of `metadata` that the projections need. */
import { isAbsent, isJsonObject, type JsonObject, objectField } from "./fields.ts";
import { type Findings, refuse } from "./findings.ts";
import { DNS_LABEL_RULE, DNS_SUBDOMAIN_RULE, isDnsLabel, isDnsSubdomain } from "./names.ts";
import { sharedStrings } from "./shared-strings.ts";

const labels = sharedStrings(isDnsLabel);
const subdomains = sharedStrings(isDnsSubdomain);
const NAMESPACE_BY_DEFAULT = "default";

/** `metadata` of an object; refuses an object without one. */
export function readMetadata(found: Findings, object: JsonObject): JsonObject {
  if (isAbsent(object.metadata)) refuse(found, "metadata", "is required", undefined);
  const metadata = objectField(found, object.metadata, "metadata");
  objectField(found, metadata.labels, "metadata.labels");
  objectField(found, metadata.annotations, "metadata.annotations");
  return metadata;
}

/** `metadata.name` as an RFC 1123 label (Services) or subdomain (everything else). */
export function readName(found: Findings, metadata: JsonObject, syntax: "label" | "subdomain"): string {
  const name = metadata.name;
  if (typeof name === "string" && (syntax === "label" ? isDnsLabel(name) : isDnsSubdomain(name))) return name;
  refuse(found, "metadata.name", syntax === "label" ? DNS_LABEL_RULE : DNS_SUBDOMAIN_RULE, name);
  return "";
}

/** `metadata.namespace`, shared; `default` when a manifest leaves it out. */
export function readNamespace(found: Findings, metadata: JsonObject): string {
  const namespace = metadata.namespace;
  if (isAbsent(namespace) || namespace === "") return NAMESPACE_BY_DEFAULT;
  const shared = typeof namespace === "string" ? labels.share(namespace) : undefined;
  if (shared !== undefined) return shared;
  refuse(found, "metadata.namespace", DNS_LABEL_RULE, namespace);
  return NAMESPACE_BY_DEFAULT;
}

/** The shared copy of a text that is an RFC 1123 label, else `undefined`. */
export function sharedDnsLabel(text: string): string | undefined {
  return labels.share(text);
}

/** The shared copy of a text that is an RFC 1123 subdomain, else `undefined`. */
export function sharedDnsSubdomain(text: string): string | undefined {
  return subdomains.share(text);
}

/** The value of a label or annotation as found; `undefined` when the key is absent. Pure. */
export function metadataEntry(object: unknown, map: "labels" | "annotations", key: string): unknown {
  if (!isJsonObject(object) || !isJsonObject(object.metadata)) return undefined;
  const entries = object.metadata[map];
  return isJsonObject(entries) && Object.hasOwn(entries, key) ? (entries[key] ?? "") : undefined;
}
