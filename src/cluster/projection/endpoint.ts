/**
 * One `endpoints[]` entry of an EndpointSlice. This is the hot path of a big cluster (150,000 of them): a path text is
 * only made for an entry that is wrong.
 */

import { exactList } from "../../net/exact-list.ts";
import { familyOf, type IpAddress, type IpFamily, parseIpAddress, specialAddress } from "../../net/ip.ts";
import type { EndpointRecord } from "../objects.ts";
import { isAbsent, isJsonObject, type JsonObject } from "./fields.ts";
import { type Findings, refuse, warn } from "./findings.ts";
import { sharedDnsSubdomain, sharedStrings } from "./metadata.ts";
import { DNS_SUBDOMAIN_RULE, isLabelValue, LABEL_VALUE_RULE } from "./names.ts";
import { podOfTargetRef } from "./pod.ts";

const zones = sharedStrings((text) => text !== "" && isLabelValue(text));

/**
 * Reads one endpoint.
 *
 * @param podNamespace of pods that are named without one; undefined: names of pods are not kept.
 * @returns `undefined` when it is left out (with a warning) or refuses the object.
 */
export function readEndpoint(
  found: Findings,
  item: unknown,
  index: number,
  family: IpFamily,
  podNamespace?: string,
): EndpointRecord | undefined {
  if (!isJsonObject(item)) {
    refuse(found, `endpoints[${index}]`, "must be an object", item);
    return undefined;
  }
  const address = readAddress(found, item.addresses, index, family);
  const nodeName = readNodeName(found, item.nodeName, index);
  const conditions = readConditions(found, item.conditions, index);
  const hints = isJsonObject(item.hints) ? item.hints : undefined;
  if (hints === undefined && !isAbsent(item.hints)) {
    refuse(found, `endpoints[${index}].hints`, "must be an object", item.hints);
  }
  if (address === undefined) return undefined;
  const record: EndpointRecord = {
    address,
    nodeName,
    ready: readCondition(found, conditions?.ready, "ready", index, true),
    serving: readCondition(found, conditions?.serving, "serving", index, true),
    terminating: readCondition(found, conditions?.terminating, "terminating", index, false),
    zoneHints: hints && readHints(found, hints.forZones, "forZones", index),
    nodeHints: hints && readHints(found, hints.forNodes, "forNodes", index),
  };
  const pod = podNamespace === undefined ? undefined : podOfTargetRef(item.targetRef, podNamespace);
  return Object.freeze(pod === undefined ? record : { ...record, pod });
}

/** The first address, with which the endpoint stands and falls. The others are not used; wrong ones are named. */
function readAddress(found: Findings, value: unknown, index: number, family: IpFamily): IpAddress | undefined {
  if (!Array.isArray(value) || value.length === 0) {
    const field = `endpoints[${index}].addresses`;
    if (isAbsent(value) || Array.isArray(value)) warn(found, field, "is empty; this endpoint is left out", value);
    else refuse(found, field, "must be a list", value);
    return undefined;
  }
  let first: IpAddress | undefined;
  for (let position = 0; position < value.length; position++) {
    const text: unknown = value[position];
    const address = typeof text === "string" ? parseIpAddress(text) : undefined;
    if (address !== undefined && familyOf(address) === family && specialAddress(address) === undefined) {
      first ??= address;
      continue;
    }
    const field = `endpoints[${index}].addresses[${position}]`;
    const lost = position === 0 ? "this endpoint is left out" : "it is left out";
    warn(found, field, `${addressRule(address, family)}; ${lost}`, text);
    if (position === 0) return undefined;
  }
  return first;
}

/** Why an address is left out; `undefined` is a text that is none. */
function addressRule(address: IpAddress | undefined, family: IpFamily): string {
  if (address === undefined || familyOf(address) !== family) {
    return `must be an ${family} address, as addressType says`;
  }
  return `must be the address of a pod or a host, not a special one (${specialAddress(address)})`;
}

function readNodeName(found: Findings, value: unknown, index: number): string {
  if (isAbsent(value) || value === "") return "";
  const shared = typeof value === "string" ? sharedDnsSubdomain(value) : undefined;
  if (shared === undefined) refuse(found, `endpoints[${index}].nodeName`, DNS_SUBDOMAIN_RULE, value);
  return shared ?? "";
}

function readConditions(found: Findings, value: unknown, index: number): JsonObject | undefined {
  if (isJsonObject(value)) return value;
  if (!isAbsent(value)) refuse(found, `endpoints[${index}].conditions`, "must be an object", value);
  return undefined;
}

function readCondition(found: Findings, value: unknown, name: string, index: number, ifAbsent: boolean): boolean {
  if (typeof value === "boolean") return value;
  if (!isAbsent(value)) refuse(found, `endpoints[${index}].conditions.${name}`, "must be true or false", value);
  return ifAbsent;
}

function readHints(
  found: Findings,
  value: unknown,
  name: "forZones" | "forNodes",
  index: number,
): readonly string[] | undefined {
  if (isAbsent(value)) return undefined;
  if (!Array.isArray(value)) {
    refuse(found, `endpoints[${index}].hints.${name}`, "must be a list", value);
    return undefined;
  }
  if (value.length === 0) return undefined;
  const hints: string[] = [];
  for (const [position, hint] of value.entries()) {
    const text: unknown = isJsonObject(hint) ? hint.name : undefined;
    const shared = typeof text === "string" ? shareHint(text, name) : undefined;
    if (shared !== undefined) hints.push(shared);
    else refuse(found, `endpoints[${index}].hints.${name}[${position}].name`, HINT_RULES[name], text ?? hint);
  }
  return Object.freeze(exactList(hints));
}

const HINT_RULES = { forZones: LABEL_VALUE_RULE, forNodes: DNS_SUBDOMAIN_RULE } as const;

function shareHint(text: string, name: "forZones" | "forNodes"): string | undefined {
  return name === "forZones" ? zones.share(text) : sharedDnsSubdomain(text);
}
