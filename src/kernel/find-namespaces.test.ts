import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { NetworkNamespace } from "../../testkit/net/network-namespace.ts";
import { newRunName } from "../../testkit/net/run-name.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { namespacesWith } from "./find-namespaces.ts";

inNetns(import.meta.url, { name: "find-namespaces" }, () => {
  test("an address is looked for here and where links lead, and not among the containers of another cluster", async (t) => {
    const linked = await NetworkNamespace.create(newRunName("linked"));
    const apart = await NetworkNamespace.create(newRunName("apart"));
    t.after(() => NetworkNamespace.removeAll([linked, apart]));
    execFileSync("ip", ["link", "add", "here", "type", "veth", "peer", "name", "there", "netns", linked.name]);
    for (const namespace of [linked, apart]) await namespace.configure(["address add 10.9.9.9/32 dev lo"]);
    assert.deepEqual(await namespacesWith(new Set(["10.9.9.9"])), [linked.path]);
    execFileSync("ip", ["address", "add", "10.9.9.9/32", "dev", "lo"]);
    assert.deepEqual(await namespacesWith(new Set(["10.9.9.9"])), ["/proc/self/ns/net", linked.path]);
    execFileSync("ip", ["link", "delete", "here"]);
    assert.deepEqual(await namespacesWith(new Set(["10.9.9.9"])), ["/proc/self/ns/net"], "its id outlives the link");
  });
});
