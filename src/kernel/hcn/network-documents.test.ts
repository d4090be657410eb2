import assert from "node:assert/strict";
import { test } from "node:test";
import type { Cidr, IpAddress } from "../../net/ip.ts";
import { networkText, policyRequestText, remoteSubnetPolicy } from "./network-documents.ts";
import { noticeKind, SERVICE_DISCONNECT } from "./notices.ts";

const SUBNET = { prefix: "192.168.2.0/24" as Cidr, providerAddress: "10.0.0.3" as IpAddress }; // canonical

test("a new network is written as the Go binding writes it (windows-hcn.md §4.5)", () => {
  const settings = { name: "vxlan0", type: "Overlay", subnets: ["192.168.1.0/24" as Cidr], remoteSubnets: [SUBNET] };
  assert.equal(
    networkText(settings),
    '{"Name":"vxlan0","Type":"Overlay","Policies":[{"Type":"RemoteSubnetRoute","Settings":{"DestinationPrefix":"192.168.2.0/24","ProviderAddress":"10.0.0.3"}}],"MacPool":{},"Dns":{},"Ipams":[{"Type":"Static","Subnets":[{"IpAddressPrefix":"192.168.1.0/24"}]}],"SchemaVersion":{"Major":2,"Minor":0}}',
  );
  const bare = networkText({ ...settings, remoteSubnets: [] });
  assert.ok(!bare.includes("Policies"));
});

test("policies are changed by a request", () => {
  assert.equal(
    policyRequestText("Remove", [remoteSubnetPolicy(SUBNET)]),
    '{"ResourceType":"Policy","RequestType":"Remove","Settings":{"Policies":[{"Type":"RemoteSubnetRoute","Settings":{"DestinationPrefix":"192.168.2.0/24","ProviderAddress":"10.0.0.3"}}]}}',
  );
});

test("numbers of notices have words, those with the highest bit, too", () => {
  assert.equal(noticeKind(SERVICE_DISCONNECT), "service-gone");
  assert.equal(noticeKind(4), "network-deleted");
  assert.equal(noticeKind(-1), "other");
});
