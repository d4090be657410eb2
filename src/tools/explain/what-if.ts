/** `--what-if field=value`: changes one field of a Service, and tells what that changes for clients. */
import { objectKeyText, type ServiceRecord } from "../../model/objects.ts";
import { parseCidr, parseIpAddress } from "../../net/ip.ts";
import { type ClientChange, clientChanges, identityOf } from "./compare.ts";
import type { ExplainedFrontend, PortExplanation } from "./explanation.ts";
import type { Objects } from "./part-of-cluster.ts";

/** An impossible change; the message says what is possible. */
export class WhatIfError extends Error {
  override readonly name = "WhatIfError";
  /** Words that may have been meant. */
  readonly known: readonly string[];
  constructor(message: string, known: readonly string[] = []) {
    super(message);
    this.known = known;
  }
}

type Change = (service: ServiceRecord, value: string) => ServiceRecord;

function oneOf<const T extends string>(field: string, value: string, allowed: readonly T[]): T {
  const found = allowed.find((one) => one.toLowerCase() === value.toLowerCase());
  if (found !== undefined) return found;
  throw new WhatIfError(`${field} must be ${allowed.join(" or ")}, got "${value}"`, allowed);
}

function wholeNumber(field: string, value: string, most: number): number {
  const number = /^\d{1,6}$/.test(value) ? Number(value) : Number.NaN;
  if (number >= 1 && number <= most) return number;
  throw new WhatIfError(`${field} must be a whole number from 1 to ${most}, got "${value}"`);
}

/** The API server's default for session affinity without a timeout, in seconds. */
const DEFAULT_AFFINITY_SECONDS = 10_800;
const MAX_AFFINITY_SECONDS = 86_400;

const policy =
  (field: "externalTrafficPolicy" | "internalTrafficPolicy"): Change =>
  (service, value) => ({ ...service, [field]: oneOf(field, value, ["Cluster", "Local"]) });

const list =
  (field: "loadBalancerSourceRanges" | "externalIPs", isValid: (text: string) => boolean, what: string): Change =>
  (service, value) => {
    const texts = value.split(",").filter((text) => text !== "");
    const wrong = texts.find((text) => !isValid(text));
    if (wrong === undefined) return { ...service, [field]: texts };
    throw new WhatIfError(`${field} must be ${what}, with commas between, got "${wrong}"`);
  };

const FIELDS: Readonly<Record<string, Change>> = {
  externalTrafficPolicy: policy("externalTrafficPolicy"),
  internalTrafficPolicy: policy("internalTrafficPolicy"),
  sessionAffinity: (service, value) => {
    const sessionAffinity = oneOf("sessionAffinity", value, ["None", "ClientIP"]);
    const seconds = service.sessionAffinityTimeoutSeconds || DEFAULT_AFFINITY_SECONDS;
    return { ...service, sessionAffinity, sessionAffinityTimeoutSeconds: sessionAffinity === "None" ? 0 : seconds };
  },
  timeoutSeconds: (service, value) => ({
    ...service,
    sessionAffinityTimeoutSeconds: wholeNumber("timeoutSeconds", value, MAX_AFFINITY_SECONDS),
  }),
  type: (service, value) => {
    const type = oneOf("type", value, ["ClusterIP", "NodePort", "LoadBalancer"]);
    if (type === "LoadBalancer") return { ...service, type };
    const ports = type === "NodePort" ? service.ports : service.ports.map((port) => ({ ...port, nodePort: 0 }));
    return { ...service, type, ports, loadBalancerIngress: [], healthCheckNodePort: 0 };
  },
  loadBalancerSourceRanges: list(
    "loadBalancerSourceRanges",
    (text) => parseCidr(text) !== undefined,
    "prefixes such as 192.0.2.0/24",
  ),
  externalIPs: list("externalIPs", (text) => parseIpAddress(text) !== undefined, "IP addresses"),
};

/** Fields of a Service that {@link withChange} can change. */
export const WHAT_IF_FIELDS: readonly string[] = Object.keys(FIELDS);

/**
 * The objects with `field=value` in some Services; the field may start with `spec.`.
 *
 * @param services `namespace/name` of those Services. @throws WhatIfError
 */
export function withChange(objects: Objects, services: ReadonlySet<string>, wish: string): Objects {
  const equals = wish.indexOf("=");
  if (equals < 1) throw new WhatIfError(`--what-if must be field=value, got "${wish}"`);
  const field = wish
    .slice(0, equals)
    .replace(/^spec\./, "")
    .replace(/^sessionAffinityConfig\.clientIP\./, "");
  const name = WHAT_IF_FIELDS.find((known) => known.toLowerCase() === field.toLowerCase());
  const change = name === undefined ? undefined : FIELDS[name];
  if (change === undefined) {
    throw new WhatIfError(`--what-if knows ${WHAT_IF_FIELDS.join(", ")}, got "${field}"`, WHAT_IF_FIELDS);
  }
  const value = wish.slice(equals + 1);
  return {
    ...objects,
    services: objects.services.map((service) =>
      services.has(objectKeyText(service)) ? change(service, value) : service,
    ),
  };
}

/** @param before the current service ports. @param after with the change. @returns a line for each difference for clients. */
export function wishText(wish: string, before: readonly PortExplanation[], after: readonly PortExplanation[]): string {
  const later = new Map(after.map((one) => [identityOf(one), one]));
  const pairs = before.map((one) => [one, later.get(identityOf(one))] as const);
  const changes = pairs.flatMap(([one, other]) => [...clientChanges(one, other), ...allocations(one, other)]);
  if (changes.length === 0) return `With ${wish}, nothing would be different for clients.\n`;
  return `With ${wish}:\n${changes.map(({ servicePort, node, family, what }) => `  ${servicePort} on ${node}, ${family}: ${what}\n`).join("")}`;
}

/** What the cluster allocates for a Service of the new type, which the objects do not have yet. */
function allocations(before: PortExplanation, after: PortExplanation | undefined): readonly ClientChange[] {
  if (after === undefined || after.type === before.type || after.type === "ClusterIP") return [];
  const isMissing = (kind: ExplainedFrontend["kind"]) => !after.frontends.some((frontend) => frontend.kind === kind);
  const given = [
    ...(isMissing("node-port") ? ["a node port"] : []),
    ...(after.type === "LoadBalancer" && isMissing("load-balancer") ? ["a load balancer's address"] : []),
  ];
  if (given.length === 0) return [];
  return [
    {
      ...after,
      servicePort: `${after.servicePort} ${after.protocol}`,
      what: `gets ${given.join(" and ")}, which no object has yet`,
    },
  ];
}
