/** core/v1 Pod → {@link PodRecord}, and the pods of endpoints. Only for commands that name pods, not for the daemon. */
import { type IpAddress, parseIpAddress } from "../../net/ip.ts";
import type { PodRecord } from "../objects.ts";
import { isJsonObject, listField, objectField, stringField } from "./fields.ts";
import { conclude, type Projection } from "./findings.ts";
import { beginObject, readName, readNamespace } from "./metadata.ts";
import { isDnsLabel, isDnsSubdomain } from "./names.ts";

/** Projects a Pod: its name, its node and its valid addresses. */
export function projectPod(raw: unknown): Projection<PodRecord> {
  const { found, object, metadata } = beginObject(raw);
  const spec = objectField(found, object.spec, "spec");
  const status = objectField(found, object.status, "status");
  const listed = listField(found, status.podIPs, "status.podIPs").map((item) => (isJsonObject(item) ? item.ip : item));
  const addresses = new Set<IpAddress>();
  for (const text of [...listed, status.podIP]) {
    const address = typeof text === "string" ? parseIpAddress(text) : undefined;
    if (address !== undefined) addresses.add(address);
  }
  const record: PodRecord = {
    namespace: readNamespace(found, metadata),
    name: readName(found, metadata, "subdomain"),
    nodeName: stringField(found, spec.nodeName, "spec.nodeName"),
    addresses: Object.freeze([...addresses]),
  };
  return conclude(found, Object.freeze(record));
}

/**
 * The pod of a `targetRef`, as `namespace/name`; undefined if it is unusable, which affects no traffic.
 *
 * @param namespace the default: that of the object with the reference.
 */
export function podOfTargetRef(targetRef: unknown, namespace: string): string | undefined {
  if (!isJsonObject(targetRef) || targetRef.kind !== "Pod") return undefined;
  const { name } = targetRef;
  const own = typeof targetRef.namespace === "string" && targetRef.namespace !== "" ? targetRef.namespace : namespace;
  return typeof name === "string" && isDnsSubdomain(name) && isDnsLabel(own) ? `${own}/${name}` : undefined;
}
