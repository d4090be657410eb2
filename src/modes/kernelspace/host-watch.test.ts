/** Changes in HNS by other programs are noticed soon, with or without a notification, at a bounded cost. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { HR, type MemoryHcn } from "../../../testkit/fakes/hcn/memory-hcn.ts";
import { FakeClock } from "../../agent/sync/testing/fake-clock.ts";
import type { Clock } from "../../async/clock.ts";
import { Mutex } from "../../async/mutex.ts";
import { silentLogger } from "../../logging/logger.ts";
import { ip } from "../../model/testing/records.ts";
import type { Guid } from "./hcn/guid.ts";
import { type JsonObject, listOf } from "./hcn/json-fields.ts";
import { HostWatch } from "./host-watch.ts";
import { LOOK_MS, newModel, type RigOptions, SYNC_PERIOD_MS, type TestModel } from "./testing/kernelspace-rig.ts";

const WEB = port("web", "10.96.0.1", { nodePort: 30080 });
const PODS = [remote("10.180.1.1"), remote("10.180.1.2")];
/** As HNS numbers them. */
const ENDPOINT_ATTACHED = 9;
const NETWORK_DELETED = 4;

async function watched(options?: RigOptions): Promise<TestModel> {
  const model = newModel(options);
  model.set(WEB, PODS);
  await model.rig.sync();
  model.rig.watch();
  await model.rig.clock.settle();
  model.rig.host.takeCalls();
  return model;
}

describe("what HNS tells", () => {
  test("is looked at within half a second, a burst of it once", async () => {
    const { rig } = await watched();
    const [lost] = rig.host.documents("LoadBalancer").keys();
    assert.ok(lost !== undefined);
    rig.host.loseLoadBalancer(lost);
    for (let pods = 0; pods < 20; pods++) rig.host.notify(ENDPOINT_ATTACHED);
    await rig.clock.advance(499);
    assert.deepEqual(rig.asked, []);
    await rig.clock.advance(1);
    assert.deepEqual(rig.asked, [{ ports: new Set([WEB.name.key]) }]);
    assert.equal(rig.host.takeCalls().length, 3);
    await rig.close();
  });

  test("of no use is not looked at", async () => {
    const { rig } = await watched();
    rig.host.notify(77);
    await rig.clock.advance(LOOK_MS - 1);
    assert.deepEqual(rig.host.takeCalls(), []);
    await rig.close();
  });

  test("a deleted network is noticed, and the new one of that name is used", async () => {
    const { rig } = await watched();
    const [network] = rig.host.documents("Network").keys();
    assert.ok(network !== undefined);
    rig.host.removeNetwork(network);
    rig.host.addNetwork("cbr0", "L2Bridge");
    rig.host.notify(NETWORK_DELETED);
    await rig.clock.advance(500);
    assert.deepEqual(rig.asked, ["full"]);
    assert.deepEqual(rig.logged("warn"), ["The HNS network is not present or has changed; everything is read again"]);
    assert.deepEqual((await rig.sync({ full: true })).failures, []);
    await rig.close();
  });

  test("ends with the watch", async () => {
    const { rig } = await watched();
    assert.equal(rig.host.watchers, 1);
    await rig.close();
    assert.equal(rig.host.watchers, 0);
    assert.equal(rig.clock.timerCount, 0);
  });
});

describe("an HNS that is restarted", () => {
  test("is known to be gone and to be back, and what failed meanwhile does not wait for its turn", async () => {
    const model = await watched();
    const { rig } = model;
    const before = rig.state();
    const start = rig.host.stop();
    model.setEndpoints(WEB, PODS.slice(1));
    for (let attempts = 0; attempts < 6; attempts++) {
      await assert.rejects(rig.sync(), /The HNS service is stopping/);
      await rig.clock.advance(SYNC_PERIOD_MS);
    }
    assert.deepEqual(rig.logged("warn"), ["HNS stops or restarts; everything is read again when it is back"]);
    model.setEndpoints(WEB, PODS);
    start();
    rig.asked.splice(0);
    await rig.clock.advance(LOOK_MS);
    assert.deepEqual(rig.asked.slice(0, 1), ["sync"], "although the next attempt would be half a minute away");
    assert.ok(rig.logged("info").includes("HNS is back"));
    assert.equal(rig.host.watchers, 1, "it tells again");
    await rig.sync();
    assert.deepEqual(rig.state(), before);
    await rig.close();
  });

  test("with all that it had, nothing is written", async () => {
    const { rig } = await watched();
    rig.host.stop()();
    await rig.clock.advance(2 * LOOK_MS);
    await rig.sync();
    assert.deepEqual(rig.host.takeWrites(), []);
    await rig.close();
  });

  test("and of which a load balancer comes back late: that one is adopted (kubernetes #139519)", async () => {
    const { rig } = await watched();
    const [late] = rig.host.documents("LoadBalancer");
    assert.ok(late !== undefined);
    const [id, document] = late;
    rig.host.stop()();
    rig.host.loseLoadBalancer(id);
    await rig.clock.advance(LOOK_MS);
    rig.host.addLoadBalancer(document);
    assert.deepEqual((await rig.sync()).failures, []);
    assert.equal(rig.host.documents("LoadBalancer").size, 2);
    await rig.close();
  });
});

