/** networking.k8s.io/v1 ServiceCIDR → {@link ServiceCidrRecord}. */
import { parseCidr } from "../../net/ip.ts";
import type { ServiceCidrRecord } from "../objects.ts";
import { objectField, stringListField } from "./fields.ts";
import { conclude, newFindings, type Projection, refuse } from "./findings.ts";
import { readMetadata, readName } from "./metadata.ts";

/** Projects a ServiceCIDR; a prefix that does not parse refuses it. Pure. */
export function projectServiceCidr(raw: unknown): Projection<ServiceCidrRecord> {
  const found = newFindings();
  const object = objectField(found, raw, "");
  const metadata = readMetadata(found, object);
  const spec = objectField(found, object.spec, "spec");
  const cidrs = stringListField(found, spec.cidrs, "spec.cidrs");
  for (const [index, cidr] of cidrs.entries()) {
    if (parseCidr(cidr) === undefined) refuse(found, `spec.cidrs[${index}]`, "must be an IP prefix", cidr);
  }
  return conclude(found, Object.freeze({ name: readName(found, metadata, "subdomain"), cidrs }));
}
