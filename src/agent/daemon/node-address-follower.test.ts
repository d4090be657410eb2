import assert from "node:assert/strict";
import { test } from "node:test";
import { silentLogger } from "../../logging/logger.ts";
import { nodePortAddresses } from "../../model/node-port-addresses.ts";
import { ip } from "../../model/testing/records.ts";
import { FakeClock } from "../sync/testing/fake-clock.ts";
import { followNodeAddresses } from "./node-address-follower.ts";

test("addresses that could not be read once are read again, although no other address comes or goes", async () => {
  const clock = new FakeClock();
  const stop = new AbortController();
  const told: string[] = [];
  let own = [ip("192.0.2.1")];
  let isRefused = false;
  let onAddress = (): void => {};
  const following = followNodeAddresses(
    {
      addresses: nodePortAddresses("IPv4", ["192.0.2.0/24"]),
      watch: {
        watch(onChange, signal) {
          onAddress = onChange;
          return new Promise((resolve) => signal.addEventListener("abort", () => resolve()));
        },
      },
      async read() {
        if (isRefused) throw new Error("no memory");
        return own;
      },
      known: own,
      onChange: (ips, isNew) => void (isNew && told.push(ips.join())),
      clock,
      log: silentLogger,
    },
    stop.signal,
  );
  await clock.advance(1_000);
  own = [...own, ip("192.0.2.2")];
  isRefused = true;
  onAddress();
  await clock.advance(1_000);
  isRefused = false;
  await clock.advance(60_000);
  assert.deepEqual(told, ["192.0.2.1,192.0.2.2"]);
  isRefused = true;
  onAddress();
  await clock.advance(1_000);
  stop.abort();
  await following;
  assert.equal(clock.timerCount, 0);
});
