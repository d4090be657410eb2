/**
 * What the kernelspace mode would ask HNS for, as `render` prints it: a line with what a document is for, and one with the call and the
 * document. IDs, which only HNS knows, are in angle brackets. Pure.
 */
import { LB_IPV6, type LoadBalancerBehaviour, readLoadBalancerSettings } from "../../kernel/hcn/documents.ts";
import { listOf, objectOf, textOf } from "../../kernel/hcn/json-fields.ts";
import { familyOf, type IpAddress, type IpFamily, parseIpAddress } from "../../net/ip.ts";
import { DumpError } from "../../trace/dump/recognise.ts";

/** An endpoint by what is known of it: an address, or where the node itself is meant, its name. */
export interface PlannedEndpoint {
  readonly name: string;
  /** Undefined: the node. */
  readonly address: IpAddress | undefined;
}

export interface PlannedLoadBalancer extends LoadBalancerBehaviour {
  readonly family: IpFamily;
  /** `shop/web:http cluster-ip tcp 10.96.0.10:80` */
  readonly purpose: string;
  /** The document. */
  readonly text: string;
  readonly endpoints: readonly PlannedEndpoint[];
}

export interface HostPlan {
  readonly loadBalancers: readonly PlannedLoadBalancer[];
  /** Addresses for which an endpoint is made: those of pods of other nodes, and on an overlay cluster IPs. */
  readonly remote: ReadonlySet<IpAddress>;
  /** Frontends that have no load balancer, and why: `tcp 10.96.0.10:80`. */
  readonly unserved: ReadonlyMap<string, string>;
}

/** The first line of a plan that is made for a trace, and may have no documents. */
const TITLE = /^# load balancers of HNS$/m;
/** In such a plan, a frontend without a load balancer. */
const UNSERVED = /^# none at (\S+ \S+): (.*)$/;
const DOCUMENT = /^(HcnCreateEndpoint|HcnCreateLoadBalancer) (\{.*)$/;
const PLACEHOLDER = /^<ID of (.*)>$/;

/** Whether a text is such a plan. */
export function isHostPlan(text: string): boolean {
  return TITLE.test(text) || /^(?:#.*\n)*HcnCreate(?:Endpoint|LoadBalancer) \{/.test(text);
}

/** @param name of the text, for errors. @throws DumpError */
export function readHostPlan(text: string, name: string): HostPlan {
  const loadBalancers: PlannedLoadBalancer[] = [];
  const remote = new Set<IpAddress>();
  const unserved = new Map<string, string>();
  let purpose = "";
  for (const line of text.split("\n")) {
    const [, key, reason] = UNSERVED.exec(line) ?? [];
    if (key !== undefined && reason !== undefined) unserved.set(key, reason);
    else if (line.startsWith("# ")) purpose = line.slice(2);
    const [, call, document] = DOCUMENT.exec(line) ?? [];
    if (call === undefined || document === undefined) continue;
    try {
      if (call === "HcnCreateLoadBalancer") loadBalancers.push(readLoadBalancer(document, purpose));
      else for (const address of addressesIn(document)) remote.add(address);
    } catch (error) {
      throw new DumpError(`${name} is cut, or no JSON: ${error instanceof Error ? error.message : error}`);
    }
  }
  return { loadBalancers, remote, unserved };
}

function readLoadBalancer(text: string, purpose: string): PlannedLoadBalancer {
  const { endpoints, ...behaviour } = readLoadBalancerSettings(text);
  const [vip] = behaviour.frontendVips;
  const isIpv6 = vip === undefined ? (behaviour.flags & LB_IPV6) !== 0 : familyOf(vip) === "IPv6";
  return {
    ...behaviour,
    family: isIpv6 ? "IPv6" : "IPv4",
    purpose,
    text,
    endpoints: endpoints.map((id) => {
      const name = PLACEHOLDER.exec(id)?.[1] ?? id;
      return { name, address: parseIpAddress(name) };
    }),
  };
}

function addressesIn(text: string): IpAddress[] {
  const configurations = listOf(objectOf(JSON.parse(text)).IpConfigurations);
  return configurations.flatMap((one) => parseIpAddress(textOf(objectOf(one).IpAddress)) ?? []);
}
