/** Maps that a start must recreate while an earlier process's programs are still attached. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote, TestCluster } from "../../../testkit/dataplane/test-cluster.ts";
import { elementsOf, memoryBpf } from "../../../testkit/fakes/bpf/memory-bpf.ts";
import type { BpfMap } from "../../kernel/bpf/bpf.ts";
import { BpfError } from "../../kernel/bpf/bpf-error.ts";
import type { MapDefinition } from "../../kernel/bpf/map-definition.ts";
import { countingMaps, leadingMaps } from "./socket-balancer/maps.ts";
import { SocketMaps } from "./socket-maps.ts";
import { SocketPins } from "./socket-pins.ts";
import { PIN_FOLDER, PinnedNode } from "./testing/pinned-node.ts";

const OWN = `${PIN_FOLDER}/IPv4`;

test("when maps are made again, programs of the same build that an earlier process has left lead by the new ones", async (t) => {
  const node = new PinnedNode(t);
  const cluster = new TestCluster();
  cluster.set(port("web", "10.96.0.1"), [remote("10.180.1.1")]);
  const first = node.start();
  await cluster.driver.sync(first.backend);
  first.kill();
  memoryBpf(node.machine).pins.remove(`${OWN}/v6/slots4`);
  cluster.setEndpoints(port("web", "10.96.0.1"), [remote("10.180.1.2")]);
  const next = node.start();
  cluster.driver.forget();
  await cluster.driver.sync(next.backend);
  assert.deepEqual(Object.fromEntries(node.leads()), { "10.96.0.1:80": ["10.180.1.2:8080"] });
});

test("when there is to be room for more counts, the map that is read is the one that programs count in", async (t) => {
  const node = new PinnedNode(t);
  const cluster = new TestCluster();
  cluster.set(port("web", "10.96.0.1"), [remote("10.180.1.1")]);
  const first = node.start({ counts: 1024 });
  await cluster.driver.sync(first.backend);
  first.kill();
  const next = node.start({ counts: 2048 });
  cluster.driver.forget();
  await cluster.driver.sync(next.backend);
  next.kill();
  const found = new SocketPins(memoryBpf(node.machine).pins, PIN_FOLDER, "IPv4").findCounts();
  const counted = node.mapsAt("connect4")[0]?.get("counts4");
  assert.ok(found !== undefined && counted !== undefined);
  assert.equal(elementsOf(found.counts), counted);
});

test("a start whose maps have to grow at once, because there are more Services than before, leads by the longer ones", async (t) => {
  const node = new PinnedNode(t);
  const cluster = new TestCluster();
  cluster.set(port("web", "10.96.0.1"), [remote("10.180.1.1")]);
  const first = node.start();
  await cluster.driver.sync(first.backend);
  first.kill();
  // Changes while no process runs; the first one's maps have room for eight.
  for (let n = 2; n < 12; n++) cluster.set(port(`s${n}`, `10.96.0.${n}`), [remote("10.180.1.1")]);
  const next = node.start();
  cluster.driver.forget();
  await cluster.driver.sync(next.backend);
  cluster.setEndpoints(port("web", "10.96.0.1"), [remote("10.180.1.2")]);
  await cluster.driver.sync(next.backend);
  assert.deepEqual(node.leads().get("10.96.0.1:80"), ["10.180.1.2:8080"]);
});

test("when a map cannot be made beside those of an earlier process, none of them stays open", async (t) => {
  const bpf = memoryBpf();
  const open = new Map<BpfMap, number>();
  const opened = (definition: MapDefinition): BpfMap => {
    const map = bpf.createMap(definition);
    open.set(map, 1);
    t.mock.method(map, "close", () => open.set(map, (open.get(map) ?? 0) - 1));
    return map;
  };
  const { frontends, slots, backends } = leadingMaps("IPv4", { frontends: 8, slots: 8, backends: 8 });
  const found = {
    leading: { frontends: opened(frontends), slots: opened(slots), backends: opened(backends) },
    counting: { counts: opened(countingMaps("IPv4", 1).counts) },
  };
  const createMap = (definition: MapDefinition): BpfMap => {
    if (definition.name === "other_netns4") throw new BpfError("ENOMEM", "bpf: as the test wants it: ENOMEM");
    return opened(definition);
  };
  const options = { bpf: { ...bpf, createMap }, family: "IPv4", onMoved: () => {}, nowMs: () => 0 } as const;
  assert.throws(() => new SocketMaps(options, { services: 1, endpoints: 1 }, found), BpfError);
  assert.deepEqual(new Set(open.values()), new Set([0]), "each is closed once");
});
