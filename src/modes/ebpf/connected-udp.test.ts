/** Real UDP sockets in another network namespace whose endpoint disappears. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { port } from "../../../testkit/dataplane/test-cluster.ts";
import { PATIENCE } from "../../../testkit/support/patience.ts";
import { eventually } from "../../kernel/bpf/testing/eventually.ts";
import { reasonToSkip } from "../../kernel/bpf/testing/test-cgroup.ts";
import { makeEndpoint } from "../../model/testing/records.ts";
import type { IpFamily } from "../../net/ip.ts";
import { connectedScene } from "./testing/connected-scene.ts";

const FACTS = { nodeName: "node-a", zone: undefined };
const MAPPED = "::ffff:";
/** The family of the maps, and the prefix of the sockets' addresses. */
const KINDS: readonly (readonly [string, IpFamily, string])[] = [
  ["IPv4", "IPv4", ""],
  ["IPv6", "IPv6", ""],
  ["IPv4 in IPv6 sockets", "IPv4", MAPPED],
];

describe("connected UDP", { skip: reasonToSkip(), timeout: 60_000 * PATIENCE }, () => {
  for (const [kind, family, prefix] of KINDS) {
    const vip = family === "IPv4" ? "10.96.0.1" : "fd00:10:96::1";
    const loopback = family === "IPv4" ? "127.0.0.1" : "::1";
    test(`of ${kind}: a socket whose endpoint goes is disconnected and reaches a live one; others stay`, async (t) => {
      const scene = await connectedScene(t, family, { services: 1, endpoints: 2 });
      const { dialler, programs, maps, stale } = scene;
      assert.equal(await scene.disconnector.obstacle(), undefined);
      const [one, other] = [await dialler.listen("udp", loopback), await dialler.listen("udp", loopback)];
      const service = port("dns", vip, { protocol: "UDP", port: 53 });
      const lead = async (to: readonly number[]): Promise<void> => {
        const endpoints = to.map((at) => makeEndpoint(loopback, at));
        maps.set(service.name.key, service, endpoints, FACTS);
        maps.settle();
        if (maps.takeLostUdp()) await stale.disconnect();
      };
      await lead([one]);
      scene.attach();
      const service53 = { address: prefix + vip, port: 53 };
      const endpoint = { address: prefix + loopback, port: one };
      await dialler.hold("led", service53);
      await dialler.hold("direct", endpoint);
      await dialler.hold("led once", service53);
      await dialler.hold("led once", endpoint);
      const names = ["led", "direct", "led once"];
      for (const name of names) assert.deepEqual(await dialler.ask(name), { reached: one }, name);
      assert.equal(maps.connections.count, 1);

      await lead([one, other]);
      for (const name of names) assert.deepEqual(await dialler.ask(name), { reached: one }, `${name}: another came`);
      await lead([other]);
      assert.equal(scene.disconnected(), 1);
      assert.deepEqual(await dialler.ask("led"), { code: "ECONNABORTED" });
      await dialler.hold("led", service53);
      for (const name of names) {
        assert.deepEqual(await dialler.ask(name), { reached: name === "led" ? other : one }, name);
      }

      assert.equal(maps.connections.count, 1);
      await dialler.drop("led");
      await eventually(() => assert.equal(maps.connections.count, 0, "a socket that is closed is forgotten"));

      await dialler.hold("kept", service53);
      assert.deepEqual(await dialler.ask("kept"), { reached: other });
      programs.close();
      await stale.disconnectAll();
      assert.deepEqual(await dialler.ask("kept"), { code: "ECONNABORTED" }, "nothing would tell it later");
    });
  }
});
