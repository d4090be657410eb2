import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { hostAddresses } from "./host-addresses.ts";

inNetns(import.meta.url, { name: "hostaddr" }, () => {
  test("addresses on the ipvs mode's device are of Services, and none of the host's own", async () => {
    const batch = [
      "link add kube-ipvs0 type veth peer name peer0",
      "addr add 10.96.0.10/32 dev kube-ipvs0",
      "addr add 10.200.0.2/24 dev lo",
      "addr add fd00:96::10/128 dev kube-ipvs0",
    ];
    execFileSync("ip", ["-batch", "-"], { input: `${batch.join("\n")}\n` });
    assert.deepEqual([...(await hostAddresses("IPv4"))].sort(), ["10.200.0.2", "127.0.0.1"]);
    assert.deepEqual(await hostAddresses("IPv6"), ["::1"]);
  });
});
