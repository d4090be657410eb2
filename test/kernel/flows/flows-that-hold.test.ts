/** UDP flows stay with an endpoint for as long as it serves, even if it is not offered; new ones choose from what is offered. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { testBpffs } from "../../../src/kernel/bpf/testing/test-bpffs.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { clusterOf, FAMILIES, type ServiceSpec, type ServingPod, TERMINATING, UNREADY } from "./cluster-objects.ts";
import { namespaceAt } from "./expected.ts";
import { addressOf, flowNetwork } from "./flow-network.ts";
import { ALL_MODES, protocolsOf, traitsOf } from "./modes.ts";
import { type KeptSocket, SocketKeeper } from "./socket-keeper.ts";

const service = (endpoints: ServiceSpec["endpoints"], spec?: ServiceSpec["spec"]): ServiceSpec => ({
  name: "dns",
  number: 1,
  endpoints,
  ...(spec !== undefined && { spec }),
});
const ALL: readonly ServingPod[] = ["local-1", "remote-1"];
const SOCKETS = 6;

interface Flow {
  readonly what: string;
  readonly socket: KeptSocket;
  /** The pod that answered first. */
  readonly pod: string;
}

async function openFlows(keeper: SocketKeeper): Promise<readonly Flow[]> {
  const flows: Flow[] = [];
  for (const family of FAMILIES) {
    const { address, port } = addressOf(1, "cluster IP", "UDP", family);
    for (const isConnected of [true, false]) {
      for (let count = 0; count < SOCKETS; count++) {
        const socket = await keeper.open(family, { address, port, isConnected });
        flows.push({ what: `${family}, connected: ${isConnected}`, socket, pod: await socket.ask() });
      }
    }
  }
  return flows;
}

/** Lines for the flows that have moved. */
async function moved(flows: readonly Flow[]): Promise<readonly string[]> {
  const lines: string[] = [];
  for (const { what, socket, pod } of flows) {
    const now = await socket.ask();
    if (now !== pod) lines.push(`${what}: ${pod} → ${now}`);
  }
  return lines;
}

for (const mode of ALL_MODES) {
  const { carriesTraffic, hasVirtualServers } = traitsOf[mode];
  // The proxy has its own sessions; and virtual servers have their own table, which only the virtual machine has.
  if (carriesTraffic || hasVirtualServers || !protocolsOf(mode).includes("UDP")) continue;
  test(`${mode}: UDP flows`, { skip: kernelSkip }, async (t) => {
    const pins = traitsOf[mode].runsInCgroup === true ? { pinFolder: `${(await testBpffs(t)).path}/kept` } : {};
    const network = await flowNetwork(t, mode, [service(ALL)], pins);
    const { daemon } = network;
    const keeper = new SocketKeeper(network, namespaceAt.pod);
    const change = async (next: ServiceSpec): Promise<void> => {
      const before = Date.now();
      daemon.writeObjects(clusterOf([next]));
      await daemon.synced(before);
    };
    const flows = await openFlows(keeper);
    const at = (pod: ServingPod) => flows.filter((flow) => flow.pod === pod);
    assert.equal(at("local-1").length + at("remote-1").length, flows.length);
    assert.ok(at("local-1").length > 0 && at("remote-1").length > 0, "by chance in 1 of 10^7 runs");

    await t.test("stay with an endpoint that terminates and serves, and new ones avoid it", async () => {
      await change(service(["local-1", { pod: "remote-1", conditions: TERMINATING }]));
      assert.deepEqual(await moved(flows), []);
      const later = await openFlows(keeper);
      assert.deepEqual([...new Set(later.map(({ pod }) => pod))], ["local-1"]);
    });

    await t.test("stay when the proxy is killed and starts again meanwhile", async () => {
      await daemon.stop("SIGKILL");
      const before = Date.now();
      daemon.spawn();
      await daemon.synced(before);
      assert.deepEqual(await moved(flows), []);
    });

    await t.test("stay when the policy leaves their endpoint out", async () => {
      await change(service(ALL, { internalTrafficPolicy: "Local" }));
      assert.deepEqual(await moved(flows), []);
      const later = await openFlows(keeper);
      assert.deepEqual([...new Set(later.map(({ pod }) => pod))], ["local-1"]);
      await change(service(ALL));
      assert.deepEqual(await moved(flows), []);
    });

    await t.test("leave an endpoint that does not serve, and no other", async () => {
      await change(service(["local-1", { pod: "remote-1", conditions: UNREADY }]));
      assert.deepEqual(await moved(at("local-1")), []);
      await daemon.until("no flow at an endpoint that does not serve", async () =>
        (await Promise.all(at("remote-1").map(({ socket }) => socket.ask()))).every((now) => now !== "remote-1"),
      );
    });
  });
}
