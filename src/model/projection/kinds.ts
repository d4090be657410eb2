/** The kinds that a proxy reads, and their projections. */
import { parseCidr } from "../../net/ip.ts";
import type { ObjectKind, ObjectKinds } from "../object-source.ts";
import type { NodeRecord, ServiceCidrRecord } from "../objects.ts";
import { isEndpointSliceSelected, projectEndpointSlice } from "./endpoint-slice.ts";
import { isAbsent, itemsField, type JsonObject, objectField, stringField, stringListField } from "./fields.ts";
import { conclude, type Findings, type Projection, refuse, warn } from "./findings.ts";
import { beginObject, metadataEntry, readName } from "./metadata.ts";
import { isLabelValue, LABEL_VALUE_RULE } from "./names.ts";
import { isServiceSelected, projectService } from "./service.ts";

export interface KindOfObject<K extends ObjectKind = ObjectKind> {
  readonly kind: K;
  readonly apiVersion: string;
  /** The kind's name in Kubernetes: `Service`. */
  readonly title: string;
  readonly isNamespaced: boolean;
  /** Whether kube-proxy's watch includes the object (reference services.md §1). */
  isSelected(raw: unknown): boolean;
  /**
   * @param resourceVersion replaces the object's own, for sources whose objects carry a stale one.
   * @param keepsPods keeps pod names.
   * @param before the previous record, of which the new one may share parts.
   */
  project(
    raw: unknown,
    resourceVersion?: string,
    keepsPods?: boolean,
    before?: ObjectKinds[K],
  ): Projection<ObjectKinds[K]>;
}

export const SERVICE: KindOfObject<"services"> = {
  kind: "services",
  apiVersion: "v1",
  title: "Service",
  isNamespaced: true,
  isSelected: isServiceSelected,
  project: (raw) => projectService(raw),
};

export const ENDPOINT_SLICE: KindOfObject<"endpointSlices"> = {
  kind: "endpointSlices",
  apiVersion: "discovery.k8s.io/v1",
  title: "EndpointSlice",
  isNamespaced: true,
  isSelected: isEndpointSliceSelected,
  project: projectEndpointSlice,
};

export const SERVICE_CIDR: KindOfObject<"serviceCIDRs"> = {
  kind: "serviceCIDRs",
  apiVersion: "networking.k8s.io/v1",
  title: "ServiceCIDR",
  isNamespaced: false,
  isSelected: () => true,
  project: (raw) => projectServiceCidr(raw),
};

export const NODE: KindOfObject<"nodes"> = {
  kind: "nodes",
  apiVersion: "v1",
  title: "Node",
  isNamespaced: false,
  isSelected: () => true,
  project: (raw) => projectNode(raw),
};

/** Projects a ServiceCIDR; an invalid prefix refuses it. */
export function projectServiceCidr(raw: unknown): Projection<ServiceCidrRecord> {
  const { found, object, metadata } = beginObject(raw);
  const spec = objectField(found, object.spec, "spec");
  const cidrs = stringListField(found, spec.cidrs, "spec.cidrs");
  for (const [index, cidr] of cidrs.entries()) {
    if (parseCidr(cidr) === undefined) refuse(found, `spec.cidrs[${index}]`, "must be an IP prefix", cidr);
  }
  return conclude(found, Object.freeze({ name: readName(found, metadata, "subdomain"), cidrs }));
}

const ZONE_LABEL = "topology.kubernetes.io/zone";

/**
 * Projects a Node (reference node.md §8). Addresses are kept as they are: the model skips invalid ones. An invalid pod
 * CIDR is dropped with a warning.
 */
export function projectNode(raw: unknown): Projection<NodeRecord> {
  const { found, object, metadata } = beginObject(raw);
  const spec = objectField(found, object.spec, "spec");
  const status = objectField(found, object.status, "status");
  const record: NodeRecord = {
    name: readName(found, metadata, "subdomain"),
    uid: stringField(found, metadata.uid, "metadata.uid"),
    zone: readZone(found, object),
    addresses: itemsField(found, status.addresses, "status.addresses", (item) => {
      const { type, address } = objectField(found, item, "");
      return Object.freeze({ type: stringField(found, type, "type"), address: stringField(found, address, "address") });
    }),
    podCIDRs: readPodCidrs(found, spec),
    taintKeys: itemsField(found, spec.taints, "spec.taints", (taint) =>
      stringField(found, objectField(found, taint, "").key, "key"),
    ),
    isBeingDeleted: !isAbsent(metadata.deletionTimestamp),
  };
  return conclude(found, Object.freeze(record));
}

function readZone(found: Findings, object: JsonObject): string | undefined {
  const zone = metadataEntry(object, "labels", ZONE_LABEL);
  if (zone === undefined || (typeof zone === "string" && isLabelValue(zone))) return zone;
  refuse(found, `metadata.labels["${ZONE_LABEL}"]`, LABEL_VALUE_RULE, zone);
  return undefined;
}

/** `spec.podCIDRs`, or `spec.podCIDR` if an old object has only that. */
function readPodCidrs(found: Findings, spec: JsonObject): readonly string[] {
  const listed = stringListField(found, spec.podCIDRs, "spec.podCIDRs");
  const single = stringField(found, spec.podCIDR, "spec.podCIDR");
  const all = listed.length === 0 && single !== "" ? [single] : listed;
  const good = all.filter((cidr) => parseCidr(cidr) !== undefined);
  for (const cidr of all) {
    if (!good.includes(cidr)) warn(found, "spec.podCIDRs", "must hold only IP prefixes; this one is left out", cidr);
  }
  return Object.freeze(good);
}
