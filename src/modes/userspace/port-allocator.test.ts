import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "../../../testkit/support/fast-check.ts";
import { BusyClock } from "../../../testkit/support/processor-wait.ts";
import type { IpAddress } from "../../net/ip.ts";
import { ANY_PORT } from "../../net/port-range.ts";
import { ListenError, type ListenErrorCode } from "../../relay/listen-error.ts";
import { PortAllocator, PortsExhaustedError } from "./port-allocator.ts";

const ADDRESS = "0.0.0.0" as IpAddress;
const opens = async (port: number) => ({ port });

function refuses(code: ListenErrorCode, ...ports: number[]) {
  return async (port: number) => {
    if (ports.includes(port)) throw new ListenError(code, { protocol: "TCP", address: ADDRESS, port });
    return opens(port);
  };
}

describe("the port allocator", () => {
  it("leaves the choice to the system without a range", async () => {
    const allocator = new PortAllocator({ range: ANY_PORT, random: Math.random });
    assert.deepEqual(await allocator.open(opens), { port: 0 });
    allocator.release(0);
  });

  it("says what to do when a range of one port has three users, and when one of them leaves", async () => {
    let told = 0;
    const range = { first: 4000, last: 4000 };
    const allocator = new PortAllocator({ range, random: Math.random, onPortFree: () => told++ });
    assert.equal((await allocator.open(opens)).port, 4000);
    for (let user = 2; user <= 3; user++) {
      await assert.rejects(
        allocator.open(opens),
        (error) =>
          error instanceof PortsExhaustedError &&
          error.message ===
            "port allocation failed; there are no remaining ports left to allocate in the accepted range (4000): " +
              "widen --proxy-port-range, or leave it out",
      );
    }
    assert.equal(told, 0);
    allocator.release(4000);
    assert.equal(told, 1);
    assert.equal((await allocator.open(opens)).port, 4000);
    allocator.release(4000);
    assert.equal(told, 1, "none waits any more");
  });

  it("takes another port when one cannot be bound, and gives the first back", async () => {
    for (const code of ["port_in_use", "not_permitted"] as const) {
      const allocator = new PortAllocator({ range: { first: 4000, last: 4001 }, random: () => 0 });
      assert.equal((await allocator.open(refuses(code, 4000))).port, 4001);
      assert.equal((await allocator.open(opens)).port, 4000);
    }
  });

  it("does not lose the ports of failures", async () => {
    const range = { first: 4000, last: 4002 };
    const allocator = new PortAllocator({ range, random: Math.random });
    await assert.rejects(allocator.open(refuses("port_in_use", 4000, 4001, 4002)), PortsExhaustedError);
    await assert.rejects(allocator.open(refuses("address_not_local", 4000, 4001, 4002)), { code: "address_not_local" });
    const ports = await Promise.all([1, 2, 3].map(() => allocator.open(opens)));
    assert.deepEqual(ports.map(({ port }) => port).sort(), [4000, 4001, 4002]);
  });

  it("tells a user at once that all ports of a large range are in use", async () => {
    const range = { first: 20_000, last: 65_535 };
    const allocator = new PortAllocator({ range, random: Math.random });
    for (let port = range.first; port <= range.last; port++) await allocator.open(opens);
    // Work of others on this machine does not count.
    const clock = new BusyClock("self");
    for (let user = 0; user < 5000; user++) await assert.rejects(allocator.open(opens), PortsExhaustedError);
    const tookMs = clock.elapsedMs();
    assert.ok(tookMs < 1000, `${tookMs} ms for users that every sync asks for`);
  });

  it("ignores ports that are not in use or not in the range", async () => {
    const allocator = new PortAllocator({ range: { first: 4000, last: 4000 }, random: Math.random });
    for (const port of [4000, 3999, 4001, 0]) allocator.release(port);
    await allocator.open(opens);
    await assert.rejects(allocator.open(opens), PortsExhaustedError);
  });

  it("gives each port to one user at a time, over any history", async () => {
    const step = fc.oneof(
      fc.record({ kind: fc.constant("open"), taken: fc.subarray([1, 2, 3, 4, 5]) }),
      fc.record({ kind: fc.constant("release"), port: fc.integer({ min: 0, max: 6 }) }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
        const allocator = new PortAllocator({ range: { first: 1, last: 5 }, random: Math.random });
        const used = new Set<number>();
        for (const step of steps) {
          if ("port" in step) {
            allocator.release(step.port);
            used.delete(step.port);
            continue;
          }
          const hasFreePort = [1, 2, 3, 4, 5].some((port) => !used.has(port) && !step.taken.includes(port));
          const outcome = await allocator.open(refuses("port_in_use", ...step.taken)).catch((error) => error);
          assert.equal(outcome instanceof PortsExhaustedError, !hasFreePort);
          if (!hasFreePort) continue;
          assert.ok(!used.has(outcome.port) && !step.taken.includes(outcome.port));
          used.add(outcome.port);
        }
      }),
    );
  });
});
