/** `spec.clusterIP`, `clusterIPs` and `ipFamilies` of a Service, completed and checked against each other. */
import { familyOf, IP_FAMILIES, type IpFamily, parseIpAddress, specialAddress } from "../../net/ip.ts";
import { choiceField, type JsonObject, listField, stringField, stringListField } from "./fields.ts";
import { type Findings, refuse, warn } from "./findings.ts";

interface ClusterIps {
  readonly clusterIP: string;
  readonly clusterIPs: readonly string[];
  readonly ipFamilies: readonly IpFamily[];
}

const NO_FAMILIES: readonly IpFamily[] = Object.freeze([]);
/** Nearly every Service has one of these four lists: they are shared. */
const COMMON_FAMILIES = new Map<string, readonly IpFamily[]>([
  ["IPv4", Object.freeze(["IPv4" as const])],
  ["IPv6", Object.freeze(["IPv6" as const])],
  ["IPv4,IPv6", Object.freeze(["IPv4" as const, "IPv6" as const])],
  ["IPv6,IPv4", Object.freeze(["IPv6" as const, "IPv4" as const])],
]);

/**
 * Reads the three fields as the API server stores them: each of `clusterIP` and `clusterIPs` is filled in from the
 * other, and `ipFamilies` from the addresses. Where `ipFamilies` contradicts an address, the address is believed and
 * the contradiction is a warning: the Service keeps working in the family it has an address of.
 */
export function readClusterIps(found: Findings, spec: JsonObject): ClusterIps {
  const single = stringField(found, spec.clusterIP, "spec.clusterIP");
  const listed = stringListField(found, spec.clusterIPs, "spec.clusterIPs");
  const declared = readFamilies(found, spec);
  const clusterIPs = listed.length === 0 && single !== "" ? Object.freeze([single]) : listed;
  const first = clusterIPs[0] ?? "";
  if (single !== "" && !isSameAddress(single, first)) {
    refuse(found, "spec.clusterIPs[0]", `must be the same as spec.clusterIP (${JSON.stringify(single)})`, first);
  }
  if (first === "" || first === "None") return { clusterIP: first, clusterIPs, ipFamilies: declared };
  const firstField = listed.length === 0 ? "spec.clusterIP" : "spec.clusterIPs[0]";
  return { clusterIP: first, clusterIPs, ipFamilies: checkedFamilies(found, clusterIPs, firstField, declared) };
}

function checkedFamilies(
  found: Findings,
  clusterIPs: readonly string[],
  firstField: string,
  declared: readonly IpFamily[],
): readonly IpFamily[] {
  const actual: IpFamily[] = [];
  for (const [index, text] of clusterIPs.entries()) {
    const address = parseIpAddress(text);
    const field = index === 0 ? firstField : `spec.clusterIPs[${index}]`;
    if (address === undefined) {
      refuse(found, field, "must be an IP address, or absent", text);
      continue;
    }
    const special = specialAddress(address);
    if (special !== undefined) {
      refuse(found, field, `must be an address of a Service CIDR, not a special one (${special})`, text);
    }
    const family = familyOf(address);
    if (actual.includes(family)) {
      refuse(found, `spec.clusterIPs[${index}]`, "must be of the other IP family than the one before it", text);
    }
    const wanted = declared[index];
    if (wanted !== undefined && wanted !== family) {
      warn(found, `spec.ipFamilies[${index}]`, `contradicts the cluster IP ${address}; taken as ${family}`, wanted);
    }
    actual.push(family);
  }
  for (const family of declared.slice(actual.length)) if (!actual.includes(family)) actual.push(family);
  return sharedFamilies(actual);
}

function readFamilies(found: Findings, spec: JsonObject): readonly IpFamily[] {
  const items = listField(found, spec.ipFamilies, "spec.ipFamilies");
  if (items.length === 0) return NO_FAMILIES;
  return sharedFamilies(
    items.map((item, index) => choiceField(found, item, `spec.ipFamilies[${index}]`, IP_FAMILIES, "IPv4")),
  );
}

function sharedFamilies(families: readonly IpFamily[]): readonly IpFamily[] {
  return COMMON_FAMILIES.get(families.join(",")) ?? Object.freeze([...families]);
}

function isSameAddress(a: string, b: string): boolean {
  return a === b || (parseIpAddress(a) ?? a) === (parseIpAddress(b) ?? b);
}
