import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { probeEndpoint } from "./service-probe.ts";

inNetns(import.meta.url, { name: "probe" }, () => {
  const prepare = () => {
    const routes = ["unreachable 10.99.0.1", "unreachable fd99::1", "blackhole 10.97.0.1"];
    for (const route of routes) execFileSync("ip", ["route", "add", ...route.split(" ")]);
    const input = `table inet deaf {\nchain input {\ntype filter hook input priority 0;\nip daddr 127.0.0.9 drop\n}\n}`;
    execFileSync("nft", ["-f", "-"], { input });
  };

  test("how an endpoint takes a connection is one word", async (t) => {
    prepare();
    const server = createServer((socket) => socket.destroy());
    t.after(() => server.close());
    await once(server.listen(0, "::"), "listening");
    const { port } = server.address() as AddressInfo;
    const outcomes = {
      [`127.0.0.1:${port}`]: "answered",
      [`[::1]:${port}`]: "answered",
      "127.0.0.1:1": "refused",
      "[::1]:1": "refused",
      "10.99.0.1:80": "unreachable",
      "[fd99::1]:80": "unreachable",
      // There is no route.
      "10.98.0.1:80": "unreachable",
      [`127.0.0.9:${port}`]: "silent",
      "10.97.0.1:80": "failed",
      "no address": "failed",
    };
    const found = await Promise.all(Object.keys(outcomes).map(async (one) => [one, await probeEndpoint(one)]));
    assert.deepEqual(Object.fromEntries(found), outcomes);

    const many = Array.from({ length: 65 }, () => probeEndpoint("127.0.0.9:80"));
    assert.equal(await many.at(-1), "failed", "for the limit of open files");
    assert.deepEqual(new Set((await Promise.all(many)).slice(0, -1)), new Set(["silent"]));
    assert.equal(await probeEndpoint(`127.0.0.1:${port}`), "answered");
  });
});
