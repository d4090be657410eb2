/** Connected UDP sockets of two Services while endpoints flap, and while one's addresses become the other's. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { port } from "../../../testkit/dataplane/test-cluster.ts";
import { PATIENCE } from "../../../testkit/support/patience.ts";
import { eventually } from "../../kernel/bpf/testing/eventually.ts";
import { reasonToSkip } from "../../kernel/bpf/testing/test-cgroup.ts";
import { makeEndpoint } from "../../model/testing/records.ts";
import { connectedScene } from "./testing/connected-scene.ts";

const FACTS = { nodeName: "node-a", zone: undefined };
const SOCKETS = 40;
const PAUSE_MS = 40;
/** `test:all` makes 1,500 changes in 60 s. */
const CHANGES = process.env.KPTS_PROPERTY_SCALE === undefined ? 75 : 1_500;
const LOOPBACK = "127.0.0.1";

test("no connected UDP socket stays without a record or with another Service's pod", {
  skip: reasonToSkip(),
  timeout: 180_000 * PATIENCE,
}, async (t) => {
  const scene = await connectedScene(t, "IPv4", { services: 2, endpoints: 8 });
  const { dialler, maps, stale } = scene;
  const pods: number[] = [];
  for (let pod = 0; pod < 8; pod++) pods.push(await dialler.listen("udp", LOOPBACK));
  const services = ["10.96.0.1", "10.96.0.2"].map((vip, at) => port(`dns-${at}`, vip, { protocol: "UDP", port: 53 }));
  /** The Service of each pod, by number; 2 is neither. */
  const owners = pods.map((_, at) => at % 3);
  const lead = (): void => {
    for (const [at, service] of services.entries()) {
      const endpoints = pods.filter((_, pod) => owners[pod] === at).map((pod) => makeEndpoint(LOOPBACK, pod));
      maps.set(service.name.key, service, endpoints, FACTS);
    }
    maps.settle();
    if (maps.takeLostUdp()) void stale.disconnect();
  };
  lead();
  scene.attach();
  for (let socket = 0; socket < SOCKETS; socket++) {
    await dialler.hold(`${socket}`, { address: `10.96.0.${1 + (socket % 2)}`, port: 53 }, true);
  }
  assert.equal(maps.connections.count, SOCKETS);
  for (let change = 0; change < CHANGES; change++) {
    const pod = change % pods.length;
    owners[pod] = ((owners[pod] ?? 0) + 1) % 3;
    lead();
    await sleep(PAUSE_MS);
  }
  await eventually(() => assert.equal(maps.connections.count, SOCKETS, "a socket is without a record"));
  for (let socket = 0; socket < SOCKETS; socket++) {
    const { reached = 0 } = await dialler.ask(`${socket}`);
    assert.equal(owners[pods.indexOf(reached)], socket % 2, `socket ${socket} asks port ${reached}`);
  }
  const disconnected = scene.disconnected();
  assert.ok(disconnected > CHANGES, `${disconnected} disconnections`);
  t.diagnostic(`${disconnected} disconnections in ${CHANGES} changes`);
});
