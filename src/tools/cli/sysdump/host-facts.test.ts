/** What a support archive says about a host: tested in a network namespace, which has interfaces of its own. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { inNetns } from "../../../../testkit/support/in-netns.ts";
import { hostFacts } from "./host-facts.ts";

inNetns(import.meta.url, { name: "hostfacts" }, () => {
  test("addresses of interfaces that are down are among the node's, for a trace over the archive", async () => {
    const ip = (...args: string[]) => execFileSync("ip", args);
    ip("link", "add", "down0", "type", "veth", "peer", "name", "down1");
    ip("address", "add", "10.96.0.10/32", "dev", "down0");
    ip("address", "add", "fd00:10:96::10/128", "dev", "down0");
    const part = hostFacts("").find(({ name }) => name === "rules/addresses.txt");
    const lines = (await part?.read())?.trim().split("\n") ?? [];
    for (const wanted of ["10.96.0.10/32 dev down0", "fd00:10:96::10/128 dev down0", "127.0.0.1/8 dev lo"]) {
      assert.ok(lines.includes(`addr add ${wanted}`), `${wanted} in ${lines.join("; ")}`);
    }
  });
});
