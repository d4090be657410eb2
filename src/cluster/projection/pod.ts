/** Pods: core/v1 Pod → {@link PodRecord}, and what endpoints say of theirs. For commands that name pods; the daemon keeps neither. */
import { type IpAddress, parseIpAddress } from "../../net/ip.ts";
import type { PodRecord } from "../objects.ts";
import { isJsonObject, listField, objectField, stringField } from "./fields.ts";
import { conclude, type Projection } from "./findings.ts";
import { beginObject, readName, readNamespace } from "./metadata.ts";
import { isDnsLabel, isDnsSubdomain } from "./names.ts";

/** Projects a Pod: its name, its node and the addresses that parse. Pure. */
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
 * The pod that a `targetRef` means, as `namespace/name`. One that is unusable is none: nothing is served by it. Pure.
 *
 * @param namespace of the object that it stands in, which holds where the reference has none.
 */
export function podOfTargetRef(targetRef: unknown, namespace: string): string | undefined {
  if (!isJsonObject(targetRef) || targetRef.kind !== "Pod") return undefined;
  const { name } = targetRef;
  const own = typeof targetRef.namespace === "string" && targetRef.namespace !== "" ? targetRef.namespace : namespace;
  return typeof name === "string" && isDnsSubdomain(name) && isDnsLabel(own) ? `${own}/${name}` : undefined;
}
