/** core/v1 Service → {@link ServiceNotes}: whether the proxy's watches show it, and what else people ask about it. */
import type { ServiceNotes } from "../objects.ts";
import { isJsonObject, listField, objectField } from "./fields.ts";
import { newFindings } from "./findings.ts";
import { metadataEntry, readMetadata, readName, readNamespace } from "./metadata.ts";
import { isHeadlessService, PROXY_NAME_LABEL } from "./selectors.ts";

/** Never fails: what cannot be read is left out, and refused elsewhere. Pure. */
export function readServiceNotes(raw: unknown): ServiceNotes {
  const found = newFindings();
  const object = objectField(found, raw, "");
  const metadata = readMetadata(found, object);
  const status = objectField(found, object.status, "status");
  const { ingress } = objectField(found, status.loadBalancer, "status.loadBalancer");
  const { selector } = objectField(found, object.spec, "spec");
  const proxyName = metadataEntry(raw, "labels", PROXY_NAME_LABEL);
  return {
    namespace: readNamespace(found, metadata),
    name: readName(found, metadata, "label"),
    isHeadless: isHeadlessService(raw),
    proxyName: proxyName === undefined ? undefined : String(proxyName),
    selector: isJsonObject(selector)
      ? Object.entries(selector)
          .map(([key, value]) => `${key}=${value}`)
          .join(",")
      : "",
    hostNames: listField(found, ingress, "").flatMap((item) =>
      isJsonObject(item) && typeof item.hostname === "string" && item.hostname !== "" ? item.hostname : [],
    ),
  };
}
