/** `/readyz` beside a proxier: what a rollout and the cleanup after a change of mode wait for. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ProxierBench } from "../../sync/testing/proxier-bench.ts";
import { addService } from "../../sync/testing/proxier-events.ts";
import { ProxyHealth } from "./proxy-health.ts";

function benchWithHealth() {
  const bench = new ProxierBench();
  const health = new ProxyHealth({ clock: bench.clock, syncPeriodMs: 30_000 });
  health.setMode("IPv4", { remarks: [] });
  Object.assign(bench.health, {
    started: health.started.bind(health),
    updated: health.updated.bind(health),
    queuedUpdate: health.queuedUpdate.bind(health),
  });
  return { bench, health };
}

describe("readyz: the rules are in the kernel", () => {
  it("is not ready while the loop runs and the API server has listed nothing yet", async () => {
    const { bench, health } = benchWithHealth();
    void bench.proxier.run(bench.stop.signal);
    await bench.clock.advance(5_000);
    assert.equal(health.isReady(), false);
    bench.proxier.onSynced("services");
    bench.proxier.onSynced("endpointSlices");
    await bench.clock.settle();
    assert.equal(health.isReady(), true);
  });

  it("is not ready while the first sync is refused, though /livez has patience with it", async () => {
    const { bench, health } = benchWithHealth();
    bench.backend.script = (call) => (call === 1 ? { error: new Error("the table is another program's") } : {});
    await bench.start();
    await bench.clock.advance(10_000);
    assert.equal(health.verdict().isHealthy, true);
    assert.equal(health.isReady(), false);
    await bench.clock.advance(20_000);
    assert.equal(health.isReady(), true);
  });
});

describe("in force: the rules of the mode before may go", () => {
  for (const [name, refused, concernsAll] of [
    ["no service port is served", ["ns/a:p/TCP"], undefined],
    ["rules that every service needs are refused", ["the chains"], true],
  ] as const) {
    it(`is not while ${name}`, async () => {
      const bench = new ProxierBench();
      bench.backend.script = () => ({ refused, ...(concernsAll && { concernsAll }) });
      let isInForce = false;
      void bench.proxier.inForce.then(() => {
        isInForce = true;
      });
      addService(bench, "a");
      await bench.start();
      await bench.clock.advance(60_000);
      assert.equal(isInForce, false);
      bench.backend.script = () => ({});
      await bench.clock.advance(60_000);
      assert.equal(isInForce, true);
    });
  }
});
