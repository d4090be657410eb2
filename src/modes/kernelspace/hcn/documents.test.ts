/** The documents of reference windows-hcn.md §4.5, byte for byte. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { IpAddress } from "../../../net/ip.ts";
import {
  endpointText,
  type LoadBalancerSettings,
  loadBalancerText,
  queryText,
  readEndpoint,
  readHnsList,
  readIds,
  readLoadBalancer,
  readNetwork,
} from "./documents.ts";
import { type Guid, parseGuid, ZERO_GUID } from "./guid.ts";

const guid = (text: string): Guid => parseGuid(text) ?? ZERO_GUID;
const ip = (text: string): IpAddress => text as IpAddress; // canonical literals below
const ID = guid("0be07c06-353c-4fbf-8ebc-5531f877e68a");
const A = guid("fd6bec0f-7b88-4b61-b5af-70897ab0960b");
const NET = guid("93c59a4b-f5c0-42aa-be09-e7480de1ff3d");
const HTTP = { protocol: 6, internalPort: 80, externalPort: 80, distribution: 0, flags: 0 };
const NODE_PORT: LoadBalancerSettings = {
  endpoints: [A],
  sourceVip: undefined,
  frontendVip: undefined,
  mapping: { ...HTTP, internalPort: 8080, externalPort: 30080, flags: 18 },
  flags: 0,
};

test("queries", () => {
  assert.equal(queryText(), '{"SchemaVersion":{"Major":2,"Minor":0}}');
  assert.equal(
    queryText({ Name: "cbr0" }),
    '{"SchemaVersion":{"Major":2,"Minor":0},"Filter":"{\\"Name\\":\\"cbr0\\"}"}',
  );
  assert.equal(
    queryText({ VirtualNetwork: NET }),
    `{"SchemaVersion":{"Major":2,"Minor":0},"Filter":"{\\"VirtualNetwork\\":\\"${NET}\\"}"}`,
  );
});

test("settings of load balancers", () => {
  const dsr = { ...NODE_PORT, sourceVip: ip("192.168.1.2"), frontendVip: ip("10.20.30.41"), mapping: HTTP, flags: 1 };
  assert.equal(
    loadBalancerText(dsr),
    `{"HostComputeEndpoints":["${A}"],"SourceVIP":"192.168.1.2","FrontendVIPs":["10.20.30.41"],"PortMappings":[{"Protocol":6,"InternalPort":80,"ExternalPort":80}],"SchemaVersion":{"Major":2,"Minor":0},"Flags":1}`,
  );
  const sticky = {
    ...NODE_PORT,
    endpoints: [A, ID],
    frontendVip: ip("10.20.30.41"),
    mapping: { protocol: 17, internalPort: 53, externalPort: 53, distribution: 2, flags: 0 },
  };
  assert.equal(
    loadBalancerText(sticky),
    `{"HostComputeEndpoints":["${A}","${ID}"],"FrontendVIPs":["10.20.30.41"],"PortMappings":[{"Protocol":17,"InternalPort":53,"ExternalPort":53,"DistributionType":2}],"SchemaVersion":{"Major":2,"Minor":0}}`,
  );
  assert.equal(
    loadBalancerText(NODE_PORT),
    `{"HostComputeEndpoints":["${A}"],"PortMappings":[{"Protocol":6,"InternalPort":8080,"ExternalPort":30080,"Flags":18}],"SchemaVersion":{"Major":2,"Minor":0}}`,
  );
});

test("settings of endpoints", () => {
  const remote = { network: NET, address: ip("192.168.2.3"), mac: "02-11-c0-a8-02-03", isRemote: true };
  const tail =
    '"Dns":{},"MacAddress":"02-11-c0-a8-02-03","Flags":1,"Health":{"Extra":{}},"SchemaVersion":{"Major":2,"Minor":0}}';
  assert.equal(
    endpointText({ ...remote, providerAddress: ip("10.0.0.3") }),
    `{"HostComputeNetwork":"${NET}","Policies":[{"Type":"ProviderAddress","Settings":{"ProviderAddress":"10.0.0.3"}}],"IpConfigurations":[{"IpAddress":"192.168.2.3"}],${tail}`,
  );
  assert.equal(
    endpointText(remote),
    `{"HostComputeNetwork":"${NET}","IpConfigurations":[{"IpAddress":"192.168.2.3"}],${tail}`,
  );
  const sourceVip = { network: NET, address: ip("192.168.1.2"), mac: "00:15:5d:aa:bb:cc", isRemote: false };
  assert.equal(
    endpointText(sourceVip),
    `{"HostComputeNetwork":"${NET}","IpConfigurations":[{"IpAddress":"192.168.1.2"}],"Dns":{},"MacAddress":"00:15:5d:aa:bb:cc","Health":{"Extra":{}},"SchemaVersion":{"Major":2,"Minor":0}}`,
  );
});

test("a load balancer as a node has logged it", () => {
  const text = `{"ID":"${ID.toUpperCase()}","HostComputeEndpoints":["${A}"],"SourceVIP":"10.10.253.194","PortMappings":[{"Protocol":6,"InternalPort":80,"ExternalPort":31416,"Flags":2}],"SchemaVersion":{"Major":2,"Minor":0}}`;
  assert.deepEqual(readLoadBalancer(text), {
    id: ID,
    endpoints: [A],
    sourceVip: "10.10.253.194",
    frontendVips: [],
    mappings: [{ ...HTTP, externalPort: 31416, flags: 2 }],
    flags: 0,
  });
});

test("enums in words, numbers as texts, addresses in any spelling", () => {
  const mapping = { Protocol: "TCP", InternalPort: "80", ExternalPort: 80, DistributionType: "SourceIP" };
  const found = readLoadBalancer(
    JSON.stringify({
      ID: `{${ID}}`,
      FrontendVIPs: ["FD00:0:0::1"],
      PortMappings: [{ ...mapping, Flags: "LocalRoutedVIP, EnablePreserveDip" }],
      Flags: "EnableDirectServerReturn",
      SchemaVersion: { Major: 2, Minor: 14 },
    }),
  );
  assert.deepEqual(found, {
    id: ID,
    endpoints: [],
    sourceVip: undefined,
    frontendVips: ["fd00::1"],
    mappings: [{ ...HTTP, distribution: 2, flags: 10 }],
    flags: 1,
  });
});

test("a load balancer without port mappings is read", () => {
  assert.deepEqual(readLoadBalancer(JSON.stringify({ ID })), {
    id: ID,
    endpoints: [],
    sourceVip: undefined,
    frontendVips: [],
    mappings: [],
    flags: 0,
  });
});

test("remote subnets of a network; one that cannot be read is left out", () => {
  const subnet = (DestinationPrefix: string, ProviderAddress: string) => ({
    Type: "RemoteSubnetRoute",
    Settings: { DestinationPrefix, ProviderAddress, IsolationId: 4096 },
  });
  const Policies = [subnet("192.168.2.0/24", "10.0.0.3"), subnet("nonsense", "10.0.0.4"), { Type: "L4Proxy" }];
  assert.deepEqual(readNetwork(JSON.stringify({ ID: NET, Name: "vxlan0", Type: "Overlay", Policies })), {
    id: NET,
    name: "vxlan0",
    type: "Overlay",
    remoteSubnets: [{ prefix: "192.168.2.0/24", providerAddress: "10.0.0.3" }],
  });
  const bare = readNetwork(JSON.stringify({ ID: NET }));
  assert.equal("type" in bare && bare.type, "NAT");
});

test("what cannot be read says why", () => {
  assert.deepEqual(readEndpoint("{"), { problem: "is not JSON" });
  assert.deepEqual(readEndpoint("[]"), { problem: "is not a JSON object" });
  assert.deepEqual(readEndpoint("{}"), { problem: "has no ID" });
});

test("another version of the schema is read, and known as such", () => {
  for (const [version, otherSchema] of [
    [0, 0],
    [1, 1],
    [2, undefined],
    [3, 3],
  ] as const) {
    const read = readNetwork(JSON.stringify({ ID, Name: "cbr0", SchemaVersion: { Major: version, Minor: 0 } }));
    assert.ok("name" in read);
    assert.deepEqual([read.name, read.otherSchema], ["cbr0", otherSchema]);
  }
});

test("an answer that is no list does not pass for one without objects", () => {
  assert.deepEqual(readIds(`["${ID.toUpperCase()}"]`), [ID]);
  for (const nothing of ["", "null", "[]"]) assert.deepEqual(readIds(nothing), []);
  for (const text of ["{}", '{"Success":false}', '"x"']) {
    assert.throws(() => readIds(text), new Error(`the list of HNS objects is not a list: ${JSON.stringify(text)}`));
  }
  assert.throws(() => readIds("<html>"), { message: 'the list of HNS objects is not JSON: "<html>"' });

  const list = (text: string) => readHnsList(text, "/policylists/");
  assert.deepEqual(list('{"Success":true}'), []);
  assert.deepEqual(list('{"Success":true,"Output":[1]}'), [1]);
  assert.throws(() => list(""), { message: 'the answer of HNS to GET /policylists/ is not JSON: ""' });
  assert.throws(
    () => list('{"Success":true,"Output":{}}'),
    /^Error: the answer of HNS to GET \/policylists\/ is not a list: /,
  );
  assert.throws(() => list('{"Success":false,"Error":"stopping"}'), {
    message: "HNS does not answer GET /policylists/: stopping",
  });
});
