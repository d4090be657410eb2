/** A Service with many ports in the nftables mode: others need not wait for all of it. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { stretched } from "../../../testkit/support/patience.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { faultNode, nodeObject, served, service, slice, startDaemon, writeManifest } from "./fault-node.ts";

const COUNT = 4_000;
const MANY = "10.96.200.1";

describe("nftables mode: a Service of many ports", { skip: kernelSkip, timeout: stretched(180_000) }, () => {
  test("another Service is in the kernel while the ports of the first are being programmed", async (t) => {
    const node = await faultNode(t);
    const daemon = await startDaemon(t, node, {
      objects: [nodeObject, ...served("before", 1)],
      config: { mode: "nftables" },
    });
    const names = Array.from({ length: COUNT }, (_, index) => ({ name: `p${index}`, port: 1 + index }));
    const items = [
      service("many", MANY, { ports: names.map((one) => ({ ...one, protocol: "TCP" })) }),
      slice("many", ["10.180.0.7", "10.180.0.8", "10.180.0.9"], {
        ports: names.map(({ name }) => ({ name, port: 8080, protocol: "TCP" })),
      }),
    ];
    const map = async () => (await node.exec(["nft", "list", "map", "ip", "kube-proxy", "service-ips"])).stdout;
    const { pid } = daemon;
    assert.ok(pid !== undefined, "the daemon runs");
    // The daemon runs only between two looks, so that a slow listing misses nothing.
    const untilListed = async (what: string, ip: string) => {
      let listed = "";
      await daemon.until(what, async () => {
        process.kill(pid, "SIGCONT");
        await sleep(50);
        process.kill(pid, "SIGSTOP");
        listed = await map();
        return listed.includes(`${ip} `);
      });
      return listed;
    };
    writeManifest(daemon, "many.json", { apiVersion: "v1", kind: "List", items });
    await untilListed("the first ports", MANY);
    writeManifest(daemon, "after.json", { apiVersion: "v1", kind: "List", items: served("after", 99) });
    const listed = await untilListed("the other Service", "10.96.0.99");
    process.kill(pid, "SIGCONT");
    const ports = listed.split(`${MANY} `).length - 1;
    assert.ok(ports < COUNT, "it came after all of them");
    await daemon.until(
      "all ports",
      async () => (await map()).split(`${MANY} `).length - 1 === COUNT,
      stretched(60_000),
    );
  });
});
