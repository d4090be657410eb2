import assert from "node:assert/strict";
import { test } from "node:test";
import { servicePortName } from "../../model/service-port-name.ts";
import {
  makeEndpoint,
  makeEndpointRecord,
  makeService,
  makeServicePort,
  makeSlice,
} from "../../model/testing/records.ts";
import { modeNamed } from "../../modes/registry.ts";
import type { IpAddress } from "../../net/ip.ts";
import { servicesOfTarget } from "./part-of-cluster.ts";

const COUNT = 50;
const address = (index: number): string => `10.1.0.${index + 1}`;

const objects = {
  services: Array.from({ length: COUNT }, (_, index) => {
    const clusterIP = `172.16.0.${index + 1}`;
    return makeService({ name: `svc${index}`, clusterIP, clusterIPs: [clusterIP] });
  }),
  endpointSlices: Array.from({ length: COUNT }, (_, index) => {
    const endpoints = [makeEndpointRecord(address(index))];
    return makeSlice({ name: `svc${index}-a`, serviceName: `svc${index}`, endpoints });
  }),
  nodes: [],
  serviceCIDRs: [],
};

for (const mode of ["iptables", "nftables"] as const) {
  test(`${mode}: a name in the kernel is about the one Service that has it, among all`, async () => {
    const inspection = await modeNamed(mode).loadInspection();
    const name = servicePortName("ns1", "svc7", "p", "TCP");
    const port = makeServicePort({ name, sessionAffinity: "ClientIP" });
    const names = [...inspection.namesOf(port, [makeEndpoint(address(7), 80)])];
    assert.ok(names.some(({ endpoint }) => endpoint !== undefined));
    for (const own of names) {
      const found = servicesOfTarget(objects, { kind: "name", name: own.name }, inspection);
      assert.deepEqual([...found], ["ns1/svc7"], own.name);
    }
    // Neither a shared name nor an unknown one needs the model of all Services.
    for (const other of ["KUBE-SERVICES", "services", "nothing"]) {
      assert.deepEqual(servicesOfTarget(objects, { kind: "name", name: other }, inspection), new Set());
    }
    assert.deepEqual([...servicesOfTarget(objects, { kind: "name", name: "svc7" }, inspection)], ["ns1/svc7"]);
  });
}

test("of an address or a port that nothing has, no model of all Services is made", async () => {
  const inspection = await modeNamed("nftables").loadInspection();
  const protocol = undefined;
  const address = "10.250.0.1" as IpAddress; // canonical
  assert.deepEqual(
    servicesOfTarget(objects, { kind: "address", address, port: undefined, protocol }, inspection),
    new Set(),
  );
  for (const [port, count] of [
    [80, 6],
    [81, 0],
  ] as const) {
    for (const target of [
      { kind: "node-port", port, protocol } as const,
      { kind: "address", address, port, protocol } as const,
    ]) {
      assert.equal(servicesOfTarget(objects, target, inspection).size, count, `${target.kind} ${port}`);
    }
  }
});
