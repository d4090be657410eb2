/** Records of real UDP sockets that were closed, or went elsewhere, while no program was attached. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { port, remote, TestCluster } from "../../../testkit/dataplane/test-cluster.ts";
import { memoryBpf } from "../../../testkit/fakes/bpf/memory-bpf.ts";
import { PATIENCE, until } from "../../../testkit/support/patience.ts";
import { FakeClock } from "../../agent/sync/testing/fake-clock.ts";
import { takeWide, u64 } from "../../kernel/bpf/layout.ts";
import { eventually } from "../../kernel/bpf/testing/eventually.ts";
import { reasonToSkip } from "../../kernel/bpf/testing/test-cgroup.ts";
import { ownNetnsCookie } from "../../kernel/netns-cookie.ts";
import { udpPeers } from "../../kernel/sock-diag/client-sockets.ts";
import { silentLogger } from "../../logging/logger.ts";
import { makeEndpoint } from "../../model/testing/records.ts";
import { ClosedSockets } from "./closed-sockets.ts";
import { connectedScene } from "./testing/connected-scene.ts";
import { EbpfRig } from "./testing/ebpf-rig.ts";

const LOOPBACK = "127.0.0.1";
const MINUTE_MS = 60_000;
const SERVICE = { address: "10.96.0.1", port: 53 };

describe("UDP sockets that no program saw", { skip: reasonToSkip(), timeout: 60_000 * PATIENCE }, () => {
  async function unseen(t: TestContext) {
    const scene = await connectedScene(t, "IPv4", { services: 1, endpoints: 2 });
    const { dialler, maps, stale } = scene;
    const service = port("dns", SERVICE.address, { protocol: "UDP", port: SERVICE.port });
    const lead = (to: number): void => {
      maps.set(service.name.key, service, [makeEndpoint(LOOPBACK, to)], { nodeName: "node-a", zone: undefined });
      maps.settle();
    };
    const [one, other] = [await dialler.listen("udp", LOOPBACK), await dialler.listen("udp", LOOPBACK)];
    lead(one);
    scene.attach();
    const clock = new FakeClock();
    const state = { afterList: async (_looks: number): Promise<void> => {} };
    let looks = 0;
    const closed = new ClosedSockets({
      family: "IPv4",
      maps: () => maps.memory,
      peers: async (family) => {
        const peers = await udpPeers(family);
        await state.afterList(++looks);
        return peers;
      },
      identity: () => ({ owner: ownNetnsCookie() }),
      stale,
      clock,
      log: silentLogger,
    });
    /** How many sockets have flows and records, and how many flows count for their network namespace. */
    const recorded = () => {
      const [[, count] = [new Uint8Array(8), new Uint8Array(8)]] = maps.memory.ledNamespaces.entries();
      const { flows, connected } = maps.memory;
      return [flows.entries().length, connected.entries().length, Number(takeWide(count, u64(0)))];
    };
    return { ...scene, one, other, lead, clock, closed, recorded, state };
  }
  /** Two looks, and the one after. */
  async function look({ closed, clock }: Awaited<ReturnType<typeof unseen>>): Promise<void> {
    const looking = closed.look();
    for (let waits = 0; waits < 2; waits++) {
      await eventually(() => assert.equal(clock.timerCount, 1));
      await clock.advance(MINUTE_MS);
    }
    await looking;
  }

  test("records of closed ones are removed after two looks, and those of open ones stay", async (t) => {
    const scene = await unseen(t);
    const { dialler, programs, attach, one, other, clock, closed, recorded } = scene;
    for (const name of ["stays", "closes", "closes, too", "moves"]) await dialler.hold(name, SERVICE);
    programs.close();
    for (const name of ["closes", "closes, too"]) await dialler.drop(name);
    await dialler.hold("moves", { address: LOOPBACK, port: other });
    attach();
    assert.deepEqual(recorded(), [4, 4, 4], "no program has seen it");
    const looking = closed.look();
    await eventually(() => assert.equal(clock.timerCount, 1));
    assert.deepEqual(recorded(), [4, 4, 4], "one look is not enough");
    await clock.advance(MINUTE_MS);
    await eventually(() => assert.deepEqual(recorded(), [2, 1, 2]));
    await clock.advance(MINUTE_MS);
    await looking;
    assert.deepEqual(await dialler.ask("stays"), { reached: one });
    for (const name of ["stays", "moves"]) await dialler.drop(name);
    await eventually(() => assert.deepEqual(recorded(), [0, 0, 0]));
  });

  for (const [when, afterLook] of [
    ["while they are removed", 2],
    ["later", Number.NaN],
  ] as const) {
    test(`sock_diag does not list an open socket without a peer; connected again ${when}, it hears when its endpoint goes`, async (t) => {
      const scene = await unseen(t);
      const { dialler, disconnector, maps, stale, one, other, lead, recorded, state } = scene;
      await dialler.hold("idle", SERVICE);
      // The endpoint still serves, so the next record is the same.
      await disconnector.disconnect(maps.connections.all());
      assert.deepEqual(await dialler.ask("idle"), { code: "ECONNABORTED" });
      state.afterList = async (looks) => void (looks === afterLook && (await dialler.hold("idle", SERVICE)));
      await look(scene);
      if (Number.isNaN(afterLook)) {
        assert.deepEqual(recorded(), [0, 0, 0]);
        await dialler.hold("idle", SERVICE);
      }
      assert.deepEqual(await dialler.ask("idle"), { reached: one });
      assert.deepEqual(recorded(), [1, 1, 1]);
      lead(other);
      await stale.disconnect();
      assert.deepEqual(await dialler.ask("idle"), { code: "ECONNABORTED" });
    });
  }
});

test("sockets are looked at after a time without programs", async (t) => {
  const cluster = new TestCluster();
  const subject = new EbpfRig(cluster.driver, { isHurried: true });
  t.after(() => void subject.backend.close());
  cluster.set(port("dns", SERVICE.address, { protocol: "UDP", port: SERVICE.port }), [remote("10.180.1.1")]);
  await cluster.driver.sync(subject.backend);
  for (const cookie of [7n, 8n]) subject.connectUdp(cookie, SERVICE.address, SERVICE.port);
  subject.udpPeers = new Map([[8n, "10.180.1.1:8080"]]);
  for (const { link } of memoryBpf(subject.machine).findLinks("kpts_", "valid_until")) link.close();
  await cluster.driver.sync(subject.backend, { full: true });
  const cookies = () =>
    subject
      .mapNamed("connected4")
      ?.entries()
      .map(([key]) => takeWide(key, u64(0)));
  await until("the second look", () => cookies()?.length === 1);
  assert.deepEqual(cookies(), [8n]);
});
