import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { IpvsUnavailableError, type RealServer, type VirtualServer } from "../../../src/modes/ipvs/kernel/ipvs.ts";
import { ipvsContract } from "../../../src/modes/ipvs/kernel/testing/ipvs-contract.ts";
import type { IpAddress } from "../../../src/net/ip.ts";
import { MemoryIpvs } from "./memory-ipvs.ts";

const SERVER: VirtualServer = {
  address: "10.96.0.1" as IpAddress, // canonical, as below
  protocol: "TCP",
  port: 80,
  scheduler: "rr",
  flags: 0,
  timeoutSeconds: 0,
};
const REAL: RealServer = { address: "10.180.0.1" as IpAddress, port: 8080, weight: 1 };
const ADD = { kind: "add-virtual-server", virtualServer: SERVER } as const;
const ADD_REAL = { kind: "add-real-server", virtualServer: SERVER, realServer: REAL } as const;

ipvsContract({
  name: "in memory",
  skip: false,
  open: async () => {
    const ipvs = new MemoryIpvs();
    return {
      ipvs,
      async connect(virtualServer, realServer) {
        ipvs.setConnections(virtualServer, realServer, { active: 1, inactive: 0 });
        return async () => ipvs.setConnections(virtualServer, realServer, { active: 0, inactive: 1 });
      },
    };
  },
});

describe("IPVS in memory", () => {
  test("counts messages, and remembers what was carried out until asked", async () => {
    const ipvs = new MemoryIpvs();
    await ipvs.apply([ADD, ADD, ADD_REAL]);
    await ipvs.virtualServers("IPv4");
    assert.equal(ipvs.messages, 4);
    assert.deepEqual(ipvs.takeOperations(), [ADD, ADD_REAL]);
    assert.deepEqual(ipvs.takeOperations(), []);
  });

  test("refuses what it is told to", async () => {
    const ipvs = new MemoryIpvs();
    const allow = ipvs.refuse(({ kind }) => (kind === "add-virtual-server" ? "ENOMEM" : undefined));
    const [failure] = await ipvs.apply([ADD]);
    assert.equal(failure?.message, "ipvs: cannot add virtual server 10.96.0.1:80/TCP: ENOMEM");
    allow();
    assert.deepEqual(await ipvs.apply([ADD]), []);
  });

  test("knows no schedulers but those it is given", async () => {
    const ipvs = new MemoryIpvs({ schedulers: ["wrr"] });
    assert.equal((await ipvs.apply([ADD]))[0]?.code, "ENOENT");
  });

  test("without its module refuses everything, and comes back empty", async () => {
    const ipvs = new MemoryIpvs();
    await ipvs.apply([ADD, ADD_REAL]);
    ipvs.unload();
    await assert.rejects(ipvs.virtualServers("IPv4"), IpvsUnavailableError);
    await assert.rejects(ipvs.apply([ADD]), /ip_vs/);
    ipvs.load();
    assert.deepEqual(await ipvs.virtualServers("IPv4"), []);
  });

  test("a real server that is added again has the connections that it had", async () => {
    const ipvs = new MemoryIpvs();
    await ipvs.apply([ADD, ADD_REAL]);
    ipvs.setConnections(SERVER, REAL, { active: 2, inactive: 3 });
    await ipvs.apply([{ ...ADD_REAL, kind: "delete-real-server" }, ADD_REAL]);
    assert.deepEqual(await ipvs.realServers(SERVER), [
      { ...REAL, activeConnections: 2, inactiveConnections: 3, connections: 5 },
    ]);
  });
});
