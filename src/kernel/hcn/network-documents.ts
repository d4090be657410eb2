/** The documents that make and change networks, which a proxy leaves to the CNI plugin. Reference windows-hcn.md §4.5. */
import type { Cidr } from "../../net/ip.ts";
import { type RemoteSubnet, SCHEMA } from "./documents.ts";
import type { JsonObject } from "./json-fields.ts";

export interface NetworkSettings {
  readonly name: string;
  /** `Overlay`, `L2Bridge`, … */
  readonly type: string;
  readonly subnets: readonly Cidr[];
  readonly remoteSubnets?: readonly RemoteSubnet[];
}

/** What is done with the policies of a network or an endpoint. */
export type PolicyChange = "Add" | "Remove" | "Update";

/** The settings of a new network. Pure. */
export function networkText({ name, type, subnets, remoteSubnets = [] }: NetworkSettings): string {
  return JSON.stringify({
    Name: name,
    Type: type,
    ...(remoteSubnets.length > 0 && { Policies: remoteSubnets.map(remoteSubnetPolicy) }),
    MacPool: {},
    Dns: {},
    Ipams: [{ Type: "Static", Subnets: subnets.map((subnet) => ({ IpAddressPrefix: subnet })) }],
    SchemaVersion: SCHEMA,
  });
}

/** The policy that says which node carries a subnet. Pure. */
export function remoteSubnetPolicy({ prefix, providerAddress }: RemoteSubnet): JsonObject {
  return {
    Type: "RemoteSubnetRoute",
    Settings: { DestinationPrefix: prefix, ProviderAddress: providerAddress },
  };
}

/** A request to change policies, as `HcnModifyNetwork` and `HcnModifyEndpoint` take it. Pure. */
export function policyRequestText(change: PolicyChange, policies: readonly JsonObject[]): string {
  return JSON.stringify({ ResourceType: "Policy", RequestType: change, Settings: { Policies: policies } });
}