describe("an HNS that tells nothing", () => {
  test("is asked every five seconds", async () => {
    const model = newModel();
    const { rig } = model;
    rig.host.refuse(({ verb }) => (verb === "Watch" ? HR.notImplemented : undefined));
    model.set(WEB, PODS);
    await rig.sync();
    rig.watch();
    const [lost] = rig.host.documents("LoadBalancer").keys();
    assert.ok(lost !== undefined);
    rig.host.loseLoadBalancer(lost);
    await rig.clock.advance(LOOK_MS);
    assert.deepEqual(rig.asked, [{ ports: new Set([WEB.name.key]) }]);
    await rig.close();
  });

  test("is said to tell nothing once, also in detailed logs", async () => {
    const clock = new FakeClock();
    const lines: string[] = [];
    const log = { ...silentLogger, v: (_level: number, message: string) => void lines.push(message) };
    const hcn = { watch: () => Promise.reject(new Error("not implemented")) };
    const watch = new HostWatch({ hcn, turns: new Mutex(), syncPeriodMs: 30_000, clock, log });
    const stop = new AbortController();
    const running = watch.run(
      async () => {},
      stop.signal,
      () => {},
    );
    await clock.advance(10 * LOOK_MS);
    stop.abort();
    await running;
    assert.deepEqual(lines, ["HNS sends no notifications of changes; it is polled only"]);
  });

  test("and says the same fault once", async () => {
    const { rig } = await watched();
    const heal = rig.host.refuse(({ verb }) => (verb === "Enumerate" ? HR.outOfMemory : undefined));
    await rig.clock.advance(10 * LOOK_MS);
    assert.equal(rig.logged("error").length, 1);
    heal();
    await rig.clock.advance(2 * LOOK_MS);
    rig.host.refuse(({ verb }) => (verb === "Enumerate" ? HR.outOfMemory : undefined));
    await rig.clock.advance(2 * LOOK_MS);
    assert.equal(rig.logged("error").length, 2);
    await rig.close();
  });

  test("is asked for a twentieth of the time at most, however slow it is", async () => {
    for (const [tookMs, pauseMs] of [
      [100, LOOK_MS],
      [500, 9_500],
      [10_000, SYNC_PERIOD_MS],
    ] as const) {
      const clock = new FakeClock();
      let spentMs = 0;
      const slow: Clock = {
        now: () => clock.now(),
        monotonicMs: () => clock.monotonicMs() + spentMs,
        setTimer: (ms, callback) => clock.setTimer(ms, callback),
        sleep: (ms, signal) => clock.sleep(ms, signal),
      };
      let looks = 0;
      const look = async (): Promise<void> => {
        looks++;
        spentMs += tookMs;
      };
      const options = { hcn: { watch: async () => async () => {} }, turns: new Mutex(), log: silentLogger };
      const watch = new HostWatch({ ...options, syncPeriodMs: SYNC_PERIOD_MS, clock: slow });
      const stop = new AbortController();
      const running = watch.run(look, stop.signal, () => {});
      await clock.advance(LOOK_MS);
      assert.equal(looks, 1);
      await clock.advance(pauseMs - 1);
      assert.equal(looks, 1, `${tookMs}`);
      await clock.advance(1);
      assert.equal(looks, 2, `${tookMs}`);
      stop.abort();
      await running;
    }
  });
});

describe("the endpoint of the node itself", () => {
  test("is found when it comes late, and again when it is another one", async () => {
    const model = newModel({ config: { healthPort: 10256 }, rootName: "root" });
    const { rig } = model;
    model.set(port("web", "10.96.0.1", { loadBalancerVIPs: [ip("192.0.2.9")] }), PODS);
    await rig.sync();
    assert.equal(rig.host.documents("LoadBalancer").size, 2);
    rig.watch();
    for (const address of ["10.180.0.1", "10.180.0.2"]) {
      rig.asked.splice(0);
      const [before] = [...rig.host.documents("Endpoint")].find(([, { Name }]) => Name === "root") ?? [];
      if (before !== undefined) rig.host.removeEndpoint(before);
      const root = rig.host.addEndpoint({ name: "root", addresses: [address] });
      await rig.clock.advance(LOOK_MS);
      assert.deepEqual(rig.asked, ["sync"]);
      await rig.sync();
      const named = [...rig.host.documents("LoadBalancer").values()].map((one) => one.HostComputeEndpoints);
      assert.deepEqual(named.filter((ids) => Array.isArray(ids) && ids.includes(root)).length, 1, address);
    }
    await rig.close();
  });
});

