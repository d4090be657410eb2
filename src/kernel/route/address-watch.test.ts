import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { AddressWatch } from "./address-watch.ts";

inNetns(import.meta.url, { name: "addrwatch" }, () => {
  test("everybody who watches is told of a new address and of one that is gone, until they leave", async () => {
    const ip = (text: string) => execFileSync("ip", text.split(" "));
    const watch = new AddressWatch();
    const leaving = new AbortController();
    const staying = new AbortController();
    let left = 0;
    let told = Promise.withResolvers<void>();
    const first = watch.watch(() => left++, leaving.signal);
    const second = watch.watch(() => told.resolve(), staying.signal);
    const afterwards = async (text: string): Promise<void> => {
      told = Promise.withResolvers();
      ip(text);
      await told.promise;
    };
    await afterwards("addr add 10.9.9.9/32 dev lo");
    await afterwards("addr del 10.9.9.9/32 dev lo");
    assert.ok(left >= 2, `${left} calls`);
    leaving.abort();
    await first;
    const before = left;
    await afterwards("addr add fd00:9::9/128 dev lo");
    assert.equal(left, before);
    staying.abort();
    await second;
  });

  test("who comes after everybody left is told as well", async () => {
    const watch = new AddressWatch();
    for (const address of ["10.9.9.1/32", "10.9.9.2/32"]) {
      const stop = new AbortController();
      const { promise, resolve } = Promise.withResolvers<void>();
      const watching = watch.watch(resolve, stop.signal);
      execFileSync("ip", ["addr", "add", address, "dev", "lo"]);
      await promise;
      stop.abort();
      await watching;
    }
  });
});
