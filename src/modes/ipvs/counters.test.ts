import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryIpvs } from "../../../testkit/fakes/ipvs/memory-ipvs.ts";
import { MemoryLinks } from "../../../testkit/fakes/route/memory-links.ts";
import { type CountedPort, unknownCount } from "../../contract/traffic.ts";
import { servicePortName } from "../../model/service-port-name.ts";
import { ip } from "../../model/testing/records.ts";
import { fillFromIpvs } from "./counters.ts";
import { DUMMY_DEVICE } from "./names.ts";

test("a node port does not have the connections of another Service whose port has the same number", async () => {
  const ipvs = new MemoryIpvs();
  const links = new MemoryLinks();
  await links.ensureDummy(DUMMY_DEVICE);
  await links.addAddresses(DUMMY_DEVICE, [ip("10.96.0.1"), ip("10.96.0.2")]);
  const realServer = { address: ip("10.180.0.11"), port: 8080, weight: 1 };
  for (const [address, connections] of [
    ["192.168.0.2", 2],
    ["10.96.0.2", 40],
  ] as const) {
    const key = { address: ip(address), protocol: "TCP", port: 30080 } as const;
    const virtualServer = { ...key, scheduler: "rr", flags: 0, timeoutSeconds: 0 };
    await ipvs.apply([
      { kind: "add-virtual-server", virtualServer },
      { kind: "add-real-server", virtualServer, realServer },
    ]);
    ipvs.setConnections(key, realServer, { active: connections, inactive: 0 });
  }
  const port: CountedPort = {
    name: servicePortName("shop", "web", "http", "TCP"),
    family: "IPv4",
    frontends: [
      { address: ip("10.96.0.1"), port: 80, count: unknownCount() },
      { address: undefined, port: 30080, count: unknownCount() },
    ],
    endpoints: [],
  };
  await fillFromIpvs(ipvs, [port], links);
  assert.deepEqual(
    port.frontends.map(({ count }) => count.open),
    [null, 2],
  );
});