describe("a look that HNS interrupts", () => {
  for (const [what, lose] of [
    ["an endpoint", ({ rig: { host } }: TestModel) => host.removeEndpoint(idAt(host, "10.180.1.1"))],
    ["a load balancer", ({ rig: { host } }: TestModel) => host.loseLoadBalancer(firstOf(host, "LoadBalancer"))],
  ] as const) {
    for (const call of ["Endpoint", "LoadBalancer", "Call"] as const) {
      test(`after ${what} has gone, at ${call}, forgets nothing of what it has seen`, async () => {
        const model = await watched({ rootName: "root", config: { healthPort: 10256 } });
        const { rig } = model;
        const before = rig.state();
        await rig.clock.advance(SYNC_PERIOD_MS);
        lose(model);
        let asked = 0;
        // The second query of endpoints is for the root endpoint, after all losses are known.
        const heal = rig.host.refuse(({ verb, kind }) => {
          const isIt = call === "Call" ? verb === "Call" : verb === "Enumerate" && kind === call;
          if (!isIt) return undefined;
          asked += 1;
          return call === "Endpoint" && asked === 1 ? undefined : HR.managerStopped;
        });
        await rig.clock.advance(SYNC_PERIOD_MS);
        assert.ok(asked > 0);
        heal();
        await rig.clock.advance(2 * LOOK_MS);
        await rig.sync();
        assert.deepEqual(rig.state(), before);
        await rig.close();
      });
    }
  }
});

test("what a sync finds gone while it takes over another load balancer is made again by it", async () => {
  const model = await watched();
  const { host } = model.rig;
  const other = port("other", "10.96.0.2");
  const mapping = { Protocol: 6, InternalPort: 8080, ExternalPort: 80 };
  const endpoint = idAt(host, "10.180.1.1");
  host.addLoadBalancer({ HostComputeEndpoints: [endpoint], FrontendVIPs: ["10.96.0.2"], PortMappings: [mapping] });
  host.loseLoadBalancer(firstOf(host, "LoadBalancer"));
  model.set(other, PODS);
  assert.deepEqual((await model.rig.sync()).failures, []);
  assert.equal(host.documents("LoadBalancer").size, 3);
  await model.rig.close();
});

describe("a load balancer that another program changes", () => {
  const changes = [
    [
      "its endpoints",
      ({ HostComputeEndpoints }: JsonObject) => ({ HostComputeEndpoints: listOf(HostComputeEndpoints).slice(1) }),
    ],
    ["its address", () => ({ FrontendVIPs: ["10.96.0.77"] })],
    ["its port", () => ({ PortMappings: [{ Protocol: 6, InternalPort: 1, ExternalPort: 30080 }] })],
  ] as const;
  for (const canModify of [true, false]) {
    for (const [what, change] of changes) {
      test(`${what}, under its ID, is changed back within a sync period${canModify ? "" : ", also where that is not in place"}`, async () => {
        const { rig } = await watched({ canModify });
        const before = rig.state();
        await rig.clock.advance(SYNC_PERIOD_MS + LOOK_MS);
        const id = firstOf(rig.host, "LoadBalancer");
        rig.host.setLoadBalancer(id, change(rig.host.documents("LoadBalancer").get(id) ?? {}));
        assert.notDeepEqual(rig.state(), before);
        rig.asked.splice(0);
        await rig.clock.advance(SYNC_PERIOD_MS + LOOK_MS);
        assert.deepEqual(rig.asked, [{ ports: new Set([WEB.name.key]) }]);
        assert.deepEqual(rig.logged("warn"), ["Another program changed load balancers; changing them back"]);
        assert.deepEqual((await rig.sync()).failures, []);
        assert.deepEqual(rig.state(), before);
        await rig.close();
      });
    }
  }

  test("costs one call in a sync period to see, and nothing for what this program has changed itself", async () => {
    const model = await watched();
    const { rig } = model;
    await rig.clock.advance(SYNC_PERIOD_MS + LOOK_MS);
    model.setEndpoints(WEB, PODS.slice(1));
    await rig.sync();
    rig.host.takeCalls();
    await rig.clock.advance(2 * SYNC_PERIOD_MS);
    const calls = rig.host.takeCalls();
    assert.equal(calls.filter(({ verb }) => verb === "Call").length, 2);
    assert.deepEqual(
      calls.filter(({ verb }) => verb !== "Call" && verb !== "Enumerate"),
      [],
    );
    assert.deepEqual(rig.asked, []);
    await rig.close();
  });
});

function firstOf(host: MemoryHcn, kind: "Endpoint" | "LoadBalancer"): Guid {
  const [id] = host.documents(kind).keys();
  assert.ok(id !== undefined);
  return id;
}

function idAt(host: MemoryHcn, address: string): Guid {
  for (const [id, document] of host.documents("Endpoint"))
    if (JSON.stringify(document).includes(`"${address}"`)) return id;
  return assert.fail(`no endpoint has ${address}`);
}
