/** Node addresses that come and go: node ports and health-check ports follow them, if only some are selected. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { signalChild } from "../../../src/kernel/child-process.ts";
import type { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";
import { stretched } from "../../../testkit/support/patience.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { faultNode, service, slice, startDaemon } from "./fault-node.ts";

const LATE = "10.201.0.7";
const NODE_PORT = 30022;
const HEALTH_PORT = 32022;
const BODY = "from the pod";

const objects = [
  service("everywhere", "10.96.0.22", {
    type: "LoadBalancer",
    externalTrafficPolicy: "Local",
    healthCheckNodePort: HEALTH_PORT,
    ports: [{ name: "http", port: 80, protocol: "TCP", nodePort: NODE_PORT }],
  }),
  slice("everywhere", ["10.200.0.2"], {
    endpoints: [{ addresses: ["10.200.0.2"], conditions: { ready: true }, nodeName: "node-a" }],
  }),
];

/** The response to curl inside the node, or undefined. */
async function get(node: NetworkNamespace, url: string): Promise<string | undefined> {
  try {
    return (await node.exec(["curl", "-s", "--max-time", "1", url])).stdout;
  } catch {
    return undefined;
  }
}

describe("addresses of the node that come later", { skip: kernelSkip, timeout: stretched(120_000) }, () => {
  for (const mode of ["nftables", "iptables", "userspace"] as const) {
    test(`${mode}: node port and health check answer on a new address, and no longer when it is gone`, async (t) => {
      const node = await faultNode(t);
      const script = `require("http").createServer((_, r) => r.end("${BODY}")).listen(8080, "10.200.0.2")`;
      const pod = node.spawn([process.execPath, "-e", script], { stdio: "ignore" });
      t.after(() => signalChild(pod));
      const config = { mode, nodePortAddresses: ["10.200.0.0/24", "10.201.0.0/24"] };
      const daemon = await startDaemon(t, node, { objects, config });
      const served = (address: string) => get(node, `http://${address}:${NODE_PORT}/`);
      const healthy = (address: string) => get(node, `http://${address}:${HEALTH_PORT}/`);
      await daemon.until("the node port", async () => (await served("10.200.0.2")) === BODY);
      await daemon.until(
        "the health check",
        async () => (await healthy("10.200.0.2"))?.includes("everywhere") === true,
      );
      await node.configure([`addr add ${LATE}/24 dev eth0`]);
      await daemon.until("the node port on the new address", async () => (await served(LATE)) === BODY);
      await daemon.until("the health check there", async () => (await healthy(LATE))?.includes("everywhere") === true);
      const { stdout: before } = await node.exec(["ss", "-Hltn"]);
      assert.match(before, new RegExp(`${LATE}:${HEALTH_PORT}`));
      await node.configure([`addr del ${LATE}/24 dev eth0`]);
      const isListening = async () => (await node.exec(["ss", "-Hltn"])).stdout.includes(`${LATE}:`);
      await daemon.until("no listener there", async () => !(await isListening()));
      const rules = async () =>
        mode === "nftables"
          ? (await node.exec(["nft", "list", "ruleset"])).stdout
          : await daemon.saved("iptables-save");
      await daemon.until("no rule for it", async () => !(await rules()).includes(LATE));
      await daemon.until("the other address to be served still", async () => (await served("10.200.0.2")) === BODY);
    });
  }
});
